"""The user's own network: a factory by name, called with options."""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, ClassVar

from pydantic import Field

from ..errors import FlatlabError, UserError, described
from ..randomness import torch_seeded
from ..specs import spec
from .contract import Described, Examples

if TYPE_CHECKING:
    from torch import nn

Plain = bool | int | float | str


@spec
class Module(Described):
    """A network that a function of your own makes.

    Attributes:
        factory: "package.module:function" or "file.py:function"; called with the options, it
            returns a torch.nn.Module. Torch's random numbers are seeded while it runs.
        options: Keyword arguments of the function, plain values.
    """

    factory: str
    options: dict[str, Plain] = Field(default_factory=dict)
    kind: ClassVar[str] = "module"

    def size(self, shape: tuple[int, ...], outputs: int) -> int | None:
        """Return None: only building it can tell."""
        return None

    def module(self, data: Examples, seed: int) -> nn.Module:
        """Call the factory and return its network in float64."""
        from torch import nn

        make = factory_of(self.factory)
        with blamed(f"{self.factory} failed"), torch_seeded(seed, "init"):
            made = make(**self.options)
        if not isinstance(made, nn.Module):
            raise UserError(
                f"{self.factory} must return a torch.nn.Module, got {type(made).__name__}"
            )
        return made.double()


def factory_of(text: str) -> Callable[..., Any]:
    """Return the function that "package.module:function" or "file.py:function" names."""
    where, colon, name = text.rpartition(":")
    if not colon or not where or not name:
        raise UserError(
            f"a factory is written package.module:function or file.py:function, got {text!r}"
        )
    with blamed(f"cannot import {where}"):
        module = _imported(where)
    factory = getattr(module, name, None)
    if not callable(factory):
        raise UserError(f"{where} has no function {name!r}")
    made: Callable[..., Any] = factory
    return made


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
    except (Exception, SystemExit) as error:
        raise UserError(f"{what}: {described(error)}") from None


def _imported(where: str) -> ModuleType:
    """Import a file (examples/cnn.py) or a module (package.module), from here as Python would."""
    if not where.endswith(".py"):
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
