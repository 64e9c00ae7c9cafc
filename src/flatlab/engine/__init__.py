"""Compiled training of the two-layer and deep MLP families."""

# numba's np.dot calls the BLAS that scipy brings. It is loaded here so that a caller's limit on
# BLAS threads, set after this import, reaches it.
import scipy.linalg  # noqa: F401

from .compiled import CompiledTrainer as CompiledTrainer
from .compiled import kernel_of as kernel_of
from .compiled import unsupported as unsupported
from .evaluate import evaluate as evaluate
from .evaluate import predict as predict

__all__ = ["CompiledTrainer", "evaluate", "kernel_of", "predict", "unsupported"]
