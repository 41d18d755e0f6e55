"""Loads the two stores of a keyed table, and reads which files a reader must merge."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

from pyiceberg.partitioning import PartitionSpec
from pyiceberg.table import Table
from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.table.snapshots import Operation, Snapshot
from pyiceberg.transforms import VoidTransform
from pyiceberg.typedef import Identifier

from compaction_pipeline.core.errors import TableRefused
from compaction_pipeline.core.planning.keyed.refusals import refuse_new_change_store
from compaction_pipeline.core.tables.data_file import LiveFile
from compaction_pipeline.core.tables.keyed.changes import marks_of_stores
from compaction_pipeline.core.tables.keyed.merge_on_read import NodeRead, nodes_to_read, refuse_lost_deletes
from compaction_pipeline.core.tables.keyed.optimized_sequence import OptimizedSequences, numbers_of_expired
from compaction_pipeline.core.tables.kinds import base_store, is_change_store
from compaction_pipeline.core.tables.table import ChangeHead, KeyedLayout, TableHead, TableIdentifier, TableLayout, place_of_all
from compaction_pipeline.iceberg.catalogs import Catalog
from compaction_pipeline.iceberg.catalogs.open_catalogs import Catalogs
from compaction_pipeline.iceberg.deletions import share_ban
from compaction_pipeline.iceberg.failures import translated
from compaction_pipeline.iceberg.file_io import file_io_properties, with_change_store
from compaction_pipeline.iceberg.keyed.sequences import flagged_snapshots, read_sequences, refuse_lost
from compaction_pipeline.iceberg.manifests.live_files import read_live_files
from compaction_pipeline.iceberg.scan import head_of, layout_of, manifests_of, refusal_of_contents


def files_of(table: Table, snapshot: Snapshot | None) -> Iterator[LiveFile]:
    """The live files of a snapshot of the table; none without a snapshot."""
    if snapshot is not None:
        for manifest in manifests_of(snapshot, table.io):
            yield from read_live_files(table.io, table.metadata, manifest)


@dataclass(frozen=True)
class KeyedStores:
    """The two stores of a keyed table, as they were when they were loaded. `key` are the field ids of the primary key, in its order."""

    name: str
    base: Table
    change: Table
    key: tuple[int, ...]

    @property
    def tables(self) -> tuple[Table, ...]:
        """The Iceberg tables that the table consists of, the base store first."""
        return self.base, self.change

    def names(self, table: TableIdentifier) -> tuple[TableIdentifier, ...]:
        """The names of these Iceberg tables in their catalog. `table` is the name of the table itself."""
        *namespace, name = self.change.name()
        return table, TableIdentifier(table.catalog, tuple(namespace), name)

    def file_io(self) -> Mapping[str, str]:
        """The properties that open the files of both stores."""
        return with_change_store(file_io_properties(self.base, self.change), file_io_properties(self.change, self.base))

    def head(self, table: TableIdentifier) -> TableHead:
        """The head of the table, with which the scan reads both stores."""
        problem = refusal_of_contents(self.change.metadata)
        newest = self.change.metadata.snapshot_by_name(MAIN_BRANCH)
        return replace(
            head_of(table, self.base),
            metadata_location=place_of_all(each.metadata_location for each in self.tables),
            layout=self.layout,
            refusal=refusal_of_contents(self.base.metadata) or (f"in its change store, {problem}" if problem is not None else None),
            change_store=ChangeHead(newest.snapshot_id, newest.sequence_number or 0) if newest is not None else None,
            stores=self,
        )

    @property
    def layout(self) -> TableLayout:
        """What a merge of changes into the base store must know of both stores."""
        return replace(layout_of(self.base.metadata), keyed=KeyedLayout(layout_of(self.change.metadata), self.key))

    @property
    def marks(self) -> dict[str, str]:
        """The marks of all sinks. Raises ConfigError for a mark that is no number."""
        return marks_of_stores(self.base.properties, self.change.properties)

    def nodes(self, wanted: Callable[[LiveFile], bool]) -> tuple[NodeRead, ...]:
        """The nodes that have rows in the wanted files. The files of a partition are wanted all or none.

        Raises TableRefused when it is unknown what the files hold.
        """
        base, changes = self.files()
        # Without the sequences, every merged change would be read once more.
        refuse_lost(self.base.metadata, base, to_write=False)
        sequences = self.sequences(to_write=False)
        partitioned_by = {
            field.source_id
            for number in {file.spec_id for file in (*base, *changes)}
            for field in self.base.specs()[number].fields
            if not isinstance(field.transform, VoidTransform)
        }
        told = partitioned_by <= set(self.key)
        return nodes_to_read(filter(wanted, base), filter(wanted, changes), sequences, keys_tell_partitions=told)

    def sequences(self, *, to_write: bool = True) -> OptimizedSequences:
        """The optimized sequences at the head of the base store. `to_write` is False when nothing will be committed to either store.

        Raises TableRefused when it is unknown which changes are in the base store, also because the change store was made anew, and when
        changes are in neither store.
        """
        found = read_sequences(self.name, self.base.metadata, self.base.io, numbers_of_expired(self.change.properties))
        # A table with the numbers of old versions only is read as it is. New changes would not be seen, and commits keep the numbers.
        counts = to_write or any(True for _ in flagged_snapshots(self.base.metadata))
        if counts and found.highest > _last_sequence(self.change):
            # Changes may have landed and been merged after the change store was loaded, and before the base store was.
            with translated(f"the change store of table {self.name}"):
                newest = self.change.catalog.load_table(self.change.name())
            refuse_new_change_store(self.name, found, _last_sequence(newest))
        return found

    def files(self, read: Callable[[Table, Snapshot | None], Iterator[LiveFile]] = files_of) -> tuple[list[LiveFile], list[LiveFile]]:
        """The live files of the base store, its delete files too, and those of the change store. Raises as `nodes`.

        `read` reads the files of a snapshot of a store.
        """
        changes = list(read(self.change, self.change.metadata.snapshot_by_name(MAIN_BRANCH)))
        refuse_lost_deletes(changes, _replacing(self.change))
        base = list(read(self.base, self.base.metadata.snapshot_by_name(MAIN_BRANCH)))
        self._refuse_other_specs({file.spec_id for file in (*base, *changes)})
        return base, changes

    def _refuse_other_specs(self, numbers: set[int]) -> None:
        """Deletes are found by partition, so they would not meet rows whose partitions are made in another way."""
        in_base, in_change = self.base.specs(), self.change.specs()
        unknown = sorted(numbers - in_base.keys())
        if unknown:
            raise TableRefused(
                f"table {self.name}: its change store has live files of partition spec {unknown[0]}, which its base store lacks; partition "
                "both stores in the same way"
            )
        for number in sorted(numbers & in_change.keys()):
            of_base, of_change = _in_words(in_base[number]), _in_words(in_change[number])
            if of_base != of_change:
                raise TableRefused(
                    f"table {self.name}: partition spec {number} of its base store is not that of its change store ({of_base}, and "
                    f"{of_change}), so deletes would not meet their rows; partition both stores in the same way"
                )


def _last_sequence(table: Table) -> int:
    """The sequence number of the newest snapshot that the table ever had; 0 when it had none."""
    return table.metadata.next_sequence_number() - 1


def _in_words(spec: PartitionSpec) -> str:
    return ", ".join(f"{field.name!r}: {field.transform} of field {field.source_id}" for field in spec.fields) or "unpartitioned"


def load_stores(catalog: Catalog, identifier: Identifier) -> KeyedStores:
    """Load both stores of the keyed table whose base store has this name.

    Raises NotFoundError when a store does not exist, and TableRefused when the table is not a keyed table.
    """
    name = ".".join((catalog.name, *identifier))

    def load(store: Identifier) -> Table:
        with translated(f"table {name}" if store == identifier else f"the change store of table {name}"):
            return catalog.load_table(store)

    return _loaded(name, identifier, load)


def load_known_stores(catalogs: Catalogs, table: TableIdentifier, change: Table | None = None) -> KeyedStores:
    """The same for a table of a registered catalog. `change` is its change store, when that was loaded just now."""

    def load(store: Identifier) -> Table:
        return catalogs.load(TableIdentifier(table.catalog, store[:-1], store[-1])) if change is None or change.name() != store else change

    return _loaded(str(table), (*table.namespace, table.name), load)


def _loaded(name: str, identifier: Identifier, load: Callable[[Identifier], Table]) -> KeyedStores:
    """The stores in the state of one moment. The change store is loaded first, and the base store after it.

    In the other order, changes may move into the base store and expire in between, and are lost to a reader. A commit would be built on
    metadata that is older than what it was checked against.
    """
    named = base_store(name, load(identifier).properties)
    change = load(named.change_store)
    base = load(identifier)
    if base_store(name, base.properties) != named:
        raise TableRefused(f"table {name} got another primary key or another change store while it was loaded; try again")
    if not is_change_store(change.properties):
        raise TableRefused(f"table {name} names {'.'.join(named.change_store)} as its change store, but that is no change store")
    share_ban(base, change)
    return KeyedStores(name, base, change, tuple(_field_id(name, base, column) for column in named.primary_key))


def _field_id(name: str, table: Table, column: str) -> int:
    try:
        return table.schema().find_field(column).field_id
    except ValueError as error:
        raise TableRefused(f"table {name} has no column {column!r}, which its primary key names") from error


def _replacing(table: Table) -> frozenset[int]:
    snapshots = table.metadata.snapshots
    return frozenset(each.snapshot_id for each in snapshots if each.summary is not None and each.summary.operation is Operation.REPLACE)
