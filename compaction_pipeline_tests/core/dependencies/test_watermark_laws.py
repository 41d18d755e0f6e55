"""Laws of the watermark of a table: what compactions, expiry and rollbacks do to it, on drawn histories."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta, timezone

from hypothesis import given
from hypothesis import strategies as st

from compaction_pipeline.core.dependencies.watermark import (
    Watermark,
    WatermarkRule,
    WatermarkStore,
    carried,
    said,
    watermark_of_stores,
)
from compaction_pipeline.core.upkeep.history import MAIN, History, Ref, Snapshot
from compaction_pipeline_tests.core.dependencies.test_watermark import EPOCH, MAX, MIN, line
from compaction_pipeline_tests.one_store import watermark_of

HOUR = timedelta(hours=1)
KEYS = ("watermark", "flink.watermark", "kafka.connect.valid-through-ts", "eu", "us")
_VALUES = st.one_of(st.integers(0, 9).map(lambda n: str(n * 1_800_000)), st.sampled_from(["-1", MIN, MAX, "1970-01-01T02:00Z"]))
summaries = st.dictionaries(st.sampled_from(KEYS), _VALUES, max_size=3)
rules = st.one_of(
    st.just(WatermarkRule()),
    st.builds(WatermarkRule, st.lists(st.sampled_from(KEYS), min_size=1, unique=True).map(tuple)),
    st.builds(WatermarkRule, writers=st.dictionaries(st.sampled_from("xyz"), st.sampled_from(KEYS), min_size=1, max_size=3)),
)


histories = st.lists(summaries, min_size=1, max_size=8).map(lambda found: line(*found))


def time_of(found: Watermark | None) -> datetime | None:
    return None if found is None else found.at


def on_top(history: History, summary: Mapping[str, str]) -> History:
    head = history.refs[MAIN].snapshot_id
    made = Snapshot(head + 1, head, EPOCH + (head + 1) * HOUR, summary)
    return History({**history.snapshots, head + 1: made}, {MAIN: Ref(MAIN, head + 1, is_branch=True)})


def without(history: History, up_to: int) -> History:
    return History({number: one for number, one in history.snapshots.items() if number > up_to}, history.refs)


def naive(history: History, rule: WatermarkRule) -> datetime | None:
    """The rule once more, from the oldest snapshot to the head: what was said last stands."""

    def value(text: str, number: int) -> datetime | None:
        if text in ("-1", MIN):
            return None
        if text == MAX:
            return EPOCH + number * HOUR
        return datetime(1970, 1, 1, 2, tzinfo=timezone.utc) if text.endswith("Z") else EPOCH + timedelta(milliseconds=int(text))

    def last(keys: tuple[str, ...]) -> datetime | None:
        stands = None
        for number in sorted(history.snapshots):
            summary = history.snapshots[number].summary
            values = [time for key in keys if key in summary for time in [value(summary[key], number)] if time is not None]
            stands = min(values) if values else stands
        return stands

    if not rule.writers:
        return last(rule.keys)
    of_writers = [last((key,)) for key in rule.writers.values()]
    known = [each for each in of_writers if each is not None]
    return min(known) if len(known) == len(of_writers) else None


@given(histories, rules)
def test_it_is_what_was_said_last(history: History, rule: WatermarkRule) -> None:
    assert time_of(watermark_of(history, {}, rule)) == naive(history, rule)


@given(histories, rules, st.sampled_from(["append", "replace", "overwrite", "delete"]))
def test_a_snapshot_without_a_key_changes_nothing(history: History, rule: WatermarkRule, operation: str) -> None:
    before = watermark_of(history, {}, rule)
    assert watermark_of(on_top(history, {"operation": operation}), {}, rule) == before


@given(histories, rules, st.integers(1, 3), st.integers(0, 12))
def test_commits_of_ours_change_nothing_and_whatever_expires_below_them(
    history: History, rule: WatermarkRule, commits: int, expired: int
) -> None:
    before = time_of(watermark_of(history, {}, rule))
    for _ in range(commits):
        history = on_top(history, {"operation": "replace", **carried(history, history.refs[MAIN].snapshot_id, rule)})
        assert time_of(watermark_of(history, {}, rule)) == before
    history = without(history, min(expired, history.refs[MAIN].snapshot_id - 1))
    assert time_of(watermark_of(history, {}, rule)) == before


@given(histories, rules, rules, summaries)
def test_a_copy_by_another_rule_never_outdoes_what_writers_said(
    history: History, copied_by: WatermarkRule, rule: WatermarkRule, said_after: Mapping[str, str]
) -> None:
    """A person, a namespace or a catalog may change the rule between a compaction and a reading."""
    expected = watermark_of(history, {}, rule)
    copied = on_top(history, {"operation": "replace", **carried(history, history.refs[MAIN].snapshot_id, copied_by)})
    assert watermark_of(copied, {}, rule) == expected
    alone = on_top(history, {})
    assert time_of(watermark_of(on_top(copied, said_after), {}, rule)) == time_of(watermark_of(on_top(alone, said_after), {}, rule))


@given(histories, rules, summaries, st.integers(0, 12))
def test_what_a_writer_says_beside_a_compaction_counts_as_if_there_were_none(
    history: History, rule: WatermarkRule, writers: Mapping[str, str], expired: int
) -> None:
    """The compaction was planned before the writer's commit, and comes after it."""
    alone = on_top(history, writers)
    beside = on_top(alone, {"operation": "replace", **carried(alone, alone.refs[MAIN].snapshot_id, rule)})
    assert time_of(watermark_of(beside, {}, rule)) == time_of(watermark_of(alone, {}, rule))
    # The other way round the writer's snapshot is the newest.
    first = on_top(history, {"operation": "replace", **carried(history, history.refs[MAIN].snapshot_id, rule)})
    after = on_top(first, {key: text for key, text in writers.items() if text != MAX})
    expected = on_top(history, {key: text for key, text in writers.items() if text != MAX})
    assert time_of(watermark_of(after, {}, rule)) == time_of(watermark_of(expected, {}, rule))


