"""The user's own network: a factory by name, called with options."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from pydantic import Field

from ..errors import UserError, shown
from ..outside.functions import blamed, function_named, source_digest, with_whole_path
from ..randomness import torch_seeded
from ..specs import Plain, spec
from .contract import Architecture, Examples

if TYPE_CHECKING:
    from torch import nn


@spec
class Module(Architecture):
    """A network that a function of your own makes.

    Attributes:
        factory: "package.module:function" or "file.py:function"; called with the options, it
            returns a torch.nn.Module. Torch's random numbers are seeded while it runs. The path of
            a file is made absolute, so that the spec means the same file in every directory.
        options: Keyword arguments of the function, plain values.
    """

    factory: str
    options: dict[str, Plain] = Field(default_factory=dict)
    kind: ClassVar[str] = "module"
    draws: ClassVar[bool] = True  # for all that is known

    def __post_init__(self) -> None:
        object.__setattr__(self, "factory", with_whole_path(self.factory))  # the class is frozen

    @property
    def normalises(self) -> bool:
        """True: only building it can tell."""
        return True

    def code(self) -> str | None:
        """Return the SHA-256 of the file that defines the factory."""
        return source_digest(self.factory)

    def size(self, shape: tuple[int, ...], outputs: int) -> int | None:
        """Return None: only building it can tell."""
        return None

    def module(self, data: Examples, seed: int) -> nn.Module:
        """Call the factory and return its network in float64."""
        from torch import nn
        from torch.nn.parameter import is_lazy

        make = function_named(self.factory)
        with blamed(f"{self.factory} failed"), torch_seeded(seed, "init"):
            made = make(**self.options)
        if not isinstance(made, nn.Module):
            raise UserError(
                f"{self.factory} must return a torch.nn.Module, got {type(made).__name__}"
            )
        if any(is_lazy(p) for p in (*made.parameters(), *made.buffers())):
            raise UserError(
                f"{self.factory} returns lazy layers, whose sizes are not known yet: write sizes, "
                "as in nn.Linear(48, 10)"
            )
        self._require_kept(made)
        return made.double()

    def _require_kept(self, made: nn.Module) -> None:
        """Refuse a state that training would change silently, or that no checkpoint holds."""
        from torch import Tensor

        with blamed(f"{self.factory} failed"):
            state = made.state_dict()
        for name, value in (*state.items(), *made.named_buffers()):
            if not isinstance(value, Tensor):
                raise UserError(
                    f"{self.factory} returns a network whose state has {name}, {shown(value)}: a "
                    "checkpoint holds tensors only, so get_extra_state must return one or be left "
                    "out"
                )
            if value.is_complex():
                raise UserError(
                    f"{self.factory} returns a network with complex numbers ({name}), and training "
                    "has float32 and float64: keep real and imaginary parts as two parameters"
                )
