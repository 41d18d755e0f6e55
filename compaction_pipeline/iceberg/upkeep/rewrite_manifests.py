"""Rewrites the small manifests of a table into fewer ones, in one `replace` snapshot.

Each live entry keeps everything that it says. Before the swap, the entries that were read are compared with those that storage gives back
of the new manifests. `iceberg/upkeep/commits.py` makes the attempts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pyiceberg.manifest import ManifestContent, ManifestEntry, ManifestEntryStatus, ManifestFile
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.table.snapshots import Operation, Summary

from compaction_pipeline.core.commit.record import RECORD_ID_PROPERTY
from compaction_pipeline.core.commit.rollbacks import rollback_summary
from compaction_pipeline.core.cycle_search import without_cycle_search
from compaction_pipeline.core.errors import TableRefused
from compaction_pipeline.core.upkeep.commit_record import Figures, UpkeepPlan, UpkeepTarget
from compaction_pipeline.core.upkeep.manifests import (
    Group,
    ManifestPlan,
    ManifestRules,
    decide_manifests,
    gain_in_words,
    manifests_opened,
    resolve_manifest_rules,
)
from compaction_pipeline.iceberg.catalogs.open_catalogs import Catalogs
from compaction_pipeline.iceberg.catalogs.rest_catalog import BoundedRestCatalog
from compaction_pipeline.iceberg.head_reader import HeadReader
from compaction_pipeline.iceberg.manifests.entries import read_entries
from compaction_pipeline.iceberg.manifests.entry_digest import EntryDigest
from compaction_pipeline.iceberg.manifests.partition_bytes import PartitionDecoder
from compaction_pipeline.iceberg.manifests.partition_statistics import partition_order
from compaction_pipeline.iceberg.manifests.partitions import partition_struct
from compaction_pipeline.iceberg.plain_tables import refusal_of_part
from compaction_pipeline.iceberg.rewrite_files import Making, SnapshotChange, Transaction, summary_of
from compaction_pipeline.iceberg.scan import refusal_of_contents
from compaction_pipeline.iceberg.upkeep.manifests import listed

_CREATED, _KEPT, _REPLACED, _PROCESSED = "manifests-created", "manifests-kept", "manifests-replaced", "entries-processed"
"""What Iceberg's own rewrite of manifests writes into the summary of its snapshot. Source: `BaseRewriteManifests`."""


@dataclass(frozen=True)
class _Planned:
    """What is due, by which rules, and the manifests of the head by their paths."""

    plan: ManifestPlan
    rules: ManifestRules
    files: Mapping[str, ManifestFile]

    @property
    def said(self) -> UpkeepPlan:
        """The same in words and figures."""
        plan = self.plan
        created = sum(group.parts for group in plan.groups)
        figures = _figures(len(plan.kept), len(plan.rewritten), created, plan.opened_before, plan.opened_after)
        return UpkeepPlan(plan.is_due, plan.reason, figures)


class RewriteManifests:
    """The strategy of the work MANIFESTS, in a plain table. `catalog` are the properties of its catalog."""

    def __init__(self, catalogs: Catalogs, target: UpkeepTarget, catalog: Mapping[str, str]) -> None:
        self._catalogs = catalogs
        self._target = target
        self._catalog = catalog

    def refusal(self, loaded: Table) -> str | None:
        """Why the manifests of this table are not rewritten; None when they may be."""
        return refusal_of_part(self._catalogs, self._target.store, loaded) or _refusal_of_format(loaded)

    def plan(self, loaded: Table, reader: HeadReader) -> _Planned:
        """Decide which manifests of the head are rewritten."""
        metadata = loaded.metadata
        rules = resolve_manifest_rules(metadata.properties, self._catalog, self._target.table)
        head = metadata.snapshot_by_name(MAIN_BRANCH)
        manifests = reader.manifests(head) if head is not None else ()
        plan = decide_manifests(listed(metadata, manifests), rules)
        return _Planned(plan, rules, {one.manifest_path: one for one in manifests})

    def stage(self, loaded: Table, plan: _Planned, transaction: Transaction) -> tuple[Figures, str]:
        """Write and prove the new manifests. Raises TableRefused when they do not say what the old ones say."""
        made = _Made(loaded, plan.plan, plan.rules, plan.files, transaction)
        transaction.stage_made(made.snapshot)
        return made.figures, made.words


def _figures(kept: int, replaced: int, created: int, opened_before: float, opened_after: float) -> Figures:
    """The figures of a rewrite. `opened_*` are how many manifests a reader of one partition opens, on average."""
    return {
        "manifests_before": kept + replaced,
        "manifests_after": kept + created,
        "manifests_rewritten": replaced,
        "opened_before": opened_before,
        "opened_after": opened_after,
    }


