"""Decides which snapshots and refs of a table expire, and says for every snapshot that stays why it stays.

The rules, each with the reason for it, are in `core/upkeep/CONTRACT.md`. Nothing here deletes a file.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from compaction_pipeline.core.tables.property_rules import NEVER
from compaction_pipeline.core.upkeep.history import MAIN, History, Ref, Snapshot
from compaction_pipeline.core.upkeep.keepers import Stay, down_to_numbers, newest_marks, newest_of_writers, stronger
from compaction_pipeline.core.upkeep.retention import Retention
from compaction_pipeline.core.words import duration_text


@dataclass(frozen=True, slots=True)
class Expiry:
    """What a table's history becomes at one moment.

    `removed` has the snapshots that go, oldest first, and `dropped_refs` the refs that go, each with the reason. `kept` has every other
    snapshot, with the strongest reason for it. `next_look` is the first moment at which time alone may change the answer; None when it
    never will.
    """

    removed: tuple[int, ...]
    dropped_refs: Mapping[str, str]
    kept: Mapping[int, Stay]
    next_look: datetime | None = None

    @property
    def is_due(self) -> bool:
        """Whether anything goes."""
        return bool(self.removed or self.dropped_refs)


def decide_expiry(history: History, retention: Retention, holds: Iterable[tuple[int, Stay]], now: datetime) -> Expiry:
    """Return what goes now and what stays.

    `holds` are snapshots that somebody outside the table needs, each with the reason: plans of open tasks, transactions that have begun,
    consumers that have not read on.
    """
    held: dict[int, Stay] = {}
    for snapshot_id, stay in holds:
        if snapshot_id in history.snapshots and stay.holds(now):
            held[snapshot_id] = stronger(held.get(snapshot_id), stay)
    dropped, refs = _split_refs(history, retention, held, now)
    looks = [stay.until for stay in refs.values() if stay.until is not None]
    kept = dict(held)
    for name in refs:
        for snapshot_id, stay in _kept_by(history.refs[name], history, retention, held, now):
            kept[snapshot_id] = stronger(kept.get(snapshot_id), stay)
    on_refs = history.reached(ref.snapshot_id for name, ref in history.refs.items() if name in refs and ref.is_branch)
    # What lies below a tag is on no ref, as for Iceberg.
    for snapshot in history.snapshots.values():
        until = snapshot.since + retention.age()
        if snapshot.snapshot_id not in on_refs and until >= now:
            stay = Stay("no ref reaches it, but it is younger than snapshots on no ref must be: it may be staged, or rolled back", until)
            kept[snapshot.snapshot_id] = stronger(kept.get(snapshot.snapshot_id), stay)
    for snapshot_id, stay in [*down_to_numbers(history, kept)]:
        kept[snapshot_id] = stronger(kept.get(snapshot_id), stay)
    gone = [snapshot for snapshot in history.snapshots.values() if snapshot.snapshot_id not in kept]
    looks += [stay.until for stay in kept.values() if stay.until is not None]
    removed = sorted(gone, key=lambda snapshot: (snapshot.made_at, snapshot.snapshot_id))
    return Expiry(tuple(snapshot.snapshot_id for snapshot in removed), dropped, kept, min(looks, default=None))


def _split_refs(
    history: History, retention: Retention, held: Mapping[int, Stay], now: datetime
) -> tuple[Mapping[str, str], Mapping[str, Stay]]:
    """The refs that go, with the reason, and those that stay."""
    dropped, stays = dict[str, str](), dict[str, Stay]()
    for name, ref in history.refs.items():
        most = retention.max_ref_age if ref.max_age is None else ref.max_age
        snapshot = history.snapshots.get(ref.snapshot_id)
        # A ref to a snapshot that metadata does not have cannot be judged.
        until = None if name == MAIN or snapshot is None or most >= NEVER else snapshot.since + most
        stay = Stay("it is young enough", until)
        if not stay.holds(now) and ref.is_branch:
            # Whoever holds a snapshot of a branch also needs what lies above it, and only the branch leads there.
            for one in history.ancestry(ref.snapshot_id):
                stay = stronger(stay, held.get(one.snapshot_id, stay))
        if stay.holds(now):
            stays[name] = stay
        else:
            dropped[name] = f"its snapshot {ref.snapshot_id} is older than {duration_text(most)}, the most that it may be"
    return dropped, stays


def _kept_by(ref: Ref, history: History, retention: Retention, held: Mapping[int, Stay], now: datetime) -> Iterator[tuple[int, Stay]]:
    """What one ref keeps. A tag keeps its snapshot. A branch keeps what is needed of its ancestry, and everything above that.

    Writers that start again walk from the head of a branch to its parents, and stop at the first gap. So there is never a gap.
    """
    if not ref.is_branch:
        if ref.snapshot_id in history.snapshots:
            yield ref.snapshot_id, Stay(f"tag {ref.name} is on it")
        return
    ancestry = list(history.ancestry(ref.snapshot_id))
    needed = _needed_by_branch(ref, ancestry, retention, held, now)
    below: Stay | None = None
    for place in reversed(range(max(needed, default=-1) + 1)):
        snapshot_id, own = ancestry[place].snapshot_id, needed.get(place)
        stay = below if own is None else own if below is None else stronger(own, below)
        assert stay is not None, "the deepest place is needed"
        yield snapshot_id, stay
        if stay is own:
            below = Stay(f"it lies between the head of branch {ref.name} and snapshot {snapshot_id}: {own.reason}", own.until)


def _needed_by_branch(
    ref: Ref, ancestry: Sequence[Snapshot], retention: Retention, held: Mapping[int, Stay], now: datetime
) -> Mapping[int, Stay]:
    needed: dict[int, Stay] = {}

    def need(place: int, reason: str, until: datetime | None = None) -> None:
        needed[place] = stronger(needed.get(place), Stay(reason, until))

    least, age = retention.count(ref.min_to_keep), retention.age(ref.max_snapshot_age)
    for place, snapshot in enumerate(ancestry):
        if place < least:
            need(place, f"branch {ref.name} keeps its {least} newest snapshot(s)")
        if snapshot.since + age >= now:
            need(place, f"it is younger than {duration_text(age)}, which branch {ref.name} keeps", snapshot.since + age)
        if snapshot.snapshot_id in held:
            need(place, held[snapshot.snapshot_id].reason, held[snapshot.snapshot_id].until)
    for place, writer in newest_of_writers(ancestry, retention.writer_keys).items():
        until = ancestry[place].since + retention.writer_retention
        if until >= now:
            need(place, f"it is the newest of the writer {writer}, which looks for it when it starts again", until)
    for place, reason in newest_marks(ancestry, retention.watermark_keys, retention.rows_expire).items():
        need(place, f"{reason} on branch {ref.name}")
    return needed
