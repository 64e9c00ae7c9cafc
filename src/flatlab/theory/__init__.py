"""Theory as code: bounds of the trace, the networks of the proofs, the flattest minimiser."""

from .bounds import batch_norm_xor as batch_norm_xor
from .bounds import bias_floor as bias_floor
from .bounds import layer_norm_floor as layer_norm_floor
from .bounds import logistic_floor as logistic_floor
from .bounds import no_bias_floor as no_bias_floor

__all__ = ["batch_norm_xor", "bias_floor", "layer_norm_floor", "logistic_floor", "no_bias_floor"]
