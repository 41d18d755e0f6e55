"""The FileStore: the live files of every table, by the manifest that lists them.

Files are written and read in bulk. A table of 10⁶ files is stored in seconds and read into less than a GiB, because files
share the objects of their partitions, manifest paths and sequence numbers.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from sqlalchemy import (
    Connection,
    Select,
    String,
    and_,
    bindparam,
    case,
    func,
    insert,
    or_,
    select,
    text,
    type_coerce,
    update,
)

from compaction_pipeline.core.tables.data_file import FileContent, LiveFile
from compaction_pipeline.core.tables.figures import NodeFigures, NodeMetrics
from compaction_pipeline.core.tables.node import Partition, TableNode
from compaction_pipeline.core.tables.ports.files import SortBounds, TouchedNode
from compaction_pipeline.core.tables.table import TableIdentifier
from compaction_pipeline.storage import schema
from compaction_pipeline.storage.columns import StoredRow
from compaction_pipeline.storage.engine import batches, lock, reading, writing
from compaction_pipeline.storage.file_rows import (
    ENTRY_HASH,
    PARTITION,
    ROWS_AT_A_TIME,
    RowValues,
    add_sums,
    file_row,
    ids_of_partitions,
    insert_files,
    known_partition_id,
    node_digest,
    path_hash,
    remove_manifests,
    row_chunks,
    stored_manifests,
    stored_partitions,
)
from compaction_pipeline.storage.orphans import note_roots
from compaction_pipeline.storage.sql_store import SqlStore

_CONTENTS = {content.value: content for content in FileContent}
# Only queries need the hashes and the bounds, so they are not read. The content is read as plain text, because decoding it in each row of a
# large table costs a second.
_COLUMNS = [
    type_coerce(column, String).label(column.name) if column.name == "content" else column
    for column in schema.live_file.columns
    if not column.name.endswith(("_hash", "sort_bounds"))
]
_CONTENT = [column.name for column in _COLUMNS].index("content")


class SqlFileStore(SqlStore):
    """Live files in the state database."""

    def manifests(self, table: TableIdentifier) -> frozenset[str]:
        query = select(schema.manifest.c.path).where(schema.manifest.c.identifier == str(table))
        return frozenset(self._values(query))

    def apply(self, table: TableIdentifier, removed: Iterable[str], added: Mapping[str, Sequence[LiveFile]]) -> None:
        identifier = str(table)
        with writing(self._engine) as connection:
            lock(connection, f"files {identifier}")
            # A manifest that is added again replaces its old rows, so a repeated call changes nothing.
            sums = remove_manifests(connection, identifier, list(dict.fromkeys([*removed, *added])))
            paths = list(added)
            for batch in batches(paths):
                connection.execute(insert(schema.manifest), [{"identifier": identifier, "path": path} for path in batch])
            manifest_ids = {path: manifest_id for manifest_id, path in stored_manifests(connection, identifier, paths)}
            nodes = {node: None for files in added.values() for node in _nodes_of(files)}
            partition_ids = stored_partitions(connection, identifier, list(nodes))
            met: dict[tuple[int, int], int] = {}
            rows: Iterator[RowValues] = (
                file_row(manifest_ids[path], ordinal, known_partition_id(met, partition_ids, file), file)
                for path, files in added.items()
                for ordinal, file in enumerate(files)
            )
            for chunk in row_chunks(rows):
                insert_files(connection, chunk)
                for row in chunk:
                    sums[row[PARTITION]] += row[ENTRY_HASH]
            add_sums(connection, sums)
            note_roots(connection, identifier, (file.path for files in added.values() for file in files))

    def files(self, table: TableIdentifier, nodes: Collection[TableNode] | None = None) -> Sequence[LiveFile]:
        identifier = str(table)
        with reading(self._engine) as connection:
            if nodes is not None:
                return tuple(_files_of_nodes(connection, identifier, nodes))
            query = (
                select(*_COLUMNS)
                .join(schema.manifest, schema.manifest.c.manifest_id == schema.live_file.c.manifest_id)
                .where(schema.manifest.c.identifier == identifier)
                .order_by(schema.live_file.c.manifest_id, schema.live_file.c.ordinal)
            )
            partitions = {row.partition_id: row.value for row in connection.execute(_partitions(identifier))}
            reader = _Reader(connection, identifier, partitions)
            result = connection.execution_options(stream_results=True, yield_per=ROWS_AT_A_TIME).execute(query)
            return tuple(reader.file(row) for row in result)

    def figures(
        self, table: TableIdentifier, small_bytes: int, undersized_bytes: int, nodes: Collection[TableNode] | None = None
    ) -> Mapping[TableNode, NodeFigures]:
        file, identifier = schema.live_file.c, str(table)
        small = file.file_size_bytes <= small_bytes
        sums = (
            select(
                file.partition_id,
                _COLUMNS[_CONTENT],
                func.count().label("files"),
                func.sum(file.file_size_bytes).label("size"),
                func.sum(case((small, 1), else_=0)).label("small_files"),
                func.sum(case((small, file.file_size_bytes), else_=0)).label("small_size"),
                func.sum(case((and_(~small, file.file_size_bytes <= undersized_bytes), 1), else_=0)).label("undersized"),
                func.sum(file.record_count).label("rows"),
                func.max(file.data_sequence_number).label("sequence"),
            )
            .select_from(schema.live_file)
            .group_by(file.partition_id, file.content)
        )
        with reading(self._engine) as connection:
            if nodes is None:
                # Files are stored by manifest, so this reads them in their stored order.
                manifests = select(schema.manifest.c.manifest_id).where(schema.manifest.c.identifier == identifier)
                known = _all_nodes(connection, identifier)
                rows = list(connection.execute(sums.where(file.manifest_id.in_(manifests))))
            else:
                known = _by_id(connection, identifier, nodes)
                rows = [row for batch in batches(sorted(known)) for row in connection.execute(sums.where(file.partition_id.in_(batch)))]
        by_node: dict[TableNode, dict[str, StoredRow]] = {}
        for row in rows:
            by_node.setdefault(known[row.partition_id], {})[row.content] = row
        return {node: _figures(contents) for node, contents in by_node.items()}

    def named_from_elsewhere(self, table: TableIdentifier, nodes: Collection[TableNode] | None = None) -> Collection[TableNode]:
        identifier, own, other = str(table), schema.live_file.c, schema.live_file.alias("other")
        query = (
            select(own.partition_id)
            .distinct()
            .select_from(schema.live_file.join(other, other.c.referenced_hash == own.path_hash))
            .where(other.c.referenced_hash.is_not(None), other.c.partition_id != own.partition_id)
            .where(other.c.referenced_data_file == own.path, own.content == FileContent.DATA)
        )
        with reading(self._engine) as connection:
            if nodes is None:
                known = _all_nodes(connection, identifier)
                if not _references(connection):
                    return frozenset()
                return frozenset(known[number] for number in connection.execute(query).scalars() if number in known)
            known = _by_id(connection, identifier, nodes)
            found = [
                number
                for batch in batches(sorted(known))
                for number in connection.execute(query.where(own.partition_id.in_(batch))).scalars()
            ]
        return frozenset(known[number] for number in found)

    def sort_bounds(self, table: TableIdentifier, nodes: Collection[TableNode]) -> Mapping[TableNode, Sequence[SortBounds]]:
        file, found = schema.live_file.c, dict[TableNode, list[SortBounds]]()
        query = select(file.partition_id, file.sort_bounds).where(file.content == FileContent.DATA)
        with reading(self._engine) as connection:
            known = _by_id(connection, str(table), nodes)
            for batch in batches(sorted(known)):
                for row in connection.execute(query.where(file.partition_id.in_(batch))):
                    found.setdefault(known[row.partition_id], []).append(_bounds(row.sort_bounds))
        return found

    def named_by_others(self, table: TableIdentifier, paths: Sequence[str]) -> Collection[str]:
        query = (
            select(schema.live_file.c.path)
            .join(schema.partition, schema.partition.c.partition_id == schema.live_file.c.partition_id)
            .where(
                schema.partition.c.identifier != str(table),
                # The numbers stand in the statement. To bind a million of them would take five times as long as to find them.
                schema.live_file.c.path_hash.in_(bindparam("hashes", expanding=True, literal_execute=True)),
            )
        )
        asked, found = set(paths), set[str]()
        with reading(self._engine) as connection:
            for batch in batches(paths):
                rows = connection.execute(query, {"hashes": [path_hash(path) for path in batch]})
                found |= asked.intersection(rows.scalars())
        return found

    def has_global_deletes(self, table: TableIdentifier, unpartitioned_spec_ids: Collection[int]) -> bool:
        query = (
            select(schema.live_file.c.partition_id)
            .where(
                # This is the text of the partial index. With a bound value, the database would not use that index.
                text("compaction_file.content = 'EQUALITY_DELETES'"),
                schema.live_file.c.partition_id.in_(
                    select(schema.partition.c.partition_id).where(
                        schema.partition.c.identifier == str(table), schema.partition.c.spec_id.in_(list(unpartitioned_spec_ids))
                    )
                ),
            )
            .limit(1)
        )
        return self._first(query) is not None

    def touched(self, table: TableIdentifier) -> Mapping[TableNode, TouchedNode]:
        count = (
            select(func.count())
            .select_from(schema.live_file)
            .where(schema.live_file.c.partition_id == schema.partition.c.partition_id)
            .scalar_subquery()
        )
        changed = schema.partition.c.files_sum != schema.partition.c.measured_sum
        query = (
            _partitions(str(table))
            .add_columns(count.label("files"), changed.label("changed"))
            .where(or_(schema.partition.c.touched.is_(True), changed))
        )
        with reading(self._engine) as connection:
            return {
                TableNode(row.spec_id, row.value): TouchedNode(row.files, changed=bool(row.changed)) for row in connection.execute(query)
            }

    def touch(self, table: TableIdentifier) -> None:
        self._write(update(schema.partition).where(schema.partition.c.identifier == str(table)).values(touched=True))

    def mark_measured(self, table: TableIdentifier, nodes: Collection[TableNode]) -> None:
        with writing(self._engine) as connection:
            for batch in batches(list(ids_of_partitions(connection, str(table), [node_digest(node) for node in nodes]).values())):
                measured = {"touched": False, "measured_sum": schema.partition.c.files_sum}
                connection.execute(update(schema.partition).where(schema.partition.c.partition_id.in_(batch)).values(measured))


class _Reader:
    """Makes LiveFiles from rows. Files share the objects that are equal in many of them."""

    def __init__(self, connection: Connection, identifier: str, partitions: Mapping[int, Partition]) -> None:
        self._manifests = dict(stored_manifests(connection, identifier))
        self._partitions = partitions
        self._numbers: dict[int, int] = {}
        self._equality_ids: dict[str | None, tuple[int, ...]] = {None: ()}

    def file(self, row: StoredRow) -> LiveFile:
        # The row is read by position, in the order of `_COLUMNS`, because a million look-ups by name cost seconds.
        manifest_id, _, partition_id, path, content, spec_id, size_bytes, records, sequence, snapshot_id, equality_ids, *rest = row
        if equality_ids not in self._equality_ids:
            self._equality_ids[equality_ids] = tuple(int(field_id) for field_id in equality_ids.split(","))
        return LiveFile(
            path,
            _CONTENTS[content],
            spec_id,
            self._partitions[partition_id],
            size_bytes,
            records,
            self._numbers.setdefault(sequence, sequence),
            self._manifests[manifest_id],
            self._numbers.setdefault(snapshot_id, snapshot_id),
            self._equality_ids[equality_ids],
            *rest,
        )


def _files_of_nodes(connection: Connection, identifier: str, nodes: Collection[TableNode]) -> Iterator[LiveFile]:
    """The files of these nodes, and the files of other nodes that matter to them (see `FileStore.files`)."""
    partitions = {number: node.partition for number, node in _by_id(connection, identifier, nodes).items()}
    reader = _Reader(connection, identifier, partitions)
    own = schema.live_file
    named: set[str] = set()
    elsewhere: dict[tuple[int, int], StoredRow] = {}
    for batch in batches(sorted(partitions)):
        query = select(*_COLUMNS).where(own.c.partition_id.in_(batch)).order_by(own.c.partition_id, own.c.manifest_id, own.c.ordinal)
        for row in connection.execute(query.execution_options(yield_per=ROWS_AT_A_TIME)):
            file = reader.file(row)
            if file.referenced_data_file is not None:
                named.add(file.referenced_data_file)
            yield file
        for crossing in _crossing(identifier, batch):
            elsewhere.update(
                ((row.manifest_id, row.ordinal), row) for row in connection.execute(crossing) if row.partition_id not in partitions
            )
    for row in _live_at(connection, identifier, named):
        if row.partition_id not in partitions:
            elsewhere[row.manifest_id, row.ordinal] = row
    for batch in batches(sorted({row.partition_id for row in elsewhere.values()})):
        query = _partitions(identifier).where(schema.partition.c.partition_id.in_(batch))
        partitions.update((row.partition_id, row.value) for row in connection.execute(query))
    for _, row in sorted(elsewhere.items()):
        yield reader.file(row)


def _crossing(identifier: str, partition_ids: Sequence[int]) -> Iterator[Select[Any]]:
    """Queries for files of other nodes: files at the same paths, and position deletes that name a data file of these partitions."""
    own, other, owner = schema.live_file, schema.live_file.alias("other"), schema.partition
    columns: list[Any] = [other.c[column.name] for column in _COLUMNS]
    columns[_CONTENT] = type_coerce(columns[_CONTENT], String).label("content")
    # This is a scalar subquery, because with a join SQLite would begin with all nodes of the table.
    table = select(owner.c.identifier).where(owner.c.partition_id == other.c.partition_id).scalar_subquery()
    for crosses, found in ((other.c.path_hash, other.c.path), (other.c.referenced_hash, other.c.referenced_data_file)):
        yield (
            select(*columns)
            .select_from(own.join(other, crosses == own.c.path_hash))
            .where(own.c.partition_id.in_(partition_ids), other.c.partition_id != own.c.partition_id)
            .where(found == own.c.path, table == identifier)
        )


def _live_at(connection: Connection, identifier: str, paths: Collection[str]) -> Iterator[StoredRow]:
    """The data files of a table at these paths."""
    query = (
        select(*_COLUMNS)
        .join(schema.partition, schema.partition.c.partition_id == schema.live_file.c.partition_id)
        .where(schema.partition.c.identifier == identifier, schema.live_file.c.content == FileContent.DATA)
    )
    for batch in batches(sorted(paths)):
        for row in connection.execute(query.where(schema.live_file.c.path_hash.in_([path_hash(path) for path in batch]))):
            if row.path in paths:
                yield row


def _figures(contents: Mapping[str, StoredRow]) -> NodeFigures:
    """The figures of one node, from its row of sums for each content."""
    data = contents.get(FileContent.DATA.value)
    deletes = [row for content, row in contents.items() if content != FileContent.DATA.value]

    def files(content: FileContent) -> int:
        row = contents.get(content.value)
        return 0 if row is None else int(row.files)

    # PostgreSQL returns sums as decimals.
    return NodeFigures(
        NodeMetrics(
            data_files=files(FileContent.DATA),
            small_data_files=0 if data is None else int(data.small_files),
            small_data_bytes=0 if data is None else int(data.small_size),
            data_bytes=0 if data is None else int(data.size),
            position_delete_files=files(FileContent.POSITION_DELETES),
            equality_delete_files=files(FileContent.EQUALITY_DELETES),
            small_delete_files=sum(int(row.small_files) for row in deletes),
            small_delete_bytes=sum(int(row.small_size) for row in deletes),
            delete_bytes=sum(int(row.size) for row in deletes),
            rows=0 if data is None else int(data.rows),
        ),
        undersized_files=0 if data is None else int(data.undersized),
        max_sequence_number=max(int(row.sequence) for row in contents.values()),
    )


def _bounds(stored: str | None) -> SortBounds:
    return None if stored is None else {int(column): bounds and tuple(bounds) for column, bounds in json.loads(stored).items()}


def _references(connection: Connection) -> bool:
    """True when the index holds, for any table, a position delete that names its data file."""
    query = select(schema.live_file.c.partition_id).where(schema.live_file.c.referenced_hash.is_not(None)).limit(1)
    return connection.execute(query).first() is not None


def _all_nodes(connection: Connection, identifier: str) -> dict[int, TableNode]:
    return {row.partition_id: TableNode(row.spec_id, row.value) for row in connection.execute(_partitions(identifier))}


def _by_id(connection: Connection, identifier: str, nodes: Collection[TableNode]) -> dict[int, TableNode]:
    """Those of these nodes that are stored, by the id of their partition."""
    by_digest = {node_digest(node): node for node in nodes}
    return {number: by_digest[digest] for digest, number in ids_of_partitions(connection, identifier, list(by_digest)).items()}


def _partitions(identifier: str) -> Select[Any]:
    columns = schema.partition.c
    return select(columns.partition_id, columns.spec_id, columns.value).where(columns.identifier == identifier)


def _nodes_of(files: Sequence[LiveFile]) -> Iterable[TableNode]:
    # Hashing the values of a partition costs more than all the rest. Files of one partition mostly share one tuple, so each
    # tuple is hashed once.
    return (file.node for file in {(file.spec_id, id(file.partition)): file for file in files}.values())
