"""Takes files with old rows only out of a table, in one snapshot: a strategy of `iceberg/upkeep/commits.py`.

Of a keyed table whole partitions go, and one commit to the base store takes them out of both stores: it removes the base files, and moves
the optimized sequence behind the partition's changes, as an insert-overwrite without rows does. So no reader sees half of it, and a merge
that read the changes before conflicts. The change files leave storage as those do whose rows were merged.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.table.snapshots import Operation, Snapshot

from compaction_pipeline.core.commit.dangling_deletes import dangling_deletes
from compaction_pipeline.core.commit.head import Bucket, DataIndex, HeadFiles, bucket_of
from compaction_pipeline.core.commit.record import RECORD_ID_PROPERTY
from compaction_pipeline.core.errors import ConfigError
from compaction_pipeline.core.tables.columns import Column, primitive_columns
from compaction_pipeline.core.tables.data_file import LiveFile
from compaction_pipeline.core.tables.expiry_properties import BY_CLOCK, BY_FILE, FIELD_KEY
from compaction_pipeline.core.tables.keyed.file_names import is_delete_file
from compaction_pipeline.core.tables.keyed.optimized_sequence import OptimizedSequences
from compaction_pipeline.core.tables.keyed.partition_paths import PartitionKey, key_of, looks_like_null
from compaction_pipeline.core.tables.keyed.transactions import transaction_timeout
from compaction_pipeline.core.tables.kinds import is_keyed
from compaction_pipeline.core.tables.node import Partition
from compaction_pipeline.core.tables.table import TableIdentifier
from compaction_pipeline.core.upkeep.commit_record import Figures, UpkeepPlan, UpkeepTarget
from compaction_pipeline.core.upkeep.old_rows import DatedFile, OldRowsPlan, RowRules, Transforms, decide_old_rows, resolve_row_rules
from compaction_pipeline.core.upkeep.old_values import KINDS, OldValues, old_values
from compaction_pipeline.core.words import time_text
from compaction_pipeline.formats.avro.entry_decoder import DecodedEntry
from compaction_pipeline.iceberg.catalogs.open_catalogs import Catalogs
from compaction_pipeline.iceberg.head_reader import HeadReader, head_layout
from compaction_pipeline.iceberg.keyed.change_plan import refuse_unsure
from compaction_pipeline.iceberg.keyed.statistics import STATISTICS_FLAGS, attach_statistics
from compaction_pipeline.iceberg.keyed.stores import KeyedStores, load_known_stores
from compaction_pipeline.iceberg.keyed.transactions import read_open_transactions
from compaction_pipeline.iceberg.manifests.live_files import read_live_entries
from compaction_pipeline.iceberg.plain_tables import refusal_of_part
from compaction_pipeline.iceberg.rewrite_files import SnapshotChange, Transaction
from compaction_pipeline.iceberg.scan import manifests_of, refusal_of_contents
from compaction_pipeline.iceberg.stores import PlainStores
from compaction_pipeline.iceberg.upkeep.history import history_of
from compaction_pipeline.iceberg.upkeep.remove_snapshots import unchanged

_PRODUCER = {"snapshot.producer": "DATA_EXPIRATION"}
"""Amoro counts the age of rows from the newest snapshot that has no such mark."""
_MOST_NAMED = 100
"""So many partitions are named in words."""
_AGAIN = timedelta(days=1)
"""Where age counts from now, rows become old without a commit. A table is looked at again after this time, or after its retention time."""


@dataclass(frozen=True)
class PlannedRows:
    """What goes. `moved` are the partitions of a keyed table whose changes go, with the sequence numbers up to which they do."""

    rows: OldRowsPlan
    moved: Mapping[Partition, int] = field(default_factory=dict)
    next_look: datetime | None = None

    @property
    def said(self) -> UpkeepPlan:
        """The same in words and figures."""
        named, more = self.rows.places[:_MOST_NAMED], len(self.rows.places) - _MOST_NAMED
        text = "; ".join([self.rows.reason, *map(str, named), *([f"and {more} more partitions"] if more > 0 else [])])
        return UpkeepPlan(self.rows.is_due, text, self.rows.figures, self.next_look)


class DropOldRows:
    """The strategy of the work OLD_ROWS, in a plain table or a base store. `catalog` are the properties of its catalog.

    The age of rows may count from the time of `clock`.
    """

    def __init__(self, catalogs: Catalogs, target: UpkeepTarget, catalog: Mapping[str, str], clock: Callable[[], datetime]) -> None:
        self._catalogs = catalogs
        self._table = target.table
        self._catalog = catalog
        self._clock = clock

    def refusal(self, loaded: Table) -> str | None:
        """Why no row of the table may go; None when some may. Raises ConfigError."""
        return (
            refusal_of_contents(loaded.metadata)
            or self._rules(loaded).missing
            or self._way(loaded).refusal(self._catalogs, self._table, loaded)
        )

    def plan(self, loaded: Table, reader: HeadReader) -> PlannedRows:
        """Decide what goes from the head of the table. Raises TableRefused and ConfigError."""
        metadata, rules = loaded.metadata, self._rules(loaded)
        column = _column(metadata, rules)
        way = self._way(loaded)
        opened: Any = way.opened(self._catalogs, self._table, loaded)
        now = self._clock()
        cutoff = rules.cutoff([history_of(store.metadata) for store in opened.tables], now)
        if cutoff is None:
            return PlannedRows(OldRowsPlan(None, reason="no snapshot is left that a writer made, so nothing tells from when age counts"))
        dated = _Dated(column)
        judge = _Judge(old_values(column, cutoff, rules.string_pattern, rules.number_format), _transforms(metadata, column), cutoff)
        planned = way.planned(opened, dated, judge, now, by_file=rules.level == BY_FILE)
        again = now + min(_AGAIN, rules.retention or _AGAIN) if rules.base_on == BY_CLOCK else None
        return replace(planned, next_look=min((at for at in (planned.next_look, again) if at is not None), default=None))

    def stage(self, loaded: Table, plan: PlannedRows, transaction: Transaction) -> tuple[Figures, str]:
        """Write the manifests of the snapshot without the old files."""
        about = {RECORD_ID_PROPERTY: transaction.name, **_PRODUCER}
        # The properties say which rows are old, and the schema which column has the times. Neither moves the head.
        transaction.require(unchanged(loaded))
        self._way(loaded).stage(loaded, plan, transaction, about)
        return plan.rows.figures, plan.rows.reason

    def _way(self, loaded: Table) -> type[_PlainRows] | type[_KeyedRows]:
        """How rows leave this kind of table."""
        return _KeyedRows if is_keyed(loaded.metadata.properties) else _PlainRows

    def _rules(self, loaded: Table) -> RowRules:
        return resolve_row_rules(loaded.metadata.properties, self._catalog, self._table)


class _PlainRows:
    """How rows leave a plain table: files leave its head."""

    @staticmethod
    def refusal(catalogs: Catalogs, table: TableIdentifier, loaded: Table) -> str | None:
        return refusal_of_part(catalogs, table, loaded)

    @staticmethod
    def opened(catalogs: Catalogs, table: TableIdentifier, loaded: Table) -> PlainStores:
        return PlainStores(loaded, catalogs)

    @staticmethod
    def planned(stores: PlainStores, dated: _Dated, judge: _Judge, now: datetime, *, by_file: bool) -> PlannedRows:
        metadata = stores.table.metadata
        files = list(dated.read(stores.table, metadata.snapshot_by_name(MAIN_BRANCH)))
        return PlannedRows(_with_deletes(judge.decide(dated.of(files), by_file=by_file), metadata, files))

    @staticmethod
    def stage(loaded: Table, plan: PlannedRows, transaction: Transaction, about: Mapping[str, str]) -> None:
        transaction.stage(SnapshotChange(Operation.DELETE, removed=plan.rows.removed, properties=about))


class _KeyedRows:
    """How rows leave a keyed table: base files leave, and the partition's changes count as merged from then on."""

    @staticmethod
    def refusal(catalogs: Catalogs, table: TableIdentifier, loaded: Table) -> str | None:
        return None

    @staticmethod
    def opened(catalogs: Catalogs, table: TableIdentifier, loaded: Table) -> KeyedStores:
        # The base store was loaded first here. Nothing is lost by that: the commit lands only while its head is still the same, so no
        # change has been merged, or has left the change store unmerged, in between.
        return replace(load_known_stores(catalogs, table), base=loaded)

    @staticmethod
    def planned(stores: KeyedStores, dated: _Dated, judge: _Judge, now: datetime, *, by_file: bool) -> PlannedRows:
        # Whole partitions only, whatever the level.
        return _planned_keyed(stores, dated, judge, now)

    @staticmethod
    def stage(loaded: Table, plan: PlannedRows, transaction: Transaction, about: Mapping[str, str]) -> None:
        # Without any base file the snapshot only moves the optimized sequences, so it is no `delete`.
        transaction.stage(SnapshotChange(Operation.OVERWRITE, removed=plan.rows.removed, properties={**about, **STATISTICS_FLAGS}))
        with transaction.dropped_on_failure():
            attach_statistics(".".join(loaded.name()), loaded, transaction, transaction.name, plan.moved)


