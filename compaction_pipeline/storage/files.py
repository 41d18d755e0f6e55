"""FileStore: the live files of every table, by the manifest that lists them.

Written and read in bulk: a table of 10⁶ files is stored in seconds and read into less than a GiB, as partitions, manifest
paths and sequence numbers are one object each, however many files share them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

from pydantic import TypeAdapter
from sqlalchemy import Connection, Engine, Row, delete, insert, select

from compaction_pipeline.core.model.data_file import LiveFile
from compaction_pipeline.core.model.node import Partition
from compaction_pipeline.core.model.table import TableIdentifier
from compaction_pipeline.storage import schema
from compaction_pipeline.storage.engine import batches, lock, reading, writing
from compaction_pipeline.storage.removal import remove_files

_PARTITION: TypeAdapter[Partition] = TypeAdapter(Partition)
_ROWS_AT_A_TIME = 10_000


class SqlFileStore:
    """Live files in the state database."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def manifests(self, table: TableIdentifier) -> frozenset[str]:
        query = select(schema.manifest.c.path).where(schema.manifest.c.identifier == str(table))
        with reading(self._engine) as connection:
            return frozenset(connection.execute(query).scalars())

    def apply(self, table: TableIdentifier, removed: Iterable[str], added: Mapping[str, Sequence[LiveFile]]) -> None:
        identifier = str(table)
        with writing(self._engine) as connection:
            lock(connection, f"files {identifier}")
            # What is added again replaces what was there, so that a repeated call changes nothing.
            _remove(connection, identifier, list(dict.fromkeys([*removed, *added])))
            paths = list(added)
            for batch in batches(paths):
                connection.execute(insert(schema.manifest), [{"identifier": identifier, "path": path} for path in batch])
            manifest_ids = {path: manifest_id for manifest_id, path in _manifests(connection, identifier, paths)}
            partition_ids = _stored_partitions(connection, identifier, {file.partition for files in added.values() for file in files})
            rows = (
                _row(manifest_ids[path], ordinal, partition_ids[file.partition], file)
                for path, files in added.items()
                for ordinal, file in enumerate(files)
            )
            for chunk in _chunks(rows):
                connection.execute(insert(schema.live_file), chunk)

    def files(self, table: TableIdentifier) -> Sequence[LiveFile]:
        identifier = str(table)
        query = (
            select(schema.live_file)
            .join(schema.manifest, schema.manifest.c.manifest_id == schema.live_file.c.manifest_id)
            .where(schema.manifest.c.identifier == identifier)
            .order_by(schema.live_file.c.manifest_id, schema.live_file.c.ordinal)
        )
        with reading(self._engine) as connection:
            reader = _Reader(connection, identifier)
            result = connection.execution_options(stream_results=True, yield_per=_ROWS_AT_A_TIME).execute(query)
            return tuple(reader.file(row) for row in result)

    def clear(self, table: TableIdentifier) -> None:
        with writing(self._engine) as connection:
            lock(connection, f"files {table}")
            remove_files(connection, str(table))


class _Reader:
    """Makes LiveFiles of rows, sharing what many of them have in common."""

    def __init__(self, connection: Connection, identifier: str) -> None:
        self._manifests = dict(_manifests(connection, identifier))
        query = select(schema.partition.c.partition_id, schema.partition.c.value).where(schema.partition.c.identifier == identifier)
        self._partitions: dict[int, Partition] = {row.partition_id: row.value for row in connection.execute(query)}
        self._numbers: dict[int, int] = {}
        self._equality_ids: dict[str | None, tuple[int, ...]] = {None: ()}

    def file(self, row: Row[Any]) -> LiveFile:
        # By position: a million look-ups by name cost seconds. The order is the schema's.
        (
            manifest_id,
            _ordinal,
            partition_id,
            path,
            content,
            spec_id,
            file_size_bytes,
            record_count,
            data_sequence_number,
            added_snapshot_id,
            equality_ids,
            referenced_data_file,
            path_lower,
            path_upper,
            sort_order_id,
        ) = row
        if equality_ids not in self._equality_ids:
            self._equality_ids[equality_ids] = tuple(int(field_id) for field_id in equality_ids.split(","))
        return LiveFile(
            path,
            content,
            spec_id,
            self._partitions[partition_id],
            file_size_bytes,
            record_count,
            self._numbers.setdefault(data_sequence_number, data_sequence_number),
            self._manifests[manifest_id],
            self._numbers.setdefault(added_snapshot_id, added_snapshot_id),
            self._equality_ids[equality_ids],
            referenced_data_file,
            path_lower,
            path_upper,
            sort_order_id,
        )