@given(histories, rules, st.data())
def test_a_rollback_takes_back_what_came_after(history: History, rule: WatermarkRule, data: st.DataObject) -> None:
    to = data.draw(st.integers(1, history.refs[MAIN].snapshot_id))
    rolled_back = History(history.snapshots, {MAIN: Ref(MAIN, to, is_branch=True)})
    alone = History({number: one for number, one in history.snapshots.items() if number <= to}, rolled_back.refs)
    assert watermark_of(rolled_back, {}, rule) == watermark_of(alone, {}, rule)


@given(histories, rules, st.data())
def test_what_is_remembered_of_an_ancestor_stands_for_what_expired(history: History, rule: WatermarkRule, data: st.DataObject) -> None:
    head = history.refs[MAIN].snapshot_id
    expired = data.draw(st.integers(0, head - 1))
    read_at = data.draw(st.integers(expired or 1, head))
    known = {read_at: said(History(history.snapshots, {MAIN: Ref(MAIN, read_at, is_branch=True)}), rule)}
    assert watermark_of(without(history, expired), {}, rule, known) == watermark_of(history, {}, rule)


@given(histories, rules)
def test_one_writer_less_never_lowers_it(history: History, rule: WatermarkRule) -> None:
    whole = watermark_of(history, {}, rule)
    if whole is None or len(rule.writers) < 2:
        return
    for name in rule.writers:
        fewer = WatermarkRule(writers={other: key for other, key in rule.writers.items() if other != name})
        found = watermark_of(history, {}, fewer)
        assert found is not None
        assert found.at >= whole.at


@given(histories, histories, st.dictionaries(st.sampled_from(["a", "b"]), st.integers(0, 18_000_000)))
def test_the_watermark_of_a_keyed_table_is_bounded_by_both_stores_and_by_its_sinks(
    base: History, change: History, marks: Mapping[str, int]
) -> None:
    rule = WatermarkRule()
    properties = {f"compaction.sink.{sink}.watermark": str(number) for sink, number in marks.items()}
    found = watermark_of_stores((WatermarkStore(base, properties), WatermarkStore(change, {})), rule)
    of_stores = [each.at for each in (watermark_of(base, {}, rule), watermark_of(change, {}, rule)) if each is not None]
    expected = max(of_stores, default=None)
    if expected is not None and marks:
        expected = min(expected, EPOCH + timedelta(milliseconds=min(marks.values())))
    assert time_of(found) == expected