def _column(metadata: TableMetadata, rules: RowRules) -> Column:
    """The column with the times. Raises ConfigError when the table has none of this name, or its values are no times."""
    schema, name = metadata.schema(), rules.field or ""
    try:
        number = schema.find_field(name).field_id
    except ValueError:
        raise ConfigError(f"'{FIELD_KEY}' is {name!r}, but the table has no column of this name: set it to the name of one") from None
    column = primitive_columns(schema.model_dump_json()).get(number)
    if column is None or column.repeated or column.type not in KINDS:
        kind = (
            "a struct, a list or a map, or part of a list or a map" if column is None or column.repeated else f"of the type {column.type}"
        )
        raise ConfigError(f"'{FIELD_KEY}' is {name!r}, which is {kind}, but its type must be one of {', '.join(KINDS)}")
    return column


def _transforms(metadata: TableMetadata, column: Column) -> Transforms:
    return {
        number: {field.name: str(field.transform) for field in spec.fields if field.source_id == column.field_id}
        for number, spec in metadata.specs().items()
    }


class _Dated:
    """Reads the live files of stores, and notes what their entries say of the column with the times. Two entries may have one path."""

    def __init__(self, column: Column) -> None:
        self._column = column
        self._found: dict[int, DatedFile] = {}

    def read(self, store: Table, snapshot: Snapshot | None) -> Iterator[LiveFile]:
        """The live files of a snapshot; none without a snapshot. Raises as `read_live_files` does."""
        for manifest in manifests_of(snapshot, store.io) if snapshot is not None else ():
            for dated in read_live_entries(store.io, store.metadata, manifest, self._noted, with_bounds=True):
                self._found[id(dated.file)] = dated
                yield dated.file

    def of(self, files: Iterable[LiveFile]) -> list[DatedFile]:
        """What was noted of those of these files that hold data."""
        return [self._found[id(file)] for file in files if file.is_data]

    def _noted(self, file: LiveFile, entry: DecodedEntry) -> DatedFile:
        number = self._column.field_id
        return DatedFile(
            file,
            (entry.value_counts or {}).get(number),
            (entry.null_value_counts or {}).get(number),
            (entry.lower_bounds or {}).get(number),
            (entry.upper_bounds or {}).get(number),
        )


