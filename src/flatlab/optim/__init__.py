"""Torch optimizers, one algorithm a file."""

from .asam import ASAM as ASAM
from .ascent import AscentOptimizer as AscentOptimizer
from .catalogue import OPTIMIZERS as OPTIMIZERS
from .friendly_sam import FriendlySAM as FriendlySAM
from .gsam import GSAM as GSAM
from .label_noise import LabelNoiseSGD as LabelNoiseSGD
from .look_sam import LookSAM as LookSAM
from .msam import MSAM as MSAM
from .passes import Noise as Noise
from .passes import frozen_batchnorm as frozen_batchnorm
from .sam import SAM as SAM
from .sam import USAM as USAM
from .wrapper import WrappedOptimizer as WrappedOptimizer

__all__ = [
    "ASAM",
    "GSAM",
    "MSAM",
    "OPTIMIZERS",
    "SAM",
    "USAM",
    "AscentOptimizer",
    "FriendlySAM",
    "LabelNoiseSGD",
    "LookSAM",
    "Noise",
    "WrappedOptimizer",
    "frozen_batchnorm",
]
