"""Writes and removes rows of live files in bulk, and keeps the sums that tell which nodes changed."""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any
from zlib import crc32

from sqlalchemy import (
    Connection,
    bindparam,
    delete,
    insert,
    select,
    update,
)

from compaction_pipeline.core.tables.data_file import BoundedFile, FileContent, LiveFile
from compaction_pipeline.core.tables.node import TableNode
from compaction_pipeline.storage import schema
from compaction_pipeline.storage.engine import batches

ROWS_AT_A_TIME = 10_000
RowValues = tuple[Any, ...]
_NAMES = tuple(column.name for column in schema.live_file.columns)
PARTITION, ENTRY_HASH = _NAMES.index("partition_id"), _NAMES.index("entry_hash")
_HASH_BYTES = 7
_MODULUS = 2**63
_INSERT = f"INSERT INTO {schema.live_file.name} ({', '.join(_NAMES)}) VALUES ({', '.join('?' * len(_NAMES))})"


def path_hash(path: str) -> int:
    """The hash by which a path is looked up."""
    return crc32(path.encode(errors="surrogatepass"))


def known_partition_id(met: dict[tuple[int, int], int], partition_ids: Mapping[TableNode, int], file: LiveFile) -> int:
    """The id of the partition of a file; `met` remembers it for files that share the partition object."""
    identity = (file.spec_id, id(file.partition))
    number = met.get(identity)
    if number is None:
        number = met[identity] = partition_ids[file.node]
    return number


def file_row(manifest_id: int, ordinal: int, partition_id: int, file: LiveFile) -> RowValues:
    """The values of a file's row, in the order of the table's columns."""
    entry = (
        file.path,
        file.content.value,
        file.spec_id,
        file.file_size_bytes,
        file.record_count,
        file.data_sequence_number,
        file.added_snapshot_id,
        ",".join(map(str, file.equality_ids)) or None,
        file.referenced_data_file,
        file.path_lower,
        file.path_upper,
        file.sort_order_id,
    )
    return (
        manifest_id,
        ordinal,
        partition_id,
        *entry,
        path_hash(file.path),
        None if file.referenced_data_file is None else path_hash(file.referenced_data_file),
        int.from_bytes(hashlib.blake2b(repr(entry).encode(errors="surrogatepass"), digest_size=_HASH_BYTES).digest(), "big"),
        json.dumps(dict(file.sort_bounds)) if isinstance(file, BoundedFile) else None,
    )


def insert_files(connection: Connection, rows: Sequence[RowValues]) -> None:
    """Insert rows of files, many at a time."""
    if connection.dialect.name == "sqlite":
        # The driver's own executemany is four times as fast as SQLAlchemy, which handles each value by itself.
        connection.exec_driver_sql(_INSERT, list(rows))
    else:
        named = [dict(zip(_NAMES, row, strict=True)) for row in rows]
        connection.execute(insert(schema.live_file), [{**row, "content": FileContent(row["content"])} for row in named])


def remove_manifests(connection: Connection, identifier: str, paths: Sequence[str]) -> defaultdict[int, int]:
    """Drop the files of these manifests. Returns the (negative) change of each partition's sum, by partition id."""
    sums: defaultdict[int, int] = defaultdict(int)
    of_before: set[int] = set()
    file = schema.live_file.c
    manifest_ids = [manifest_id for manifest_id, _ in stored_manifests(connection, identifier, paths)]
    for batch in batches(manifest_ids):
        for partition_id, entry_hash in connection.execute(select(file.partition_id, file.entry_hash).where(file.manifest_id.in_(batch))):
            if entry_hash is None:
                of_before.add(partition_id)
            else:
                sums[partition_id] -= entry_hash
        connection.execute(delete(schema.live_file).where(file.manifest_id.in_(batch)))
        connection.execute(delete(schema.manifest).where(schema.manifest.c.manifest_id.in_(batch)))
    # A file without a hash is in no sum. Its removal leaves the sum as it is, so the partition is marked instead.
    for numbers in batches(sorted(of_before)):
        connection.execute(update(schema.partition).where(schema.partition.c.partition_id.in_(numbers)).values(touched=True))
    return sums


def add_sums(connection: Connection, sums: Mapping[int, int]) -> None:
    """Add these changes to the stored sums of the partitions. The caller holds the table's lock."""
    columns = schema.partition.c
    for numbers in batches([number for number, change in sums.items() if change]):
        stored = connection.execute(select(columns.partition_id, columns.files_sum).where(columns.partition_id.in_(numbers)))
        changed = [{"number": row.partition_id, "files_sum": (row.files_sum + sums[row.partition_id]) % _MODULUS} for row in stored]
        connection.execute(update(schema.partition).where(columns.partition_id == bindparam("number")), changed)


def stored_manifests(connection: Connection, identifier: str, paths: Sequence[str] | None = None) -> Iterator[tuple[int, str]]:
    """(id, path) of all manifests of a table, or of those at these paths."""
    query = select(schema.manifest.c.manifest_id, schema.manifest.c.path).where(schema.manifest.c.identifier == identifier)
    queries = [query] if paths is None else [query.where(schema.manifest.c.path.in_(batch)) for batch in batches(paths)]
    for each in queries:
        for row in connection.execute(each):
            yield row.manifest_id, row.path


def stored_partitions(connection: Connection, identifier: str, nodes: Sequence[TableNode]) -> dict[TableNode, int]:
    """The partition id of each of these nodes. Inserts the partitions that are new."""
    by_digest = {node_digest(node): node for node in nodes}
    known = ids_of_partitions(connection, identifier, list(by_digest))
    rows = [
        {"identifier": identifier, "digest": digest, "value": node.partition, "spec_id": node.spec_id, "touched": False}
        for digest, node in by_digest.items()
        if digest not in known
    ]
    for batch in batches(rows):
        connection.execute(insert(schema.partition), list(batch))
    known.update(ids_of_partitions(connection, identifier, [str(row["digest"]) for row in rows]))
    return {node: known[digest] for digest, node in by_digest.items()}


def ids_of_partitions(connection: Connection, identifier: str, digests: Sequence[str]) -> dict[str, int]:
    """The ids of the partitions that are stored under these digests, by digest."""
    query = select(schema.partition.c.digest, schema.partition.c.partition_id).where(schema.partition.c.identifier == identifier)
    return {
        row.digest: row.partition_id
        for batch in batches(digests)
        for row in connection.execute(query.where(schema.partition.c.digest.in_(batch)))
    }


def node_digest(node: TableNode) -> str:
    """The identity of a node as a hash. It covers what `PartitionValue` compares, name and text, so a type promotion keeps it."""
    return hashlib.sha256(
        repr((node.spec_id, [(value.name, value.value) for value in node.partition])).encode(errors="surrogatepass")
    ).hexdigest()


def row_chunks(rows: Iterator[RowValues]) -> Iterator[list[RowValues]]:
    """The rows in lists of at most ROWS_AT_A_TIME."""
    while chunk := list(islice(rows, ROWS_AT_A_TIME)):
        yield chunk
