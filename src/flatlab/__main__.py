"""The program `flatlab`, also as `python -m flatlab`."""

import os
import signal
import sys
from typing import Any, NoReturn


def main() -> NoReturn:
    """Run the command line; Ctrl-C is one line from the start, also while its modules load."""
    before = signal.getsignal(signal.SIGINT)
    if before is signal.default_int_handler:
        # Until the command begins: an exception amid an import may be lost or become another one.
        signal.signal(signal.SIGINT, _end)
    from .cli import main as run

    run(ready=lambda: signal.signal(signal.SIGINT, before))


def _end(*_: Any) -> NoReturn:
    sys.stderr.write("flatlab: interrupted: run the same command again to continue\n")
    sys.stderr.flush()
    os._exit(130)


if __name__ == "__main__":
    main()
