"""Compiled training of the two-layer and deep MLP families."""

# numba's np.dot calls scipy's BLAS. It is loaded here, so that a limit on BLAS threads that a
# caller sets after this import applies to it.
import scipy.linalg  # noqa: F401

from ..errors import UserError

try:
    from .compiled import CompiledTrainer, kernel_of, unsupported
except RuntimeError as error:
    if "cannot cache function" not in str(error):
        raise
    raise UserError(
        "there is no folder to keep compiled kernels in: neither flatlab's own nor one in the home "
        "directory can be written; set NUMBA_CACHE_DIR to one that can"
    ) from None
from .evaluate import evaluate, predict

__all__ = ["CompiledTrainer", "evaluate", "kernel_of", "predict", "unsupported"]
