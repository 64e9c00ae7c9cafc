"""JSON documents with a checksum: a damaged document is reported, never used."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..errors import StoreError
from .durable import read
from .store import AGAIN, plain, write_json

DOCUMENT, CHECKSUM = "document", "sha256"


def write_document(path: Path, document: Mapping[str, Any]) -> None:
    """Write a document of plain values durably; a float that is not finite becomes null."""
    readable = plain(document)
    write_json(path, {DOCUMENT: readable, CHECKSUM: _checksum(readable)})


def read_document(path: Path) -> dict[str, Any] | None:
    """Return a document, or None if there is no such file.

    Raises:
        StoreError: The file is damaged.
    """
    data = read(path)
    if data is None:
        return None
    try:
        made = json.loads(data)
        document, checksum = made[DOCUMENT], made[CHECKSUM]
    except (ValueError, RecursionError, TypeError, KeyError) as error:
        raise StoreError(f"{path} is damaged ({error!r}): {AGAIN}") from None
    if not isinstance(document, dict) or checksum != _checksum(document):
        raise StoreError(f"{path} is damaged (its checksum does not fit): {AGAIN}")
    return document


def _checksum(document: Any) -> str:
    text = json.dumps(document, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()
