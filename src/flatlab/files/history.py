"""The history of a run as a parquet table, with the checksum of its columns in the metadata."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ..errors import described
from .checkpoints import CHECKSUM, MISMATCH

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, np.dtype[Any]]


def to_parquet(columns: Mapping[str, Array]) -> bytes:
    """Return the bytes of a table of one-dimensional columns of equal length."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    sink = pa.BufferOutputStream()
    table = pa.table({name: pa.array(column) for name, column in columns.items()})
    table = table.replace_schema_metadata({CHECKSUM: _checksum(_columns(table))})
    pq.write_table(table, sink, write_page_checksum=True)
    data: bytes = sink.getvalue().to_pybytes()
    return data


def from_parquet(data: bytes) -> dict[str, Array]:
    """Return the columns of a table as writable arrays; ValueError says how it is damaged.

    A table without a checksum, from an older version, is read too.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        table = pq.read_table(
            pa.BufferReader(data), page_checksum_verification=True, use_threads=False
        )
        columns = _columns(table)
        expected = (table.schema.metadata or {}).get(CHECKSUM.encode())
    except Exception as error:  # damage can raise anything in the parser
        raise ValueError(described(error)) from None
    if expected is not None and expected != _checksum(columns).encode():
        raise ValueError(MISMATCH)
    return columns


def _columns(table: Any) -> dict[str, Array]:
    """Return the columns of an arrow table as writable arrays."""
    import numpy as np
    import pyarrow as pa

    columns = zip(table.column_names, table.columns, strict=True)
    return {
        name: np.array(column.to_pylist(), dtype=str)
        if pa.types.is_string(column.type)
        else np.array(column.to_numpy())
        for name, column in columns
    }


def _checksum(columns: Mapping[str, Array]) -> str:
    """Return the SHA-256 of columns: names, types, lengths and values, in their order."""
    header = [(name, column.dtype.str, column.shape) for name, column in columns.items()]
    total = hashlib.sha256(json.dumps(header).encode())
    for column in columns.values():
        total.update(column.tobytes())
    return total.hexdigest()
