"""Laws of expiry, over drawn histories: what goes is never more than what Iceberg's own rule removes, and no gap comes into a branch."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from compaction_pipeline.core.upkeep.expiry import Expiry, decide_expiry
from compaction_pipeline.core.upkeep.history import MAIN, History, Snapshot
from compaction_pipeline.core.upkeep.keepers import Stay
from compaction_pipeline.core.upkeep.retention import Retention
from compaction_pipeline_tests.core.upkeep.histories import DAY, NOW, after, histories, retentions

_ends = st.one_of(st.none(), st.integers(-2, 20).map(lambda days: NOW + days * DAY))
Held = Sequence[tuple[int, Stay]]
held_ids = st.lists(st.tuples(st.integers(1, 14), st.builds(Stay, st.sampled_from(["a task", "a consumer"]), _ends)), max_size=3)


def decided(history: History, retention: Retention, held: Held, now: datetime = NOW) -> Expiry:
    return decide_expiry(history, retention, held, now)


def held_at(held: Held, now: datetime = NOW) -> set[int]:
    """The snapshots that somebody holds at this moment."""
    return {snapshot_id for snapshot_id, stay in held if stay.until is None or stay.until >= now}


@given(histories(), retentions, held_ids)
def test_each_snapshot_goes_or_stays(history: History, retention: Retention, held: Held) -> None:
    expiry = decided(history, retention, held)
    assert set(expiry.removed) | set(expiry.kept) == set(history.snapshots)
    assert not set(expiry.removed) & set(expiry.kept)
    assert len(set(expiry.removed)) == len(expiry.removed)


@given(histories(), retentions, held_ids)
def test_what_is_held_and_what_a_ref_names_stays(history: History, retention: Retention, held: Held) -> None:
    expiry = decided(history, retention, held)
    left = {ref.snapshot_id for name, ref in history.refs.items() if name not in expiry.dropped_refs}
    assert not (held_at(held) | left) & set(expiry.removed)
    assert MAIN not in expiry.dropped_refs


@given(histories(), retentions, held_ids)
def test_all_that_lies_above_a_held_snapshot_on_any_branch_stays_with_the_branch_and_nothing_stays_for_one_that_has_ended(
    history: History, retention: Retention, held: Held
) -> None:
    expiry, held_now = decided(history, retention, held), held_at(held)
    for name, ref in history.refs.items():
        ancestry = [one.snapshot_id for one in history.ancestry(ref.snapshot_id)] if ref.is_branch else []
        deepest = max((place for place, snapshot_id in enumerate(ancestry) if snapshot_id in held_now), default=-1)
        assert not set(ancestry[: deepest + 1]) & set(expiry.removed)
        assert deepest < 0 or name not in expiry.dropped_refs
    still = [(snapshot_id, stay) for snapshot_id, stay in held if snapshot_id in held_now]
    assert decided(history, retention, still) == expiry


@given(histories(), retentions, held_ids)
def test_no_branch_gets_a_gap(history: History, retention: Retention, held: Held) -> None:
    """Who walks from the head of a branch to its parents meets everything that stays of this branch's own, and then the end."""
    expiry = decided(history, retention, held)
    others = _needed_elsewhere(history, expiry)
    for name, ref in history.refs.items():
        if name in expiry.dropped_refs or not ref.is_branch:
            continue
        went = False
        for snapshot in history.ancestry(ref.snapshot_id):
            went = went or snapshot.snapshot_id in expiry.removed
            assert not went or snapshot.snapshot_id in expiry.removed or snapshot.snapshot_id in others
            assert not (went and snapshot.snapshot_id in held_at(held))


def _needed_elsewhere(history: History, expiry: Expiry) -> set[int]:
    """Snapshots that may stay below a gap: those of tags, and those that another branch needs."""
    refs = {name: ref for name, ref in history.refs.items() if name not in expiry.dropped_refs}
    ids = {ref.snapshot_id for ref in refs.values() if not ref.is_branch}
    for ref in refs.values():
        if ref.is_branch:
            for snapshot in history.ancestry(ref.snapshot_id):
                if snapshot.snapshot_id in expiry.removed:
                    break
                ids.add(snapshot.snapshot_id)
    return ids


