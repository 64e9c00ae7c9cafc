"""What a trained network looks like: contributions of neurons, two scores, data for pictures."""

from .gallery import ANGLE as ANGLE
from .gallery import Gallery as Gallery
from .layers import Layer as Layer
from .layers import layers as layers
from .matrix import ActivationMatrix as ActivationMatrix
from .portrait import Anatomy as Anatomy
from .portrait import portray as portray
from .portrait import sign_of as sign_of
from .scores import features as features
from .scores import memorisation as memorisation
from .scores import memorisation_by_layer as memorisation_by_layer
from .scores import scores as scores

__all__ = [
    "ANGLE",
    "ActivationMatrix",
    "Anatomy",
    "Gallery",
    "Layer",
    "features",
    "layers",
    "memorisation",
    "memorisation_by_layer",
    "portray",
    "scores",
    "sign_of",
]
