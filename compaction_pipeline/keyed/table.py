"""A keyed table: rows with a primary key that streams change. Amoro calls the format Mixed-Iceberg."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from pyiceberg.expressions import AlwaysTrue, BooleanExpression
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.typedef import Identifier

from compaction_pipeline.core.errors import ConfigError
from compaction_pipeline.core.tables.keyed.changes import Batch, check_sink_id, watermark_of
from compaction_pipeline.core.tables.keyed.creation import DEFAULT_BUCKETS, KeyedOptions
from compaction_pipeline.iceberg.catalogs import Catalog
from compaction_pipeline.iceberg.keyed.append import forget_sink
from compaction_pipeline.iceberg.keyed.create import create_stores
from compaction_pipeline.iceberg.keyed.stores import KeyedStores, load_stores
from compaction_pipeline.keyed.append import append_rows
from compaction_pipeline.keyed.merging_sink import DEFAULT_MEMORY, MergingSink
from compaction_pipeline.keyed.overwrite import overwrite_rows
from compaction_pipeline.keyed.reporting import Reporter, Reports
from compaction_pipeline.keyed.scan import KeyedScan


class KeyedTable:
    """A keyed table of a PyIceberg catalog.

    It consists of two Iceberg tables. The base store has the table's name. Streams append inserts and deletes to the change store, and a
    reader applies those that are not in the base store yet.
    """

    def __init__(self, catalog: Catalog, identifier: Identifier, stores: KeyedStores) -> None:
        """Use `open`."""
        self._catalog = catalog
        self._identifier = identifier
        self._stores = stores
        self._reports = Reports()

    @classmethod
    def open(cls, catalog: Catalog, name: str | Identifier) -> KeyedTable:
        """Open the keyed table whose base store is called `name`, for example `db.orders`.

        Raises NotFoundError when one of the stores does not exist. Raises TableRefused for a table that is not keyed, and for a change
        store alone, whose files make no sense without the base store. Raises ConfigError for a name without a namespace.
        """
        identifier = _identifier(name)
        return cls(catalog, identifier, load_stores(catalog, identifier))

    @classmethod
    def create(
        cls,
        catalog: Catalog,
        name: str | Identifier,
        schema: Schema,
        primary_key: Sequence[str],
        partition_spec: PartitionSpec = UNPARTITIONED_PARTITION_SPEC,
        *,
        buckets: int = DEFAULT_BUCKETS,
        upsert: bool = False,
        delta_rewrite: bool = False,
        properties: Mapping[str, str] | None = None,
    ) -> KeyedTable:
        """Create a keyed table without rows.

        `primary_key` names top-level columns; their order matters, because they are hashed in it. The rows of a partition are divided into
        `buckets` parts, a power of two. In an `upsert` table at most one row of each key is live, whatever is written. With
        `delta_rewrite` a MINOR merges small change files with each other; such a table must never be compacted or read by Amoro, whose
        readers go by the names of change files. Raises ConfigError for a table whose rows could be read in two ways.
        """
        identifier = _identifier(name)
        options = KeyedOptions(primary_key=primary_key, buckets=buckets, upsert=upsert, delta_rewrite=delta_rewrite)
        create_stores(catalog, identifier, schema, partition_spec, options, properties or {})
        return cls.open(catalog, identifier)

    def write_changes(
        self,
        rows: Any,
        *,
        order_by: str | None = None,
        sink_id: str | None = None,
        batch: int | None = None,
        watermark: datetime | None = None,
        reporter: Reporter | None = None,
    ) -> int | None:
        """Append changes as one transaction, and return its number. All rows land, or none.

        `rows` is an Arrow table or a Spark DataFrame, with the table's columns and the column `_change_type`: INSERT, DELETE,
        UPDATE_BEFORE or UPDATE_AFTER. The changes of a key happen in the order of the column `order_by`; of two rows with the same value
        there, the row before an update comes first. Without `order_by` the order is that of an Arrow table's rows, and a DataFrame may
        hold one change of each key only. A delete needs the primary key and the columns of the partition.

        With `sink_id` and `batch`, a batch whose number is not above the last one of this sink is not written again; the answer is None
        then. A sink should write with `write_changes` only, or with `insert_overwrite` only. They write to two stores, which cannot be
        committed together: when both write a batch of one number at the same moment, it may land twice. `watermark` promises that the sink
        writes no event before this time after the batch (see `watermark`).

        With a `reporter`, such as `compaction_pipeline.reports.CommitReporter`, the commit is reported to the service. A report that fails
        is logged, and the batch waits for it at most one second.

        Raises ConfigError for rows that do not fit the table. Raises TableRefused when readers would not see the changes, because the
        change store was made anew. Raises RacesLost when other writers were always faster, and CommitStateUnknown when the catalog's answer
        got lost: write the same batch again, it lands once.
        """
        stores = self._load()
        appended = append_rows(stores, rows, order_by, _batch(sink_id, batch, watermark))
        if appended is None:
            return None
        if reporter is not None:
            self._reports.report(reporter, stores, appended)
        return appended.transaction_id

    def merging_sink(
        self,
        sink_id: str,
        *,
        interval: timedelta = timedelta(minutes=10),
        memory_bytes: int = DEFAULT_MEMORY,
        reporter: Reporter | None = None,
    ) -> MergingSink:
        """A sink that writes changes, and merges its own small files with each other in the background.

        It needs a table with `delta_rewrite`. Every batch is committed at once. After `interval`, and when the sink is closed, one insert
        file and one delete file of each tree node replace the small ones that this sink has committed since. A node with as many bytes as a
        file should have is merged earlier. One merge uses at most `memory_bytes`. A `reporter` reports each batch, as in `write_changes`.

        Use it in a `with` block. Raises ConfigError for a table without `delta_rewrite`, a wrong `sink_id`, and an interval or memory that
        is too small.
        """
        check_sink_id(sink_id)
        return MergingSink(self._load, sink_id, interval, memory_bytes, reporter)

    def insert_overwrite(
        self, rows: Any, *, sink_id: str | None = None, batch: int | None = None, watermark: datetime | None = None
    ) -> int | None:
        """Replace all rows of the partitions that the rows lie in, as one transaction, and return its number. All rows land, or none.

        `rows` is an Arrow table or a Spark DataFrame, with the table's columns. The number is given before the rows are written. Changes
        of these partitions that landed before it no longer count, and those of later transactions apply to the new rows. Other partitions
        stay as they are. In a table that is not partitioned, one row or more replace all rows. Of two overwrites of a partition at once,
        the one that is committed last counts.

        A writer may have begun a transaction before the overwrite, as Amoro's for Spark does, and bring its changes after it. They come
        before the new rows in the log, so one key could be live twice. As long as such a transaction is open, nothing is overwritten:
        RacesLost says until when it may hold overwrites back.

        `sink_id`, `batch` and `watermark` are those of `write_changes`. Without rows only the mark of the batch is left.

        Raises ConfigError for rows that do not fit the table, and in an upsert table for two rows of one key. Raises TableRefused for a
        table of which it is unsure which changes are in the base store, for example one with several partition specs. Raises RacesLost when
        an earlier transaction is open or other writers were always faster, and CommitStateUnknown when the catalog's answer got lost: write
        the same batch again, it lands once.
        """
        return overwrite_rows(self._load, rows, _batch(sink_id, batch, watermark))

    def watermark(self) -> datetime | None:
        """Events before this time are complete: it is the lowest watermark of the table's sinks, in UTC.

        It is None when there is no sink, or when one of them has never given a watermark. `reset_sink` removes a sink that has ended.
        """
        return watermark_of(self._load().marks)

    def reset_sink(self, sink_id: str) -> None:
        """Forget the last batch and the watermark of a sink: it begins anew with any batch number, or it has ended.

        A batch that was written before is then written again. Raises ConfigError when the sink has written no batch, and RacesLost when
        other writers were always faster.
        """
        check_sink_id(sink_id)
        forget_sink(self._load(), sink_id)

    @property
    def name(self) -> str:
        """The catalog, the namespace and the name of the table, with dots between them."""
        return self._stores.name

    @property
    def schema(self) -> Schema:
        """The columns of the table, as they were when it was opened."""
        return self._stores.base.schema()

    @property
    def primary_key(self) -> tuple[str, ...]:
        """The columns of the primary key, in the order in which they are hashed."""
        return tuple(str(self.schema.find_column_name(number)) for number in self._stores.key)

    def scan(self, row_filter: str | BooleanExpression = AlwaysTrue(), selected_fields: Sequence[str] | None = None) -> KeyedScan:
        """The table's rows as they are now, with all changes applied.

        `row_filter` keeps the rows that it is true for; partitions that cannot have such rows are not read. `selected_fields` are the
        top-level columns of the result, in this order; all columns by default. Raises ConfigError for a column that the table does not
        have, and for a filter that does not fit the table.
        """
        return KeyedScan(self._load(), row_filter, selected_fields)

    def _load(self) -> KeyedStores:
        return load_stores(self._catalog, self._identifier)


def _identifier(name: str | Identifier) -> Identifier:
    identifier = Catalog.identifier_to_tuple(name)
    if len(identifier) < 2 or not all(identifier):
        raise ConfigError(f"the table's name is {name!r} but must have a namespace and a name, for example 'db.orders'")
    return identifier


def _batch(sink_id: str | None, batch: int | None, watermark: datetime | None) -> Batch | None:
    if (sink_id is None) != (batch is None):
        raise ConfigError(f"sink_id is {sink_id!r} and batch is {batch!r}, but both must be given, or neither")
    if watermark is not None and sink_id is None:
        raise ConfigError("watermark is given without sink_id and batch: a watermark is the promise of one sink, so name the sink")
    return None if sink_id is None or batch is None else Batch(sink_id, batch, watermark)
