"""Functions by name: "package.module:function" or "file.py:function" → the function.

The code behind such a name may be the user's own, so its errors become one line that says where.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import importlib.util
import inspect
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

from ..errors import FlatlabError, UserError, described

# Told now and then how far a call is: {"done": share, ...}.
Report = Callable[[dict[str, Any]], None]


def require_report(report: Any) -> None:
    """Refuse what cannot be called with one argument; None is allowed."""
    wanted = "report must be a function of one argument"
    if report is None:
        return
    if not callable(report):
        raise UserError(f"{wanted}, got {report!r}")
    try:
        inspect.signature(report).bind({})
    except TypeError as error:
        raise UserError(f"{wanted}; called with one, it fails: {error}") from None
    except ValueError:  # some callables written in C have no signature
        return


def function_named(text: str) -> Callable[..., Any]:
    """Return the function of this name.

    >>> function_named("math:sqrt")(9)
    3.0
    >>> function_named("sqrt")
    Traceback (most recent call last):
    flatlab.errors.UserError: a function is written package.module:function or file.py:function, ...
    """
    found = object_named(text, "function")
    if not callable(found):
        raise UserError(f"{text.rpartition(':')[0]} has no function {text.rpartition(':')[2]!r}")
    function: Callable[..., Any] = found
    return function


def object_named(text: str, kind: str = "object") -> Any:
    """Return the object of this name; an error calls it by its kind.

    >>> object_named("math:tau") > 6
    True
    """
    where, _, name = text.rpartition(":")
    if not where or not name:
        raise UserError(
            f"{'an' if kind[0] in 'aeiou' else 'a'} {kind} is written package.module:{kind} or "
            f"file.py:{kind}, got {text!r}"
        )
    with blamed(f"cannot import {where}"):
        module = _imported(where)
    if not hasattr(module, name):
        raise UserError(f"{where} has no {kind} {name!r}")
    return getattr(module, name)


def with_whole_path(text: str) -> str:
    """Return the name of a function; the path of a file is made absolute.

    >>> with_whole_path("package.nets:make"), with_whole_path("/home/me/../nets.py:make")
    ('package.nets:make', '/home/nets.py:make')
    """
    where, _, name = text.rpartition(":")
    if not where.endswith(".py"):
        return text
    return f"{os.path.abspath(os.path.expanduser(where))}:{name}"


def source_digest(text: str) -> str | None:
    """Return the SHA-256 of the file that defines the function of this name; None without a file.

    >>> source_digest("math:sqrt") is None, len(source_digest("json:loads"))
    (True, 64)
    """
    with contextlib.suppress(TypeError, OSError):
        file = inspect.getsourcefile(inspect.unwrap(function_named(text)))
        return hashlib.sha256(Path(str(file)).read_bytes()).hexdigest()
    return None


@contextlib.contextmanager
def blamed(what: str) -> Iterator[None]:
    """Turn an error in the user's own code into one line that says where it is."""
    try:
        yield
    except FlatlabError:
        raise
    except (ImportError, OSError) as error:
        raise UserError(f"{what}: {error}") from None
    except SyntaxError as error:
        raise UserError(f"{what}: {error.msg} in {error.filename}, line {error.lineno}") from None
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        raise UserError(f"{what}: {described(error)}") from None


def _imported(where: str) -> ModuleType:
    """Import a file (examples/cnn.py) or a module (package.module), from here as Python would."""
    if not where.endswith(".py"):
        if where.startswith(".") or "/" in where or os.sep in where:
            raise UserError(f"{where} is neither a file that ends in .py nor a package.module")
        if "" not in sys.path:
            sys.path.insert(0, "")
        return importlib.import_module(where)
    name = f"target_{Path(where).stem}"
    found = importlib.util.spec_from_file_location(name, where)
    assert found is not None and found.loader is not None  # a .py file always has one
    module = importlib.util.module_from_spec(found)
    sys.modules[name] = module  # dataclasses and pickle look for it there
    found.loader.exec_module(module)
    return module
