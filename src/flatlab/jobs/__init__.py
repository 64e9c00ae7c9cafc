"""Jobs: functions by name with plain data, run in this process, in several or on a cluster."""

from .cluster import Cluster as Cluster
from .cluster import opened as opened
from .contract import Backend as Backend
from .contract import Care as Care
from .contract import Job as Job
from .contract import Outcome as Outcome
from .local import LocalProcesses as LocalProcesses
from .local import usable_cores as usable_cores
from .run import OnEvent as OnEvent
from .run import run_jobs as run_jobs

__all__ = [
    "Backend",
    "Care",
    "Cluster",
    "Job",
    "LocalProcesses",
    "OnEvent",
    "Outcome",
    "opened",
    "run_jobs",
    "usable_cores",
]
