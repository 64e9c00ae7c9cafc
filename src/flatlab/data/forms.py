"""The catalogue of forms: every way in which the files of an image set may be on disk.

A form says where inside a data folder its files may be, how each published file is called there,
and how to read the published content from it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from . import pickles, png_strips, published
from .sets import ImageSet, PublishedFile


@dataclass(frozen=True)
class Form:
    """One form of a set on disk."""

    name: str
    places: tuple[str, ...]
    """Folders inside a data folder, the usual one first."""
    names: Callable[[str], tuple[str, ...]]
    """Name of a published file → its possible names in this form."""
    read: Callable[[Path, PublishedFile, ImageSet], bytes]


def _stem(name: str) -> tuple[str, ...]:
    return (name.removesuffix(".bin"),)


def _picture(name: str) -> tuple[str, ...]:
    return (f"{name.removesuffix('.bin')}.png",)


def _plain_or_zipped(name: str) -> tuple[str, ...]:
    return name, f"{name}.gz"


# The first form that is complete is read.
FORMS: dict[str, tuple[Form, ...]] = {
    "cifar10": (
        Form("binary", ("cifar-10-batches-bin", "."), lambda name: (name,), published.read),
        Form("pickles", ("cifar-10-batches-py", "."), _stem, pickles.read),
        Form("PNG strips", (".", "package"), _picture, png_strips.read),
    ),
    "fashion_mnist": (
        Form(
            "idx",
            ("FashionMNIST/raw", "fashion_mnist", "fashion-mnist", "."),
            _plain_or_zipped,
            published.read,
        ),
    ),
}
