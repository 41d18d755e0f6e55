"""How far the changes of a partition may be merged into the base store now: up to a number T.

When T is committed, readers skip every change file whose data sequence number is not above T, and every row of a transaction not above T in
files that tell the transaction of each row. A merged row counts as a change of a transaction up to T. So T must have these properties:

- T is below every transaction that has begun and not ended. A change that lands later would meet rows that already count as later.
- Every change that is left has a transaction above T. Else it would not reach the merged rows that it reaches now.
- Every change that is merged has a transaction of at most T. Else the name of its new file would be above T, and a later delete would not
  reach its rows.
- T is not above the data sequence numbers that the partition has. Else readers would skip a change file that is yet to come.

The second and the third are stricter than `max transaction (≤ T) < min transaction (> T)`. The names of base files are at most T too, and
with this rule no change that is left can lie between them and T.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from compaction_pipeline.core.fragmentation.verdict import PlanReason, PlanReasonCode
from compaction_pipeline.core.tables.keyed.keyed_files import TransactionSpan
from compaction_pipeline.core.tables.keyed.merge_on_read import KeyedInput
from compaction_pipeline.core.tables.keyed.transactions import BegunTransaction
from compaction_pipeline.core.words import count_text, time_text

_NO_END = 1 << 63
"""A number above all transactions."""


@dataclass(frozen=True, slots=True)
class ChangeFile:
    """A change file that readers do not skip as a whole.

    `span` bounds the transactions in a file that tells the transaction of each row. None says that all rows are of the transaction that
    the file's name tells.
    """

    of: KeyedInput
    span: TransactionSpan | None = None

    @property
    def sequence(self) -> int:
        """The data sequence number of the file."""
        return self.of.file.data_sequence_number

    @property
    def forbidden(self) -> tuple[int, int] | None:
        """The numbers that T must not be because of this file: from the first up to, and without, the second. None when all are allowed."""
        if self.span is None:
            ends = sorted((self.of.named.transaction_id, self.sequence))
            return (ends[0], ends[1]) if ends[0] < ends[1] else None
        # Readers skip the whole file as soon as T is its sequence number. So no row may have a transaction above T then.
        return (self.sequence, self.span.highest) if self.sequence < self.span.highest else None

    def first_cut(self, above: int | None) -> int | None:
        """The lowest T with which rows of the file are merged, in a partition with this optimized sequence. None when no T merges any."""
        if self.span is None:
            return self.sequence
        first = self.span.lowest if above is None else max(self.span.lowest, above + 1)
        return first if first <= self.span.highest else None

    def has_rows(self, above: int | None, up_to: int) -> bool:
        """Whether rows of the file may be among the changes above the one number and up to the other. `above` is that of the partition."""
        first = self.first_cut(above)
        return first is not None and first <= up_to

    def highest(self, up_to: int) -> int:
        """A transaction that no row of the file up to this number exceeds."""
        return self.of.named.transaction_id if self.span is None else min(self.span.highest, up_to)

    def is_late(self, above: int | None) -> bool:
        """Whether the file's transaction was passed over: later changes were merged before it landed."""
        return self.span is None and above is not None and self.of.named.transaction_id <= above


@dataclass(frozen=True, slots=True)
class LateChanges:
    """How many change files, and rows in them, are of transactions that were passed over before they landed."""

    files: int = 0
    rows: int = 0

    @property
    def text(self) -> str:
        """What a node's reason says of them, after its own words; "" when there are none."""
        if not self.files:
            return ""
        return (
            f"; LATE_TRANSACTION: {count_text(self.files, 'change file')} with {count_text(self.rows, 'row')} landed after later changes "
            "had been merged, and readers and merges apply them as they are: inserts land, and deletes do not reach what was merged"
        )


@dataclass(frozen=True, slots=True)
class Cut:
    """T, or the reason why the partition has none: then nothing of it can be merged now."""

    up_to: int | None
    reason: PlanReason


def late_changes(files: Iterable[ChangeFile], above: int | None) -> LateChanges:
    """Count the files of late transactions. They are merged as readers apply them now; `above` is the optimized sequence."""
    late = [each.of.file for each in files if each.is_late(above)]
    return LateChanges(len(late), sum(file.record_count for file in late))