@dataclass(frozen=True)
class _Judge:
    old: OldValues
    transforms: Transforms
    cutoff: datetime

    def decide(self, files: Sequence[DatedFile], *, by_file: bool = False, beside: Sequence[DatedFile] = ()) -> OldRowsPlan:
        return decide_old_rows(files, self.old, self.transforms, cutoff=self.cutoff, by_file=by_file, beside=beside)


def _with_deletes(plan: OldRowsPlan, metadata: TableMetadata, files: Sequence[LiveFile]) -> OldRowsPlan:
    """The plan with those delete files that no data file needs any more once its files are gone. `files` are all live files of the head.

    A delete that may reach any other data file stays, so no row comes back.
    """
    layout, gone = head_layout(metadata), {id(file) for file in plan.removed}
    head = HeadFiles(files, layout)
    left = DataIndex([file for file in files if file.is_data and id(file) not in gone], layout)
    near = head.deletes_near({bucket_of(file) for file in plan.removed}, [file.path for file in plan.removed])
    deletes = {file.path: file for file in near if file.path not in head.duplicate_deletes}
    return plan.with_deletes(dangling_deletes(deletes.values(), left, lambda delete: None, frozenset()))


def _planned_keyed(stores: KeyedStores, dated: _Dated, judge: _Judge, now: datetime) -> PlannedRows:
    base, changes = stores.files(dated.read)
    refuse_unsure(stores, base)
    sequences = stores.sequences()
    opened = [one for one in read_open_transactions(stores.change.metadata, stores.base.metadata, changes, base, now) if one.brings_changes]
    if opened:
        # Its inserts may land below a delete that is gone by then, and would be live for ever.
        begun = f"transaction {opened[0].transaction_id} began at {time_text(opened[0].begun_at)} UTC and has not ended"
        wait = OldRowsPlan(judge.cutoff, reason=f"{begun}: its changes may belong to rows that would go")
        return PlannedRows(wait, next_look=opened[0].begun_at + transaction_timeout(stores.base.properties))
    # The rows of merged changes are in the base store.
    seen = [file for file in changes if file.data_sequence_number > (sequences.of_spec(file.spec_id).of(file.partition) or 0)]
    shared = _of_one_path([*base, *changes], sequences)
    inserts = [file for file in seen if not is_delete_file(file.path)]
    plan = judge.decide(
        dated.of(file for file in base if bucket_of(file) not in shared),
        beside=dated.of(file for file in inserts if bucket_of(file) not in shared),
    )
    going = {place.place for place in plan.places}
    moved: dict[Partition, int] = {}
    for file in seen:
        if bucket_of(file) in going:
            moved[file.partition] = max(moved.get(file.partition, 0), file.data_sequence_number)
    return PlannedRows(_with_deletes(plan, stores.base.metadata, base), moved)


def _of_one_path(files: Iterable[LiveFile], sequences: OptimizedSequences) -> set[Bucket]:
    """The partitions whose path another one may have too, as NULL and the text `null` have. One optimized sequence would stand for both."""
    by_path: dict[PartitionKey, set[Bucket]] = defaultdict(set)
    for file in files:
        by_path[key_of(file.partition, sequences.of_spec(file.spec_id).fields)].add(bucket_of(file))
    return {bucket for key, buckets in by_path.items() for bucket in buckets if len(buckets) > 1 or looks_like_null(bucket[1], key)}
