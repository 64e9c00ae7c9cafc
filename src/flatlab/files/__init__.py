"""Files that last: durable writes, checkpoints, run directories, downloads. The only writer."""

from .checkpoints import Checkpoint as Checkpoint
from .durable import locked as locked
from .durable import write_atomically as write_atomically
from .store import RunStore as RunStore
from .store import run_directories as run_directories

__all__ = ["Checkpoint", "RunStore", "locked", "run_directories", "write_atomically"]
