"""Loads the two stores of a keyed table, and reads which files a reader must merge."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from pyiceberg.catalog import Catalog
from pyiceberg.table import Table
from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.table.snapshots import Operation
from pyiceberg.typedef import Identifier

from compaction_pipeline.core.errors import TableRefused
from compaction_pipeline.core.tables.data_file import LiveFile
from compaction_pipeline.core.tables.keyed.merge_on_read import NodeRead, nodes_to_read, refuse_lost_deletes
from compaction_pipeline.core.tables.keyed.stores import base_store, is_change_store
from compaction_pipeline.iceberg.catalogs.statistics_blobs import accept_any_blob_type
from compaction_pipeline.iceberg.failures import translated
from compaction_pipeline.iceberg.keyed.sequences import read_sequences
from compaction_pipeline.iceberg.manifests.live_files import read_live_files
from compaction_pipeline.iceberg.scan import manifests_of


@dataclass(frozen=True)
class KeyedStores:
    """The two stores of a keyed table, as they were when they were loaded. `key` are the field ids of the primary key, in its order."""

    name: str
    base: Table
    change: Table
    key: tuple[int, ...]

    def nodes(self, wanted: Callable[[LiveFile], bool]) -> tuple[NodeRead, ...]:
        """The nodes that have rows in the wanted files. The files of a partition are wanted all or none.

        Raises TableRefused when it is unknown what the files hold.
        """
        changes = list(_live_files(self.change))
        refuse_lost_deletes(changes, _replacing(self.change))
        sequences = read_sequences(self.name, self.base.metadata, self.base.io)
        return nodes_to_read(filter(wanted, _live_files(self.base)), filter(wanted, changes), sequences)


def load_stores(catalog: Catalog, identifier: Identifier) -> KeyedStores:
    """Load both stores of the keyed table whose base store has this name.

    Raises NotFoundError when a store does not exist, and TableRefused when the table is not a keyed table.
    """
    accept_any_blob_type()
    name = ".".join((catalog.name, *identifier))
    named = base_store(name, _load(catalog, identifier, f"table {name}").properties)
    # The change store is loaded first. In the other order, changes may move into the base store and expire in between, and are lost to us.
    change = _load(catalog, named.change_store, f"the change store of table {name}")
    base = _load(catalog, identifier, f"table {name}")
    if base_store(name, base.properties) != named:
        raise TableRefused(f"table {name} got another primary key or another change store while it was opened; open it again")
    if not is_change_store(change.properties):
        raise TableRefused(f"table {name} names {'.'.join(named.change_store)} as its change store, but that is no change store")
    return KeyedStores(name, base, change, tuple(_field_id(name, base, column) for column in named.primary_key))


def _load(catalog: Catalog, identifier: Identifier, what: str) -> Table:
    with translated(what):
        return catalog.load_table(identifier)


def _field_id(name: str, table: Table, column: str) -> int:
    try:
        return table.schema().find_field(column).field_id
    except ValueError as error:
        raise TableRefused(f"table {name} has no column {column!r}, which its primary key names") from error


def _live_files(table: Table) -> Iterator[LiveFile]:
    snapshot = table.metadata.snapshot_by_name(MAIN_BRANCH)
    if snapshot is not None:
        for manifest in manifests_of(snapshot, table.io):
            yield from read_live_files(table.io, table.metadata, manifest)


def _replacing(table: Table) -> frozenset[int]:
    snapshots = table.metadata.snapshots
    return frozenset(each.snapshot_id for each in snapshots if each.summary is not None and each.summary.operation is Operation.REPLACE)
