"""The application: its options, errors and exit codes; the commands are in their own files.

Heavy imports are inside the commands, so that `flatlab --help` answers at once.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer
from typer import Option
from typer.core import TyperGroup
from typer.exceptions import TyperException

from ..errors import FlatlabError, described, require_path
from .streams import Output, standard_streams

DONE, CLAIM_FAILED, USER_MISTAKE, NOT_REACHED, INTERRUPTED = 0, 1, 2, 3, 130
LEAST_WIDTH = 40  # columns of text
AGAIN = "interrupted: run the same command again to continue"
KEEPS = ("train", "run", "reproduce", "data")  # commands that continue what they began


class Interrupted(FlatlabError):
    """Ctrl-C ended a command."""

    exit_code = INTERRUPTED


class _Commands(TyperGroup):
    """The commands; typer alone would end silently on Ctrl-C."""

    def invoke(self, ctx: Any) -> Any:
        if ctx.obj:
            ctx.obj()
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            kept = getattr(ctx, "invoked_subcommand", None) in KEEPS
            raise Interrupted(AGAIN if kept else "interrupted") from None


app = typer.Typer(
    cls=_Commands,
    help="A laboratory for one question: does a flat minimum generalise, and why?",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)
Json = Annotated[bool, Option("--json", help="Print one JSON document on stdout.")]
Fresh = Annotated[bool, Option("--fresh", help="Run again even if done.")]


def _look_in(folder: Path | None) -> Path | None:
    """Let this process and its workers look for image sets in this folder first."""
    if folder is not None:
        os.environ["FLATLAB_DATA"] = str(folder.absolute())
    return folder


def folder(text: str | Path) -> Path:
    """Read the folder of --out; "" would be the current one."""
    return require_path("--out", text, "a folder")


DataDir = Annotated[
    Path | None,
    Option("--data-dir", help="Folder of image sets, for FLATLAB_DATA.", callback=_look_in),
]


def main(ready: Callable[[], object] | None = None) -> NoReturn:
    """Run the command line; an expected error is one line on stderr, never a traceback.

    `ready` is called when the command begins: from then on Ctrl-C may be an exception. With
    `--json` an error is a document too, unless the command has printed its own.
    """
    _set_least_width()
    with standard_streams(as_json="--json" in sys.argv[1:]) as stdout:
        try:
            code, error = _called(ready)
        except BaseException as bug:
            emit_error(described(bug), CLAIM_FAILED)  # Python's exit code of a traceback
            raise
        if error:
            complain(error, code)
            emit_error(error, code)
        stdout.flush()
        if stdout.error and not isinstance(stdout.error, BrokenPipeError):
            code = complain(f"cannot write to stdout: {stdout.error.strerror}", USER_MISTAKE)
    # Python remembers a KeyboardInterrupt that passed through an `exec` of some library, and would
    # end by the signal instead of the exit code; another `exec` makes it forget.
    exec("")
    sys.exit(code)


def _set_least_width() -> None:
    """Let COLUMNS be a width at which text can be read; 0 says nothing."""
    columns = os.environ.get("COLUMNS", "")
    if columns.isdecimal() and int(columns) == 0:
        del os.environ["COLUMNS"]
    elif columns.isdecimal():
        os.environ["COLUMNS"] = str(max(int(columns), LEAST_WIDTH))


def _called(ready: Callable[[], object] | None) -> tuple[int, str]:
    """Call the command; return the exit code and the error that ended it."""
    try:
        return app(standalone_mode=False, obj=ready) or DONE, ""
    except FlatlabError as error:
        return error.exit_code, str(error)
    except TyperException as error:  # without arguments only the help is printed
        return USER_MISTAKE, error.format_message()
    except MemoryError as error:
        return USER_MISTAKE, f"not enough memory ({error}): choose smaller sizes"
    except (KeyboardInterrupt, typer.Abort):
        return INTERRUPTED, "interrupted"


def complain(message: object, code: int) -> int:
    """Print one line on stderr; return the exit code."""
    print(f"flatlab: {' '.join(str(message).split())}", file=sys.stderr)
    return code


def interrupted(done: str = "") -> int:
    """Say that Ctrl-C ended a command, and how far it came; return the exit code."""
    return complain(f"{AGAIN}{done}", INTERRUPTED)


def code_of(statuses: Iterable[str]) -> int:
    """Return the exit code of training: 3 if a run diverged or missed its target."""
    return NOT_REACHED if {"diverged", "missed"} & {*statuses} else DONE


def emit(document: Any) -> None:
    """Print one JSON document; numbers that are not finite become null."""
    from ..files.store import plain

    text = json.dumps(plain(document), default=str)
    if isinstance(sys.stdout, Output):
        sys.stdout.document(text)
    else:
        print(text)


def emit_error(error: str, code: int) -> None:
    """Print an error as the one JSON document of `--json`, if there is none yet."""
    stdout: object = sys.stdout
    if isinstance(stdout, Output) and stdout.printed and not stdout.documents:
        stdout.document(json.dumps({"error": " ".join(error.split()), "code": code}))


def _print_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        print(f"flatlab {version('flatlab')}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool,
        Option("--version", help="Print the version.", callback=_print_version, is_eager=True),
    ] = False,
) -> None:
    """Options of flatlab itself."""
