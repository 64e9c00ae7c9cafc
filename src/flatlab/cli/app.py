"""The application: its options, errors and exit codes; the commands are in their own files.

Heavy imports are inside the commands, so that `flatlab --help` answers at once.
"""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer
from typer.core import TyperGroup
from typer.exceptions import TyperException

from ..errors import FlatlabError

DONE, CLAIM_FAILED, USER_MISTAKE, DIVERGED, INTERRUPTED = 0, 1, 2, 3, 130


class _Commands(TyperGroup):
    """The commands; typer alone would end silently on Ctrl-C."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            return interrupted()


app = typer.Typer(
    cls=_Commands,
    help="A laboratory for one question: does a flat minimum generalise, and why?",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document on stdout.")]
Out = Annotated[Path, typer.Option(help="Folder for results.")]
Fresh = Annotated[bool, typer.Option("--fresh", help="Run again even if done.")]


def main() -> NoReturn:
    """Run the command line; an expected error is one line on stderr, never a traceback."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # an encoding without ✓ prints ?
            stream.reconfigure(errors="replace")
    try:
        code = app(standalone_mode=False)
    except FlatlabError as error:
        code = complain(error, error.exit_code)
    except TyperException as error:  # without arguments only the help is printed
        text = error.format_message()
        code = complain(text, USER_MISTAKE) if text else USER_MISTAKE
    except MemoryError as error:
        code = complain(f"not enough memory ({error}): choose smaller sizes", USER_MISTAKE)
    except (KeyboardInterrupt, typer.Abort):
        code = interrupted()
    except BrokenPipeError:  # the reader closed the pipe, as in `flatlab list | head`
        sys.stderr.close()
        code = DONE
    sys.exit(code or DONE)


def complain(message: object, code: int) -> int:
    """Print one line on stderr; return the exit code."""
    print(f"flatlab: {' '.join(str(message).split())}", file=sys.stderr)
    return code


def interrupted() -> int:
    """Say that Ctrl-C ended a command; return the exit code."""
    return complain("interrupted: run the same command again to continue", INTERRUPTED)


def emit(document: Any) -> None:
    """Print one JSON document; numbers that are not finite become null."""
    from ..files.store import plain

    print(json.dumps(plain(document), default=str))


def _print_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        print(f"flatlab {version('flatlab')}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool,
        typer.Option(
            "--version", help="Print the version.", callback=_print_version, is_eager=True
        ),
    ] = False,
) -> None:
    """Options of flatlab itself."""