@dataclass
class _Made:
    """The new manifests of one attempt. `files` are the manifests of the head by their paths. `figures` are known once they are written."""

    loaded: Table
    plan: ManifestPlan
    rules: ManifestRules
    files: Mapping[str, ManifestFile]
    transaction: Transaction
    figures: Figures = field(default_factory=dict)
    words: str = ""

    def snapshot(self, making: Making) -> tuple[Sequence[ManifestFile], Summary]:
        """Write and prove the new manifests. Returns all manifests of the new snapshot, and its summary."""
        new: list[ManifestFile] = []
        entries = 0
        for group in self.plan.groups:
            # There may be 10⁶ entries, each of several objects.
            with without_cycle_search():
                written, moved = self._written(group, making)
            new += written
            entries += moved
        kept = [self.files[one.path] for one in self.plan.kept]
        manifests = [*new, *kept]
        _check_counts([*self.files.values()], manifests)
        opened = manifests_opened(listed(making.metadata, manifests), self.plan.places)
        replaced = len(self.plan.rewritten)
        self.figures = _figures(len(kept), replaced, len(new), self.plan.opened_before, opened)
        self.words = gain_in_words(replaced, str(len(new)), self.plan.opened_before, opened)
        counted = {_CREATED: len(new), _KEPT: len(kept), _REPLACED: replaced, _PROCESSED: entries}
        allowed = rollback_summary(self.loaded.metadata.properties, self.loaded.catalog.properties)
        properties = {**{key: str(count) for key, count in counted.items()}, **allowed, RECORD_ID_PROPERTY: self.transaction.name}
        # Nothing is added and nothing removed, so the totals of the parent go on.
        return manifests, summary_of(SnapshotChange(Operation.REPLACE, properties=properties), (), making.parent, 0)

    def _written(self, group: Group, making: Making) -> tuple[list[ManifestFile], int]:
        """Write the new manifests of a group, and prove them by what storage gives back. Returns how many entries they have, too."""
        io, metadata = self.loaded.io, making.metadata
        before, after = EntryDigest(metadata), EntryDigest(metadata)
        entries: list[ManifestEntry] = []
        for one in group.manifests:
            live = [_existing(metadata, entry) for entry in read_entries(io, self.files[one.path])]
            before.add(live)
            entries += live
        if not entries:
            return [], 0
        ordered = _ordered(metadata, group.spec_id, entries)
        self.transaction.on_step("before-manifest")
        content = self.files[group.manifests[0].path].content
        written = making.writer.write_parts(
            content, group.spec_id, ordered, self.rules.target_bytes, max(group.parts, 1), read_back=after.add
        )
        self.transaction.on_step("after-manifest")
        if before != after:
            raise TableRefused(
                f"{before.count} live entries of {len(group.manifests)} manifests of {'.'.join(self.loaded.name())} would become "
                f"{after.count} entries that say something else: nothing was committed; please report it"
            )
        return written, before.count


def _refusal_of_format(loaded: Table) -> str | None:
    refusal = refusal_of_contents(loaded.metadata, newest=3)
    if refusal is None and loaded.metadata.format_version > 2 and not isinstance(loaded.catalog, BoundedRestCatalog):
        return "format version is 3, and only REST catalogs write the metadata of this format themselves"
    return refusal


def _existing(metadata: TableMetadata, entry: ManifestEntry) -> ManifestEntry:
    """The entry, from now on one that an earlier snapshot has added. Nothing of it may be inherited from its new manifest."""
    if metadata.format_version > 1 and (entry.sequence_number is None or entry.snapshot_id is None):
        raise TableRefused(
            f"the entry of {entry.data_file.file_path} has no sequence number or no snapshot id, and inherits none: its manifest breaks "
            "the Iceberg specification"
        )
    entry.status = ManifestEntryStatus.EXISTING
    return entry


def _ordered(metadata: TableMetadata, spec_id: int, entries: list[ManifestEntry]) -> list[ManifestEntry]:
    """The entries by their partitions and, in a partition, by age. So the lowest sequence numbers of the manifests differ."""
    struct = partition_struct(metadata, spec_id)
    decoders: dict[int, PartitionDecoder] = {}
    orders: dict[tuple[int, bytes | None], tuple[object, ...]] = {}

    def order(file: Any) -> tuple[object, ...]:
        decoder = decoders.get(id(file.partition_type))
        if decoder is None:
            decoder = decoders[id(file.partition_type)] = PartitionDecoder(file.partition_type, struct)
        return partition_order(decoder.values(file.partition))

    def place(entry: ManifestEntry) -> tuple[object, ...]:
        file: Any = entry.data_file
        # Many files have one partition.
        known = orders.get((id(file.partition_type), file.partition))
        if known is None:
            known = orders[id(file.partition_type), file.partition] = order(file)
        return known, entry.sequence_number or 0

    return sorted(entries, key=place)


def _check_counts(before: Sequence[ManifestFile], after: Sequence[ManifestFile]) -> None:
    """Compare what both manifest lists say of live files and rows. It finds a manifest that was left out."""
    for content in ManifestContent:
        was, now = (_live(manifests, content) for manifests in (before, after))
        if was != now and None not in was:
            raise TableRefused(f"the {content.name} manifests would list {now} live files and rows in place of {was}; please report it")


def _live(manifests: Sequence[ManifestFile], content: ManifestContent) -> tuple[int | None, int | None]:
    """The live files and rows that a manifest list counts; None when it does not count them."""
    files: int | None = 0
    rows: int | None = 0
    for one in manifests:
        if one.content == content:
            files = _sum(files, one.added_files_count, one.existing_files_count)
            rows = _sum(rows, one.added_rows_count, one.existing_rows_count)
    return files, rows


def _sum(*counts: int | None) -> int | None:
    return None if None in counts else sum(count or 0 for count in counts)
