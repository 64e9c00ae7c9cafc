"""Published files as they are, or compressed with gzip."""

from __future__ import annotations

import gzip
import zlib
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import UserError

if TYPE_CHECKING:
    from .sets import ImageSet, PublishedFile


def read(path: Path, file: PublishedFile, image_set: ImageSet) -> bytes:
    """Return the content of a file; at most one byte more than it should have."""
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as stream:
            return stream.read(file.size + 1)
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise UserError(f"is truncated or damaged ({error})") from None
