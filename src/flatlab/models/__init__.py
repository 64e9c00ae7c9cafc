"""Architectures: specs without torch, and the torch modules that give them their meaning."""

from .build import build as build
from .spec import Architecture as Architecture
from .spec import Deep as Deep
from .spec import Init as Init
from .spec import Params as Params
from .spec import TwoLayer as TwoLayer

__all__ = ["MODELS", "Architecture", "Deep", "Init", "Params", "TwoLayer", "build"]

MODELS: dict[str, type[TwoLayer] | type[Deep]] = {"two_layer": TwoLayer, "deep": Deep}