def _row(manifest_id: int, ordinal: int, partition_id: int, file: LiveFile) -> dict[str, object]:
    return {
        "manifest_id": manifest_id,
        "ordinal": ordinal,
        "partition_id": partition_id,
        "path": file.path,
        "content": file.content,
        "spec_id": file.spec_id,
        "file_size_bytes": file.file_size_bytes,
        "record_count": file.record_count,
        "data_sequence_number": file.data_sequence_number,
        "added_snapshot_id": file.added_snapshot_id,
        "equality_ids": ",".join(map(str, file.equality_ids)) or None,
        "referenced_data_file": file.referenced_data_file,
        "path_lower": file.path_lower,
        "path_upper": file.path_upper,
        "sort_order_id": file.sort_order_id,
    }


def _remove(connection: Connection, identifier: str, paths: Sequence[str]) -> None:
    manifest_ids = [manifest_id for manifest_id, _ in _manifests(connection, identifier, paths)]
    for batch in batches(manifest_ids):
        connection.execute(delete(schema.live_file).where(schema.live_file.c.manifest_id.in_(batch)))
        connection.execute(delete(schema.manifest).where(schema.manifest.c.manifest_id.in_(batch)))


def _manifests(connection: Connection, identifier: str, paths: Sequence[str] | None = None) -> Iterator[tuple[int, str]]:
    """(id, path) of all manifests of a table, or of these."""
    query = select(schema.manifest.c.manifest_id, schema.manifest.c.path).where(schema.manifest.c.identifier == identifier)
    queries = [query] if paths is None else [query.where(schema.manifest.c.path.in_(batch)) for batch in batches(paths)]
    for each in queries:
        for row in connection.execute(each):
            yield row.manifest_id, row.path


def _stored_partitions(connection: Connection, identifier: str, partitions: set[Partition]) -> dict[Partition, int]:
    """Ids of these partitions, those that are new inserted."""
    by_digest = {_digest(partition): partition for partition in partitions}
    known = _partition_ids(connection, identifier, list(by_digest))
    rows = [
        {"identifier": identifier, "digest": digest, "value": partition} for digest, partition in by_digest.items() if digest not in known
    ]
    for batch in batches(rows):
        connection.execute(insert(schema.partition), list(batch))
    known.update(_partition_ids(connection, identifier, [str(row["digest"]) for row in rows]))
    return {partition: known[digest] for digest, partition in by_digest.items()}


def _partition_ids(connection: Connection, identifier: str, digests: Sequence[str]) -> dict[str, int]:
    query = select(schema.partition.c.digest, schema.partition.c.partition_id).where(schema.partition.c.identifier == identifier)
    return {
        row.digest: row.partition_id
        for batch in batches(digests)
        for row in connection.execute(query.where(schema.partition.c.digest.in_(batch)))
    }


def _digest(partition: Partition) -> str:
    return hashlib.sha256(_PARTITION.dump_json(partition)).hexdigest()


def _chunks(rows: Iterator[dict[str, object]]) -> Iterator[list[dict[str, object]]]:
    while chunk := list(islice(rows, _ROWS_AT_A_TIME)):
        yield chunk
