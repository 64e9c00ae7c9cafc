"""Data sets as validated arrays: drawn from a seed, read from image files, or your own arrays."""

from .arrays import arrays as arrays
from .arrays import from_arrays as from_arrays
from .arrays import load as load
from .ball import ball as ball
from .catalogue import CATALOGUE as CATALOGUE
from .catalogue import descriptions as descriptions
from .catalogue import identity as identity
from .catalogue import make as make
from .circle import circle as circle
from .complete import complete as complete
from .cube import cube as cube
from .dataset import Dataset as Dataset
from .images import images as images
from .mixture import gaussian_mixture as gaussian_mixture
from .parity import parity as parity
from .sphere import sphere as sphere
from .xor import xor as xor

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
