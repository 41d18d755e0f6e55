"""Reports of commits: what a writer tells about a commit, so that its table is looked at sooner than its turn.

A report is only a hint. Files are read from the table alone, and nothing is ever planned from a report. A lost report, or a false one,
costs one look at the table at most.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from compaction_pipeline.core.tables.index import Complete, TableIndex
from compaction_pipeline.core.tables.table import ChangeHead, TableIdentifier

TOGETHER = timedelta(seconds=0.5)
"""Reports of one table that arrive within this time are answered by one look at the table."""
MOST_PARTITIONS = 1_000
"""So many partitions of a table's reports are remembered: those with the most added files."""


@dataclass(frozen=True, slots=True)
class CommitReport:
    """What a writer tells about one commit.

    `sequence_number` is that of the snapshot; 0 when the writer does not know it, and in format v1. `added` is the number of files that
    the commit added to each partition. A partition is named as in the paths of its files, e.g. `day=2026-11-22`, and "" stands for a table
    without partitions, and for files whose partition the writer does not know.
    """

    table: TableIdentifier
    snapshot_id: int
    sequence_number: int = 0
    added: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ReportedTable:
    """The reports of a table that no look at the table has answered yet.

    `snapshot_id` and `sequence_number` are those of the newest reported commit. `since` is when the first of the `reports` arrived.
    `added` is the number of files that all of them added to each partition.
    """

    table: TableIdentifier
    snapshot_id: int
    sequence_number: int
    since: datetime
    reports: int = 1
    added: Mapping[str, int] = field(default_factory=dict)

    @property
    def urgency(self) -> int:
        """How many files were added to the partition that got the most: a table is as urgent as its most urgent node."""
        return max(self.added.values(), default=0)


def why_known(report: CommitReport, index: TableIndex) -> str | None:
    """Return why the stored state of the table knows of the reported commit already. Return None when it may not.

    Sequence numbers grow along main. So a commit whose number is not above that of the snapshot that was read is an ancestor of this
    snapshot, or no part of main. Each store of a keyed table counts its own commits. A report that names the change store is compared with
    that store. One that names the keyed table may be about either store, so its number must be known to both.
    """
    read = index.state
    if not isinstance(read, Complete):
        return None
    heads = _heads(report, index.table, read)
    for store, head in heads.items():
        if head is not None and head.snapshot_id == report.snapshot_id:
            return f"snapshot {report.snapshot_id}{store} was read at {read.read_at:%Y-%m-%d %H:%M:%S} UTC"
    numbers = {store: head.sequence_number if head is not None else 0 for store, head in heads.items()}
    store, lowest = min(numbers.items(), key=lambda item: item[1])
    if 0 < report.sequence_number <= lowest:
        return f"the sequence number {report.sequence_number} is not above {lowest}, that of the snapshot{store} that was read last"
    return None


def _heads(report: CommitReport, table: TableIdentifier, read: Complete) -> Mapping[str, ChangeHead | None]:
    """Return the heads with which a report is compared, by the words that name their stores in a sentence."""
    own = ChangeHead(read.snapshot_id, read.sequence_number)
    # A plain table has one store only, and so it has one head.
    heads = tuple(zip(read.loaded.layout.kind.stores_in_words, (own, read.change_store), strict=False))
    return dict(heads if report.table == table else heads[-1:])


def with_report(before: ReportedTable | None, report: CommitReport, now: datetime) -> ReportedTable:
    """Return the reports of a table with one more report. `before` is None when no other one waits."""
    if before is not None and before.snapshot_id == report.snapshot_id:
        # A writer that got no answer repeats its report. The files are the same, so they are not counted twice.
        return before
    added = dict(before.added) if before is not None else {}
    for partition, files in report.added.items():
        added[partition] = added.get(partition, 0) + files
    if len(added) > MOST_PARTITIONS:
        added = dict(sorted(added.items(), key=lambda item: (-item[1], item[0]))[:MOST_PARTITIONS])
    if before is None:
        return ReportedTable(report.table, report.snapshot_id, report.sequence_number, now, 1, added)
    newest = before if 0 < report.sequence_number < before.sequence_number else report
    return ReportedTable(report.table, newest.snapshot_id, newest.sequence_number, before.since, before.reports + 1, added)


def most_urgent_first(reported: Iterable[ReportedTable]) -> Sequence[ReportedTable]:
    """Return the tables in the order in which they are looked at. Among equals, the one that waits longest comes first."""
    return sorted(reported, key=lambda one: (-one.urgency, one.since, str(one.table)))


def due(reported: Iterable[ReportedTable], now: datetime) -> Sequence[ReportedTable]:
    """Return the tables that are looked at now, the most urgent first. The others wait for further reports, for `TOGETHER` at most."""
    return most_urgent_first(one for one in reported if one.since + TOGETHER <= now)