def choose_cut(
    files: Sequence[ChangeFile], above: int | None, open_transactions: Sequence[BegunTransaction], max_files: int | None = None
) -> Cut:
    """Choose the highest T for the change files of a partition. `above` is its optimized sequence; None when it has none.

    `open_transactions` are those of the whole table. At most `max_files` change files are merged; None is no limit.
    """
    log = _Log(files, above)
    if not log.has_changes:
        return Cut(None, PlanReason(PlanReasonCode.NOT_FRAGMENTED, f"no change is above the optimized sequence ({_number(above)})"))
    first = min(open_transactions, key=lambda each: each.transaction_id, default=None)
    lowest: int | None = None
    for lowest in log.allowed(_NO_END if first is None else first.transaction_id - 1):
        count = log.count(lowest)
        if max_files is None or count <= max_files:
            text = f"changes above sequence {_number(above)} and up to {lowest}: {count_text(count, 'change file')}"
            return Cut(lowest, PlanReason(PlanReasonCode.PLANNED, text))
    if lowest is not None:
        return Cut(None, _too_many(log.count(lowest), lowest, max_files or 0))
    if first is not None and any(True for _ in log.allowed(_NO_END)):
        return Cut(None, _held_back(files, first))
    return Cut(None, _impossible(files))


class _Log:
    """The change files of one partition, and the numbers that T may be."""

    def __init__(self, files: Sequence[ChangeFile], above: int | None) -> None:
        self._above = above
        self._firsts = sorted(first for each in files if (first := each.first_cut(above)) is not None)
        forbidden = sorted(interval for each in files if (interval := each.forbidden) is not None)
        self._starts, self._ends = _joined(forbidden)
        sequences = {each.sequence for each in files}
        self._highest = max(sequences, default=0)
        # Right above each of these numbers, T merges more or is forbidden. So the highest T that is allowed is one of them, or the limit.
        steps = sequences | {start - 1 for start in self._starts} | {first - 1 for first in self._firsts}
        self._steps = sorted(steps, reverse=True)

    @property
    def has_changes(self) -> bool:
        """Whether a T that is high enough would merge something."""
        return bool(self._firsts)

    def allowed(self, most: int) -> Iterator[int]:
        """The numbers up to `most` that T may be and that merge something, the highest first."""
        most = min(most, self._highest)
        for step in (most, *(step for step in self._steps if step < most)):
            if self._may_be(step) and self.count(step):
                yield step

    def count(self, up_to: int) -> int:
        """How many change files a merge up to this number reads."""
        return bisect_right(self._firsts, up_to)

    def _may_be(self, up_to: int) -> bool:
        if up_to < 0 or (self._above is not None and up_to <= self._above):
            return False
        place = bisect_right(self._starts, up_to) - 1
        return place < 0 or up_to >= self._ends[place]


def _joined(intervals: Sequence[tuple[int, int]]) -> tuple[list[int], list[int]]:
    """The starts and the ends of sorted intervals, after intervals that touch are joined."""
    starts: list[int] = []
    ends: list[int] = []
    for start, end in intervals:
        if ends and start <= ends[-1]:
            ends[-1] = max(ends[-1], end)
        else:
            starts.append(start)
            ends.append(end)
    return starts, ends


def _number(above: int | None) -> str:
    return "none" if above is None else str(above)


def _too_many(count: int, up_to: int, max_files: int) -> PlanReason:
    return PlanReason(
        PlanReasonCode.OVER_BUDGET,
        f"the changes up to sequence {up_to} must be merged together, to keep transactions in order, but they are "
        f"{count_text(count, 'change file')}, and a merge may read {max_files}: raise 'self-optimizing.max-file-count' of the table",
    )


def _held_back(files: Sequence[ChangeFile], first: BegunTransaction) -> PlanReason:
    return PlanReason(
        PlanReasonCode.FILES_IN_USE,
        f"transaction {first.transaction_id} began at {time_text(first.begun_at)} and has not ended: it may still bring changes that come "
        f"before those of {count_text(len(files), 'change file')}, so they wait",
    )


def _impossible(files: Sequence[ChangeFile]) -> PlanReason:
    wrong = next((each for each in files if each.highest(_NO_END) > each.sequence), files[0])
    return PlanReason(
        PlanReasonCode.REFUSED,
        f"change file {wrong.of.file.path} has the data sequence number {wrong.sequence} but changes of transaction "
        f"{wrong.highest(_NO_END)}, and a transaction is never above the sequence number of its files: find out who wrote it, and roll the "
        "change store back",
    )
