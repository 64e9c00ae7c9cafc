"""Jobs: functions by name with plain data, run in this process or in several."""

from .executor import Job as Job
from .executor import Outcome as Outcome
from .executor import run_jobs as run_jobs
from .executor import usable_cores as usable_cores

__all__ = ["Job", "Outcome", "run_jobs", "usable_cores"]
