"""Architectures: specs without torch, and the torch modules that give them their meaning."""

from typing import Any

from .build import build as build
from .build import network as network
from .chains import Chain as Chain
from .chains import Deep as Deep
from .chains import Init as Init
from .chains import TwoLayer as TwoLayer
from .chains import is_chain as is_chain
from .cnn import CNN as CNN
from .contract import Architecture as Architecture
from .contract import Params as Params
from .mlp import MLP as MLP
from .module import Module as Module
from .vgg import VGG11 as VGG11

__all__ = [
    "CNN",
    "MLP",
    "MODELS",
    "VGG11",
    "Architecture",
    "Chain",
    "Deep",
    "Init",
    "Module",
    "Params",
    "TwoLayer",
    "build",
    "is_chain",
    "network",
]

MODELS: dict[str, Any] = {cls.kind: cls for cls in (TwoLayer, Deep, MLP, CNN, VGG11, Module)}
