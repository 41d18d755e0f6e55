"""Takes snapshots and refs out of a table's metadata, in one swap of the catalog's pointer. No file is deleted here.

The catalog protocol can demand that refs are as they were, but a tag that was made meanwhile is none of these, and catalogs drop refs on
removed snapshots without a word. So the whole metadata must be that which was looked at. Where this program writes the metadata itself, it
checks this before the swap. A REST catalog tells afterwards on which metadata it made the change.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass

from pydantic import PrivateAttr
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table import CommitTableResponse, Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import SnapshotRef
from pyiceberg.table.snapshots import SnapshotLogEntry
from pyiceberg.table.update import (
    AssertCurrentSchemaId,
    AssertDefaultSpecId,
    AssertRefSnapshotId,
    AssertTableUUID,
    RemovePartitionStatisticsUpdate,
    RemoveSnapshotRefUpdate,
    RemoveSnapshotsUpdate,
    RemoveStatisticsUpdate,
    TableRequirement,
    TableUpdate,
    _apply_table_update,
    _TableMetadataUpdateContext,
)

from compaction_pipeline.iceberg.catalogs.metadata_files import read_metadata
from compaction_pipeline.iceberg.catalogs.rest_catalog import BoundedRestCatalog

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Removal:
    """What is to go: ids of snapshots, and names of refs. No ref that is left may be on one of the snapshots."""

    snapshot_ids: Sequence[int]
    refs: Collection[str]


@dataclass(frozen=True, slots=True)
class Removed:
    """A removal that landed: the metadata that it was made on, and what it became. `before` is None when nobody can tell it."""

    before: TableMetadata | None
    after: TableMetadata


class _AsLookedAt(AssertTableUUID):
    """The whole metadata must be that which was looked at. It is checked in this process only; the protocol knows no such requirement."""

    _looked_at: TableMetadata = PrivateAttr()

    def __init__(self, looked_at: TableMetadata) -> None:
        super().__init__(uuid=looked_at.table_uuid)
        self._looked_at = looked_at

    # pydantic has an old class method of this name, and mypy compares this one with it.
    def validate(self, base_metadata: TableMetadata | None) -> None:  # type: ignore[override]
        super().validate(base_metadata)
        if base_metadata != self._looked_at:
            raise CommitFailedException("Requirement failed: the metadata is not that which was looked at")


class _Removal(RemoveSnapshotsUpdate):
    """Removes snapshots, refs and statistics in one step, as Iceberg's Java library does.

    PyIceberg's own update forgets which parent a snapshot had when that parent goes. Of the snapshot log it drops the entries of removed
    snapshots only, and a reader that asks for the table AS OF a time then gets a snapshot that was not the current one at that time.
    """

    _names: frozenset[str] = PrivateAttr()

    def __init__(self, removal: Removal) -> None:
        super().__init__(snapshot_ids=list(removal.snapshot_ids))
        self._names = frozenset(removal.refs)

    def left(self, metadata: TableMetadata) -> dict[str, SnapshotRef]:
        """The refs that stay."""
        return {name: ref for name, ref in metadata.refs.items() if name not in self._names}


@_apply_table_update.register(_Removal)
def _(update: _Removal, base_metadata: TableMetadata, context: _TableMetadataUpdateContext) -> TableMetadata:
    gone = frozenset(update.snapshot_ids)
    context.add_update(update)
    return base_metadata.model_copy(
        update={
            "snapshots": [one for one in base_metadata.snapshots if one.snapshot_id not in gone],
            "snapshot_log": _log_without(base_metadata.snapshot_log, gone),
            "refs": update.left(base_metadata),
            "statistics": [one for one in base_metadata.statistics if one.snapshot_id not in gone],
            "partition_statistics": [one for one in base_metadata.partition_statistics if one.snapshot_id not in gone],
        }
    )


def _log_without(log: Sequence[SnapshotLogEntry], gone: Collection[int]) -> list[SnapshotLogEntry]:
    """The entries after the last one of a removed snapshot. A log with a gap would say that an older snapshot was current in the gap."""
    last = max((place for place, entry in enumerate(log) if entry.snapshot_id in gone), default=-1)
    return list(log[last + 1 :])


def remove(table: Table, removal: Removal) -> Removed:
    """Swap in the metadata of this loaded table without these snapshots and refs.

    Raises what the catalog raises; `commit_answers.py` reads from the error what is certain. CommitFailedException means that the table has
    changed since it was loaded, and nothing was removed.
    """
    left = {name: ref for name, ref in table.metadata.refs.items() if name not in removal.refs}
    gone = frozenset(removal.snapshot_ids)
    named = sorted(name for name, ref in left.items() if ref.snapshot_id in gone)
    if named:
        raise ValueError(f"refs {named} are on snapshots that are to be removed")
    remote = isinstance(table.catalog, BoundedRestCatalog)
    requirements: tuple[TableRequirement, ...] = _known_refs(table.metadata) if remote else (_AsLookedAt(table.metadata),)
    updates: tuple[TableUpdate, ...] = tuple(_updates(table.metadata, removal)) if remote else (_Removal(removal),)
    answer = table.catalog.commit_table(table, requirements, updates)
    return Removed(_before(table, answer, removal) if remote else table.metadata, answer.metadata)


def unchanged(table: Table) -> tuple[TableRequirement, ...]:
    """What a swap demands when a change of properties or of columns must stop it. A REST catalog can be asked about columns alone."""
    metadata = table.metadata
    if not isinstance(table.catalog, BoundedRestCatalog):
        return (_AsLookedAt(metadata),)
    return (
        AssertCurrentSchemaId(current_schema_id=metadata.current_schema_id),
        AssertDefaultSpecId(default_spec_id=metadata.default_spec_id),
    )


def _known_refs(metadata: TableMetadata) -> tuple[TableRequirement, ...]:
    refs = (AssertRefSnapshotId(ref=name, snapshot_id=ref.snapshot_id) for name, ref in metadata.refs.items())
    return (AssertTableUUID(uuid=metadata.table_uuid), *refs)


def _updates(metadata: TableMetadata, removal: Removal) -> Iterator[TableUpdate]:
    """The same as `_Removal`, in words of the catalog protocol. Some catalogs refuse to remove a snapshot that still has statistics."""
    gone = frozenset(removal.snapshot_ids)
    for snapshot_id in _of(gone, (one.snapshot_id for one in metadata.statistics)):
        yield RemoveStatisticsUpdate(snapshot_id=snapshot_id)
    for snapshot_id in _of(gone, (one.snapshot_id for one in metadata.partition_statistics)):
        yield RemovePartitionStatisticsUpdate(snapshot_id=snapshot_id)
    for name in sorted(removal.refs):
        yield RemoveSnapshotRefUpdate(ref_name=name)
    if removal.snapshot_ids:
        yield RemoveSnapshotsUpdate(snapshot_ids=list(removal.snapshot_ids))


def _of(gone: Collection[int], ids: Iterable[int]) -> Iterable[int]:
    """Those of these ids that are gone, each once, in their order."""
    return dict.fromkeys(one for one in ids if one in gone)


def _before(table: Table, answer: CommitTableResponse, removal: Removal) -> TableMetadata | None:
    """The metadata on which a REST catalog made the change, from the metadata log of its answer. None when that file cannot be read.

    A proxy may send a request twice, and then the answer is that to the second one: its base lacks what the first one removed. The change
    has landed by now. An error from here would look like one of the swap.
    """
    log = answer.metadata.metadata_log
    if not log:
        return None
    if log[-1].metadata_file == table.metadata_location:
        return table.metadata
    try:
        before = read_metadata(table.io, log[-1].metadata_file)
    except Exception as error:  # A FileIO and a decoder raise errors of many types.
        _logger.warning("metadata %s, on which a catalog removed snapshots, cannot be read: %s", log[-1].metadata_file, error)
        return None
    had_all = {one.snapshot_id for one in before.snapshots}.issuperset(removal.snapshot_ids) and before.refs.keys() >= set(removal.refs)
    return before if had_all else None
