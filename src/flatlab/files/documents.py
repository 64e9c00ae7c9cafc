"""JSON documents with a checksum: a damaged document is reported, never used."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .checkpoints import CHECKSUM
from .durable import read
from .store import checksum_of, damaged, plain, write_json

DOCUMENT = "document"


def write_document(path: Path, document: Mapping[str, Any]) -> None:
    """Write a document of plain values durably; a float that is not finite becomes null."""
    readable = plain(document)
    write_json(path, {DOCUMENT: readable, CHECKSUM: checksum_of(readable)})


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
        raise damaged(path, repr(error)) from None
    if not isinstance(document, dict) or checksum != checksum_of(document):
        raise damaged(path, "its checksum does not fit")
    return document