@given(histories(), retentions, held_ids)
def test_iceberg_removes_everything_that_goes_here(history: History, retention: Retention, held: Held) -> None:
    expiry = decided(history, retention, held)
    removed, dropped = removed_by_iceberg(history, retention)
    assert set(expiry.dropped_refs) <= dropped
    assert set(expiry.removed) <= removed


def removed_by_iceberg(history: History, retention: Retention) -> tuple[set[int], set[str]]:
    """What Java's RemoveSnapshots removes with the same properties, written from the specification ("Snapshot Retention Policy")."""

    def age_limit(days: timedelta | None, default: timedelta) -> timedelta:
        return default if days is None else days

    dropped = {
        name
        for name, ref in history.refs.items()
        if name != MAIN
        and (
            ref.snapshot_id not in history.snapshots
            or history.snapshots[ref.snapshot_id].made_at < NOW - age_limit(ref.max_age, retention.max_ref_age)
        )
    }
    kept: set[int] = set()
    reachable: set[int] = set()
    for name, ref in history.refs.items():
        if name in dropped:
            continue
        chain = list(history.ancestry(ref.snapshot_id))
        reachable |= {one.snapshot_id for one in chain} if ref.is_branch else {ref.snapshot_id}
        kept.add(ref.snapshot_id)
        if ref.is_branch:
            kept |= _newest(chain, ref.min_to_keep or retention.min_to_keep, age_limit(ref.max_snapshot_age, retention.max_snapshot_age))
    for one in history.snapshots.values():
        if one.snapshot_id not in reachable and one.made_at >= NOW - retention.max_snapshot_age:
            kept.add(one.snapshot_id)
    return set(history.snapshots) - kept, dropped


def _newest(chain: list[Snapshot], least: int, age: timedelta) -> set[int]:
    kept: set[int] = set()
    for one in chain:
        if len(kept) >= least and one.made_at < NOW - age:
            break
        kept.add(one.snapshot_id)
    return kept


@given(histories(), retentions, held_ids)
def test_a_second_run_at_the_same_moment_finds_nothing(history: History, retention: Retention, held: Held) -> None:
    first = decided(history, retention, held)
    again = decided(after(history, first.removed, first.dropped_refs), retention, held)
    assert again.dropped_refs == {}
    # A snapshot that lay on a gap may lose its last ref. It must be old, so nothing that is young goes.
    assert set(again.removed) <= {number for number, one in history.snapshots.items() if one.since + retention.age() < NOW}


@given(histories(), retentions, held_ids, st.integers(1, 40).map(lambda hours: timedelta(hours=hours)))
def test_nothing_that_went_comes_back_with_time_while_the_refs_stay(
    history: History, retention: Retention, held: Held, later: timedelta
) -> None:
    first, then = decided(history, retention, held), decided(history, retention, held, NOW + later)
    assert set(first.dropped_refs) <= set(then.dropped_refs)
    # What a branch kept for a shorter time than the table is on no ref once that branch is gone.
    assume(set(first.dropped_refs) == set(then.dropped_refs))
    assert set(first.removed) <= set(then.removed)


@given(histories(), retentions, held_ids)
@settings(max_examples=200)
def test_nothing_changes_before_the_next_look(history: History, retention: Retention, held: Held) -> None:
    first = decided(history, retention, held)
    until = first.next_look if first.next_look is not None else NOW + 1000 * DAY
    at_the_look = decided(history, retention, held, max(until, NOW))
    assert (at_the_look.removed, dict(at_the_look.dropped_refs)) == (first.removed, dict(first.dropped_refs))


@given(histories(), retentions)
def test_a_table_that_gets_no_commits_comes_to_rest(history: History, retention: Retention) -> None:
    """A job that looks when it is told to ends with what a job would find that looks after a very long time."""
    now, steps = NOW, 0
    while (look := decided(history, retention, (), now).next_look) is not None and steps < 100:
        now, steps = max(look, now) + timedelta(microseconds=1), steps + 1
    assert steps < 100
    assert decided(history, retention, (), now).removed == decided(history, retention, (), now + 100_000 * DAY).removed
