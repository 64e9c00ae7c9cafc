"""The program `flatlab`, also as `python -m flatlab`."""

import os
import signal
import sys
from typing import Any, NoReturn


def main() -> NoReturn:
    """Run the command line; Ctrl-C and SIGTERM are one line, also while its modules load."""
    usual = {signal.SIGINT: signal.default_int_handler, signal.SIGTERM: signal.SIG_DFL}
    then = {signal.SIGINT: signal.default_int_handler, signal.SIGTERM: _interrupt}
    caught = [number for number in usual if signal.getsignal(number) == usual[number]]
    for number in caught:
        # Until the command begins: an exception amid an import may be lost or become another one.
        signal.signal(number, _end)
    from .cli import main as run

    run(ready=lambda: [signal.signal(number, then[number]) for number in caught])


def _interrupt(*_: Any) -> None:
    """Do as Ctrl-C does; where that is ignored, as in the background of a script, raise."""
    if not callable(signal.getsignal(signal.SIGINT)):
        raise KeyboardInterrupt
    signal.raise_signal(signal.SIGINT)


def _end(*_: Any) -> NoReturn:
    sys.stderr.write("flatlab: interrupted\n")
    sys.stderr.flush()
    os._exit(130)


if __name__ == "__main__":
    main()
