"""Jobs: functions by name with plain data, run in this process or in several."""

from .contract import Backend as Backend
from .contract import Job as Job
from .contract import Outcome as Outcome
from .local import LocalProcesses as LocalProcesses
from .local import usable_cores as usable_cores
from .run import OnEvent as OnEvent
from .run import run_jobs as run_jobs

__all__ = ["Backend", "Job", "LocalProcesses", "OnEvent", "Outcome", "run_jobs", "usable_cores"]
