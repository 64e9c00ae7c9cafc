"""What a solution looks like: contributions of neurons, two scores, and the data for pictures."""

from .layers import Layer as Layer
from .layers import layers as layers
from .scores import features as features
from .scores import memorisation as memorisation
from .scores import memorisation_by_layer as memorisation_by_layer
from .scores import scores as scores

__all__ = ["Layer", "features", "layers", "memorisation", "memorisation_by_layer", "scores"]
