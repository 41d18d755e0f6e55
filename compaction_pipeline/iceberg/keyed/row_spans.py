"""Finds out which change files tell the transaction of each row, and the bounds of these transactions.

Bounds in a file's manifest entry mark it. A file without them is opened when it may have the column all the same.
"""

from __future__ import annotations

import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyiceberg.io import FileIO

from compaction_pipeline.core.errors import TableRefused
from compaction_pipeline.core.tables.columns import TRANSACTION_ID
from compaction_pipeline.core.tables.keyed.keyed_files import TransactionSpan
from compaction_pipeline.formats.avro.entry_decoder import DecodedEntry
from compaction_pipeline.iceberg.failures import translated
from compaction_pipeline.iceberg.second_look import looked_at_twice


def span_of_entry(entry: DecodedEntry) -> TransactionSpan | None:
    """The bounds of the transactions that a manifest entry tells; None when it tells none."""
    lower = (entry.lower_bounds or {}).get(TRANSACTION_ID)
    upper = (entry.upper_bounds or {}).get(TRANSACTION_ID)
    if lower is None or upper is None or len(lower) != 8 or len(upper) != 8:
        return None
    return TransactionSpan(int.from_bytes(lower, "little", signed=True), int.from_bytes(upper, "little", signed=True))


@looked_at_twice
def span_in_file(io: FileIO, path: str) -> TransactionSpan | None:
    """The bounds of the transactions that a file tells; None when it has no such column, or no row.

    Raises TableRefused for a file that has the column, and not in each row.
    """
    with translated(f"change file {path}", is_file=True), io.new_input(path).open() as stream, pq.ParquetFile(stream) as file:
        wanted = str(TRANSACTION_ID).encode()
        names = [field.name for field in file.schema_arrow if (field.metadata or {}).get(b"PARQUET:field_id") == wanted]
        if not names or not file.metadata.num_rows:
            return None
        numbers = file.read(columns=names[:1]).column(0)
        if numbers.null_count:
            raise TableRefused(f"change file {path} does not tell the transaction of each of its rows; write the file anew")
        found = pc.min_max(numbers)
        return TransactionSpan(found["min"].as_py(), found["max"].as_py())
