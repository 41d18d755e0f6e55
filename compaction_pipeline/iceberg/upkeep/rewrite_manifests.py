"""Rewrites the small manifests of a table into fewer ones, in one `replace` snapshot: the ManifestRewriter port.

Each live entry keeps everything that it says. Before the swap, the entries that were read are compared with those that storage gives back
of the new manifests. The attempts, their three outcomes and what may be deleted are those of every other commit of this program
(`iceberg/CONTRACT.md`).
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pyiceberg.manifest import ManifestContent, ManifestEntry, ManifestEntryStatus, ManifestFile
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.table.snapshots import Operation, Summary

from compaction_pipeline.core.commit.answers import Answer
from compaction_pipeline.core.commit.ports import CommitState
from compaction_pipeline.core.commit.record import RECORD_ID_PROPERTY
from compaction_pipeline.core.errors import CompactionError, TableRefused
from compaction_pipeline.core.ids import RecordId
from compaction_pipeline.core.tables.table import TableIdentifier
from compaction_pipeline.core.upkeep.manifests import (
    Group,
    ManifestPlan,
    ManifestRules,
    decide_manifests,
    gain_in_words,
    manifests_opened,
    resolve_manifest_rules,
)
from compaction_pipeline.core.upkeep.manifests_outcome import ManifestFigures, ManifestsOutcome
from compaction_pipeline.iceberg.catalogs.open_catalogs import Catalogs
from compaction_pipeline.iceberg.catalogs.rest_catalog import BoundedRestCatalog
from compaction_pipeline.iceberg.commit.attempts import (
    Committed,
    Failure,
    LostRace,
    Refused,
    RetryPolicy,
    Swap,
    Unknown,
    head_id,
    make_commit,
    snapshots_with,
)
from compaction_pipeline.iceberg.commit.endings import proof_of, raise_not_committed, unknown_in_words
from compaction_pipeline.iceberg.commit.landing import has_landed, parents_of_attempts
from compaction_pipeline.iceberg.failures import translated
from compaction_pipeline.iceberg.head_reader import HeadReader
from compaction_pipeline.iceberg.manifests.entries import entry_of, read_entries
from compaction_pipeline.iceberg.manifests.entry_digest import EntryDigest
from compaction_pipeline.iceberg.manifests.partition_bytes import PartitionDecoder
from compaction_pipeline.iceberg.manifests.partition_statistics import partition_order
from compaction_pipeline.iceberg.manifests.partitions import partition_struct
from compaction_pipeline.iceberg.plain_tables import refusal_of_part
from compaction_pipeline.iceberg.rewrite_files import CommitStep, Making, SnapshotChange, Transaction, summary_of
from compaction_pipeline.iceberg.scan import refusal_of_contents
from compaction_pipeline.iceberg.upkeep.manifests import listed

_CREATED, _KEPT, _REPLACED, _PROCESSED = "manifests-created", "manifests-kept", "manifests-replaced", "entries-processed"
"""What Iceberg's own rewrite of manifests writes into the summary of its snapshot. Source: `BaseRewriteManifests`."""


