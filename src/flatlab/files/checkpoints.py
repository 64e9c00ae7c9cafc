"""The format of a checkpoint: named tensors and plain data under one checksum, in safetensors."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import UserError, require_file

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, np.dtype[Any]]


CHECKSUM, MISMATCH = "sha256", "its checksum does not match"


@dataclass(frozen=True)
class Checkpoint:
    """A verified checkpoint; `warnings` names the damaged files that were skipped."""

    tensors: dict[str, Array]
    meta: dict[str, Any]
    warnings: tuple[str, ...] = ()


def _checksum(tensors: Mapping[str, Array], meta: str) -> str:
    """Hash everything; names, dtypes and shapes come first, and fix the lengths of the rest."""
    names = sorted(tensors)
    header = [(name, tensors[name].dtype.str, tensors[name].shape) for name in names]
    total = hashlib.sha256(json.dumps([meta, header]).encode())
    for name in names:
        total.update(tensors[name].tobytes())
    return total.hexdigest()


def serialise(tensors: Mapping[str, Array], meta: Mapping[str, Any]) -> bytes:
    """Return the bytes of a checkpoint."""
    import numpy as np
    import safetensors.numpy

    # Contiguous, because safetensors reads the bare pointer; asarray keeps scalars scalar.
    own = {name: np.asarray(value, order="C") for name, value in tensors.items()}
    text = json.dumps(dict(meta))  # NaN is kept: a resumed run must continue from the same bits
    metadata = {"meta": text, CHECKSUM: _checksum(own, text)}
    data: bytes = safetensors.numpy.save(own, metadata=metadata)
    return data


def read_checkpoint(path: Path) -> Checkpoint | str | None:
    """Return the checkpoint, or why it is damaged, or None if there is no such file."""
    import safetensors.numpy

    require_file(path)
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return None
    except PermissionError as error:
        raise UserError(f"cannot read {path}: {error.strerror}") from error
    except OSError as error:  # a bad sector is damage too
        return str(error.strerror)
    try:
        header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
        text, expected = header["__metadata__"]["meta"], header["__metadata__"][CHECKSUM]
        tensors = {name: value.copy() for name, value in safetensors.numpy.load(data).items()}
        if _checksum(tensors, text) != expected:
            return MISMATCH
        return Checkpoint(tensors, json.loads(text))
    except MemoryError:
        raise
    except Exception as error:  # damage can raise anything in the parsers
        return f"unreadable: {type(error).__name__}"
