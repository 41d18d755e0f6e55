"""Which snapshots somebody still needs, whatever their age: the rules that look at summaries of snapshots, and what others hold."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from compaction_pipeline.core.commit.record import RECORD_ID_PROPERTY
from compaction_pipeline.core.tables.keyed.transactions import BEGIN_KEY
from compaction_pipeline.core.tables.watermark_keys import says_watermark
from compaction_pipeline.core.upkeep.history import History, Snapshot

_WRITERS: tuple[tuple[str, ...], ...] = (("flink.job-id", "flink.operator-id"), ("flink.job-id",), ("spark.sql.streaming.queryId",))
"""Snapshot properties whose values name a streaming writer. A job of Flink may have no operator id. Sources: Iceberg 1.10, `SinkUtil`
(Flink) and `SparkWrite`."""

_KAFKA_OFFSETS = "kafka.connect.offsets."
"""Kafka Connect names its control topic and its consumer group in the key. The value changes with each commit. Source: `Coordinator`."""

_KEYED_MARK = "optimized-sequence.exist"
"""Amoro's mark of a base store: this snapshot carries the transactions up to which each partition is merged."""

_PRODUCER, _UPKEEP_OF_AMORO = "snapshot.producer", frozenset({"OPTIMIZE", "DATA_EXPIRATION", "CLEAN_DANGLING_DELETE"})


@dataclass(frozen=True, slots=True)
class Stay:
    """Why a snapshot or a ref stays. `until` is the last moment of a reason that ends with time; None for a reason that does not."""

    reason: str
    until: datetime | None = None

    def holds(self, now: datetime) -> bool:
        """Whether it stays at this moment."""
        return self.until is None or self.until >= now


def stronger(one: Stay | None, other: Stay) -> Stay:
    """The reason that holds longer. One that does not end with time is the strongest."""
    if one is None or one.until is None:
        return one or other
    return other if other.until is None or other.until > one.until else one


def writers_of(snapshot: Snapshot, more_keys: Iterable[str]) -> Iterator[str]:
    """The names of the streaming writers that this snapshot tells about. `more_keys` are the properties that name other writers."""
    summary = snapshot.summary
    for keys in (*_WRITERS, *((key,) for key in more_keys)):
        if all(key in summary for key in keys):
            yield ", ".join(f"{key}={summary[key]}" for key in keys)
    yield from (key for key in summary if key.startswith(_KAFKA_OFFSETS))


def newest_of_writers(ancestry: Sequence[Snapshot], more_keys: Sequence[str]) -> Mapping[int, str]:
    """The newest snapshot of each writer in this ancestry, by its place there, with the name of one such writer."""
    newest: dict[str, int] = {}
    for place, snapshot in enumerate(ancestry):
        for writer in writers_of(snapshot, more_keys):
            newest.setdefault(writer, place)
    return {place: writer for writer, place in newest.items()}


def open_transactions(snapshots: Iterable[Snapshot], timeout: timedelta) -> Iterator[tuple[int, Stay]]:
    """The snapshots of a change store that say that a transaction began, as long as the transaction may still bring changes.

    Merges wait for such a transaction, and find it by its snapshot alone. `timeout` is `compaction.transaction.timeout` of the base store.
    """
    for one in snapshots:
        if BEGIN_KEY in one.summary:
            reason = f"a transaction began with it ('{BEGIN_KEY}'), and merges wait for the transaction"
            yield one.snapshot_id, Stay(reason, one.since + timeout)


def newest_marks(ancestry: Sequence[Snapshot], watermark_keys: Sequence[str], rows_expire: bool) -> Mapping[int, str]:
    """The newest snapshot of this ancestry with each mark that others look for, by its place there, with the reason.

    A watermark may be under any of `watermark_keys`. `rows_expire` says that old rows of the table are deleted by the time of its last
    change.
    """
    found: dict[str, int] = {}
    for place, snapshot in enumerate(ancestry):
        for reason in _marks(snapshot, watermark_keys):
            found.setdefault(reason, place)
        if rows_expire and not is_of_upkeep(snapshot):
            found.setdefault("it is the newest that is no compaction and no upkeep, and the age of rows counts from it", place)
    return {place: reason for reason, place in found.items()}


def down_to_numbers(history: History, kept: Mapping[int, Stay]) -> Iterator[tuple[int, Stay]]:
    """In a base store, what a reader of a snapshot that stays walks through until it finds what is merged: the snapshots below it, down to
    the nearest with `optimized-sequence.exist`. Without that one it would read merged changes twice.
    """
    if not any(_KEYED_MARK in one.summary for one in history.snapshots.values()):
        return
    for snapshot_id, stay in kept.items():
        walked: list[Snapshot] = []
        for snapshot in history.ancestry(snapshot_id):
            walked.append(snapshot)
            if _KEYED_MARK in snapshot.summary:
                reason = f"readers of snapshot {snapshot_id} find through it what is merged into the base store"
                yield from ((one.snapshot_id, Stay(reason, stay.until)) for one in walked[1:])
                break


def _marks(snapshot: Snapshot, watermark_keys: Sequence[str]) -> Iterator[str]:
    for key in watermark_keys:
        if says_watermark(snapshot.summary, key):
            yield f"it is the newest with the watermark '{key}', which jobs downstream read"
    if _KEYED_MARK in snapshot.summary:
        yield f"it is the newest with '{_KEYED_MARK}', which says what is merged into the base store"


def is_of_upkeep(snapshot: Snapshot) -> bool:
    """Whether a compaction or another job of upkeep made this snapshot: this program, Amoro, or any job whose operation is `replace`."""
    summary = snapshot.summary
    return summary.get("operation") == "replace" or RECORD_ID_PROPERTY in summary or summary.get(_PRODUCER) in _UPKEEP_OF_AMORO