class IcebergManifestRewriter:
    """The ManifestRewriter on PyIceberg. `sleep` and `jitter` (0 to 1) are arguments, so that tests need no time."""

    def __init__(
        self,
        catalogs: Catalogs,
        *,
        on_step: Callable[[CommitStep], None] = lambda step: None,
        sleep: Callable[[float], None] = time.sleep,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        self._catalogs = catalogs
        self._on_step = on_step
        self._sleep = sleep
        self._jitter = jitter

    def look(self, table: TableIdentifier, catalog: Mapping[str, str]) -> ManifestPlan:
        """What a rewrite would do now."""
        return _Rewrite(self._catalogs, table, RecordId(""), catalog, self._on_step).look()

    def rewrite(self, table: TableIdentifier, record_id: RecordId, catalog: Mapping[str, str]) -> ManifestsOutcome:
        """Rewrite the manifests that are due. Each attempt decides anew what these are."""
        return _Rewrite(self._catalogs, table, record_id, catalog, self._on_step).run(self._sleep, self._jitter)

    def settle(self, table: TableIdentifier, record_id: RecordId) -> ManifestsOutcome:
        """Find out from the table how an earlier rewrite ended. Nothing is written."""
        loaded = self._catalogs.load(table)
        done = _landed_earlier(loaded, record_id)
        if done is not None:
            return done
        with translated(f"the history of table {table}"):
            parents = parents_of_attempts(loaded, {record_id}).get(record_id, set())
        head = head_id(loaded.metadata)
        if head in parents:
            reason = f"an attempt was built on snapshot {head}, which is still the head, so it may land"
            return ManifestsOutcome(CommitState.UNKNOWN, reason, snapshot_before=head)
        reason = "no snapshot carries the id of the rewrite, and no attempt of it was built on the present head"
        return ManifestsOutcome(CommitState.NOTHING, reason)


class _Rewrite:
    """One call of `rewrite`, as the loop of attempts sees it."""

    def __init__(
        self,
        catalogs: Catalogs,
        table: TableIdentifier,
        record_id: RecordId,
        catalog: Mapping[str, str],
        on_step: Callable[[CommitStep], None],
    ) -> None:
        self._catalogs = catalogs
        self._table = table
        self._record_id = record_id
        self._catalog = catalog
        self._on_step = on_step
        self._unanswered = False

    def look(self) -> ManifestPlan:
        """What is due at the head of the table now."""
        loaded = self._opened()
        return self._planned(loaded, HeadReader(loaded.io))[0]

    def run(self, sleep: Callable[[float], None], jitter: Callable[[], float]) -> ManifestsOutcome:
        """Make attempts until one has ended the rewrite. Raises as the port says."""
        try:
            ended = make_commit(self, sleep, jitter)
            if isinstance(ended, (LostRace, Refused)):
                raise_not_committed(str(self._table), ended, "rewrite the manifests again")
        except CompactionError as error:
            if not self._unanswered:
                raise
            # This attempt was stopped, but an earlier one of this call may still land.
            return ManifestsOutcome(CommitState.UNKNOWN, str(error), unanswered=True)
        return self._outcome(ended)

    def _outcome(self, ended: Committed[ManifestsOutcome] | Unknown[ManifestsOutcome]) -> ManifestsOutcome:
        if isinstance(ended, Unknown):
            before = ended.expected.snapshot_before
            done = ManifestsOutcome(CommitState.UNKNOWN, unknown_in_words(ended), snapshot_before=before)
        else:
            done = ended.done
        return replace(done, attempts=ended.attempts, unanswered=self._unanswered)

    # ---- what the loop of attempts asks ------------------------------------------------------------------------------

    def stage(self, attempt: int) -> Swap[ManifestsOutcome] | ManifestsOutcome:
        """Load the table, look for an earlier landing, decide what is due, and write and prove the new manifests."""
        loaded = self._opened()
        done = _landed_earlier(loaded, self._record_id)
        if done is not None:
            return done
        reader = HeadReader(loaded.io)
        plan, rules, files = self._planned(loaded, reader)
        self._on_step("after-validation")
        before = head_id(loaded.metadata)
        if not plan.is_due:
            figures = ManifestFigures(kept=len(plan.kept), opened_before=plan.opened_before, opened_after=plan.opened_after)
            return ManifestsOutcome(CommitState.NOTHING, plan.reason, figures, snapshot_before=before)
        transaction = Transaction(loaded, name=self._record_id, attempt=attempt, reader=reader, on_step=self._on_step)
        made = _Made(loaded, plan, rules, files, self._record_id, self._on_step)
        with translated(f"table {self._table}: writing manifests"):
            staged = transaction.stage_made(made.snapshot)
        reason = gain_in_words(made.figures.replaced, str(made.figures.created), made.figures.opened_before, made.figures.opened_after)
        done = ManifestsOutcome(CommitState.COMMITTED, reason, made.figures, before, staged.snapshot.snapshot_id)
        return Swap(transaction, done, RetryPolicy.of_table(loaded.metadata.properties))

    def proof(self, swap: Swap[ManifestsOutcome], failure: Failure) -> Answer:
        """What the catalog's answer proves. Raises StorageUnavailable when the catalog was never asked."""
        answer = proof_of(str(self._table), self._record_id, swap, failure)
        self._unanswered = self._unanswered or answer is Answer.UNKNOWN
        return answer

    def reloaded(self, swap: Swap[ManifestsOutcome]) -> Table:
        return self._catalogs.load(self._table)

    def landed(self, swap: Swap[ManifestsOutcome], fresh: Table) -> ManifestsOutcome | None:
        return swap.done if has_landed(fresh, swap.transaction) else None

    # ---- the parts of an attempt -------------------------------------------------------------------------------------

    def _opened(self) -> Table:
        self._on_step("before-load")
        loaded = self._catalogs.load(self._table)
        self._on_step("after-load")
        refusal = refusal_of_part(self._catalogs, self._table, loaded) or _refusal_of_format(loaded)
        if refusal is not None:
            raise TableRefused(f"the manifests of table {self._table} are not rewritten: {refusal}")
        return loaded

    def _planned(self, loaded: Table, reader: HeadReader) -> tuple[ManifestPlan, ManifestRules, Mapping[str, ManifestFile]]:
        """What is due, by which rules, and the manifests of the head by their paths."""
        metadata = loaded.metadata
        rules = resolve_manifest_rules(metadata.properties, self._catalog, self._table)
        head = metadata.snapshot_by_name(MAIN_BRANCH)
        with translated(f"the manifests of table {self._table}"):
            manifests = reader.manifests(head) if head is not None else ()
            plan = decide_manifests(listed(metadata, manifests), rules)
        return plan, rules, {one.manifest_path: one for one in manifests}


@dataclass
class _Made:
    """The new manifests of one attempt. `files` are the manifests of the head by their paths. `figures` are known once they are written."""

    loaded: Table
    plan: ManifestPlan
    rules: ManifestRules
    files: Mapping[str, ManifestFile]
    record_id: RecordId
    on_step: Callable[[CommitStep], None]
    figures: ManifestFigures = ManifestFigures()

    def snapshot(self, making: Making) -> tuple[Sequence[ManifestFile], Summary]:
        """Write and prove the new manifests. Returns all manifests of the new snapshot, and its summary."""
        new: list[ManifestFile] = []
        entries = 0
        for group in self.plan.groups:
            written, moved = self._written(group, making)
            new += written
            entries += moved
        kept = [self.files[one.path] for one in self.plan.kept]
        manifests = [*new, *kept]
        _check_counts([*self.files.values()], manifests)
        opened = manifests_opened(listed(making.metadata, manifests), self.plan.places)
        replaced = len(self.plan.rewritten)
        self.figures = ManifestFigures(len(new), len(kept), replaced, entries, self.plan.opened_before, opened)
        counted = {_CREATED: len(new), _KEPT: len(kept), _REPLACED: replaced, _PROCESSED: entries}
        properties = {**{key: str(count) for key, count in counted.items()}, RECORD_ID_PROPERTY: self.record_id}
        # Nothing is added and nothing removed, so the totals of the parent go on.
        return manifests, summary_of(SnapshotChange(Operation.REPLACE, properties=properties), (), making.parent, 0)

    def _written(self, group: Group, making: Making) -> tuple[list[ManifestFile], int]:
        """Write the new manifests of a group, and prove them by what storage gives back. Returns how many entries they have, too."""
        io, metadata = self.loaded.io, making.metadata
        before, after = EntryDigest(metadata), EntryDigest(metadata)
        entries: list[ManifestEntry] = []
        for one in group.manifests:
            live = read_entries(io, self.files[one.path])
            before.add(live)
            entries += live
        if not entries:
            return [], 0
        ordered = _ordered(metadata, group.spec_id, [_existing(metadata, entry) for entry in entries])
        self.on_step("before-manifest")
        content = self.files[group.manifests[0].path].content
        written = making.writer.write_parts(content, group.spec_id, ordered, self.rules.target_bytes, max(group.parts, 1))
        self.on_step("after-manifest")
        for manifest in written:
            after.add(read_entries(io, manifest), are_new=True)
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
    """The same entry as one that an earlier snapshot has added. Nothing of it may be inherited from its new manifest."""
    if metadata.format_version > 1 and (entry.sequence_number is None or entry.snapshot_id is None):
        raise TableRefused(
            f"the entry of {entry.data_file.file_path} has no sequence number or no snapshot id, and inherits none: its manifest breaks "
            "the Iceberg specification"
        )
    return entry_of(ManifestEntryStatus.EXISTING, entry.snapshot_id, entry.sequence_number, entry.file_sequence_number, entry.data_file)


def _ordered(metadata: TableMetadata, spec_id: int, entries: list[ManifestEntry]) -> list[ManifestEntry]:
    """The entries by their partitions and, in a partition, by age. So the lowest sequence numbers of the manifests differ."""
    struct = partition_struct(metadata, spec_id)
    decoders: dict[int, PartitionDecoder] = {}

    def place(entry: ManifestEntry) -> tuple[object, ...]:
        file: Any = entry.data_file
        decoder = decoders.get(id(file.partition_type))
        if decoder is None:
            decoder = decoders[id(file.partition_type)] = PartitionDecoder(file.partition_type, struct)
        return partition_order(decoder.values(file.partition)), entry.sequence_number or 0

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


def _landed_earlier(loaded: Table, record_id: RecordId) -> ManifestsOutcome | None:
    """How an earlier rewrite with this id ended, when a snapshot carries the id."""
    found = next(iter(snapshots_with(loaded.metadata, RECORD_ID_PROPERTY, record_id)), None)
    if found is None:
        return None
    said = found.summary.additional_properties if found.summary is not None else {}
    created, kept, replaced, entries = (int(said.get(key, "0")) for key in (_CREATED, _KEPT, _REPLACED, _PROCESSED))
    figures = ManifestFigures(created, kept, replaced, entries)
    reason = f"{replaced} manifests became {created}, as the table shows"
    return ManifestsOutcome(CommitState.COMMITTED, reason, figures, found.parent_snapshot_id, found.snapshot_id)
