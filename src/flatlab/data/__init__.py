"""Data sets as validated arrays: drawn from a seed, read from image files, or your own arrays."""

from .arrays import arrays, from_arrays, load
from .catalogue import CATALOGUE, descriptions, identity, make
from .continuous import ball, circle, gaussian_mixture, sphere
from .cube import complete, cube, parity, xor
from .dataset import Dataset
from .images import images

__all__ = [
    "CATALOGUE",
    "Dataset",
    "arrays",
    "ball",
    "circle",
    "complete",
    "cube",
    "descriptions",
    "from_arrays",
    "gaussian_mixture",
    "identity",
    "images",
    "load",
    "make",
    "parity",
    "sphere",
    "xor",
]
