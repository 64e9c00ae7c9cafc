"""Which of torch's kernels run while derivatives are taken, and what to say if one has none."""

from __future__ import annotations

import contextlib
import sys
import warnings
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from ..errors import UserError
from .losses import first_line


@contextlib.contextmanager
def kernels() -> Iterator[None]:
    """Use attention that has derivatives of every kind, and no code that torch.compile made."""
    before = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        with sdpa_kernel(SDPBackend.MATH), _eager():
            yield
    finally:
        torch.backends.mha.set_fastpath_enabled(before)


def _eager() -> Any:
    """Run compiled functions as they were written; for torch from 2.6 on."""
    stance = getattr(torch.compiler, "set_stance", None)
    if stance is None or "torch._dynamo" not in sys.modules:  # nothing can be compiled yet
        return contextlib.nullcontext()
    return stance("force_eager")


@contextlib.contextmanager
def worded(kind: str, dtype: torch.dtype) -> Iterator[None]:
    """Multiply inside the block; torch's errors become one line that says what to do."""
    try:
        with kernels(), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # forward mode still uses the old torch.jit
            yield
    except RuntimeError as error:  # torch's NotImplementedError is one
        text = first_line(error)
        raise UserError(f"a product with the {kind} failed: {text}; {_hint(text, dtype)}") from None


def require_numbers_of(kind: str, found: Tensor) -> Tensor:
    """Return a product or a matrix; raise if it has entries that are no numbers."""
    if not bool(torch.isfinite(found).all()):
        raise UserError(
            f"the {kind} has entries that are NaN or infinite, where the loss is finite: a second "
            "derivative does not exist (a square root or a norm at 0) or overflows. Keep that "
            "operation away from 0, as sqrt(x + 1e-12) does, or measure in float64"
        )
    return found


def _hint(text: str, dtype: torch.dtype) -> str:
    """Return what to do about a product that failed."""
    if "memory" in text or "allocate" in text:
        return "try less data or smaller batches"
    if "forward AD" in text:
        other = ", or try dtype='float64'" if dtype != torch.float64 else ""
        return f"the model or the loss has an operation without forward mode: replace it{other}"
    if "derivative" in text or "implement" in text:
        return "the model has no second derivative: replace that operation"
    return "torch cannot differentiate the model and the loss twice as they are written"
