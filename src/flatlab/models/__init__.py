"""Architectures: specs without torch, and the torch modules that give them their meaning."""

from typing import Any

from .build import build, network
from .chains import Chain, Deep, Init, TwoLayer
from .cnn import CNN, VGG11
from .contract import Architecture, Params
from .mlp import MLP
from .module import Module

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
    "network",
]

MODELS: dict[str, Any] = {cls.kind: cls for cls in (TwoLayer, Deep, MLP, CNN, VGG11, Module)}
