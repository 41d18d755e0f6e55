"""What the store of readiness promises, on SQLite and on PostgreSQL."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from compaction_pipeline.core.dependencies.answers import Answer
from compaction_pipeline.core.dependencies.judge import KnownPartition
from compaction_pipeline.core.dependencies.ports import (
    AwaitedAnswer,
    PartitionCommits,
    PartitionReading,
    ReadTo,
    Remembered,
    Report,
    ToldAs,
)
from compaction_pipeline.core.dependencies.standing import Standing
from compaction_pipeline.core.dependencies.watermark import Said
from compaction_pipeline.core.stores import Stores
from compaction_pipeline.core.tables.node import PartitionValue
from compaction_pipeline.storage.dependencies import MOST_HEADS
from compaction_pipeline_tests.builders import NOW, TABLE

HOUR = timedelta(hours=1)
SAID = Remembered((Said("flink.watermark", "1767225600000", 2**62, NOW),), {"done": {"day=2026-01-01": True, "day=2026-01-02": False}})
DAY1, DAY2 = (PartitionValue("day", "date", "2026-01-01"),), (PartitionValue("day", "date", "2026-01-02"),)
ANSWER = Answer("day=2026-01-01", "quiet:2h", True, NOW, NOW, (2**62, None), NOW - HOUR, 2, HOUR)


def test_what_heads_said_is_kept_by_store_and_uuid(stores: Stores) -> None:
    memory = stores.dependencies
    assert memory.remember("u", 0, 2**62, None, SAID, NOW)
    assert memory.remember("u", 1, 7, None, Remembered(), NOW)
    assert memory.remembered("u", 0) == {2**62: SAID}
    assert memory.remembered("u", 1) == {7: Remembered()}
    assert memory.remembered("v", 0) == {}
    assert memory.remember("u", 0, 2**62, SAID, Remembered(), NOW + HOUR)
    assert memory.remembered("u", 0) == {2**62: Remembered()}


def test_what_a_head_said_is_changed_only_by_who_knows_what_is_remembered(stores: Stores) -> None:
    memory = stores.dependencies
    assert not memory.remember("u", 0, 1, SAID, Remembered(), NOW)
    assert memory.remembered("u", 0) == {}
    assert memory.remember("u", 0, 1, None, SAID, NOW)
    for known in (None, Remembered()):
        assert not memory.remember("u", 0, 1, known, Remembered(), NOW)
    assert memory.remembered("u", 0) == {1: SAID}


def test_only_the_newest_heads_of_a_store_are_kept(stores: Stores) -> None:
    memory = stores.dependencies
    memory.remember("u", 1, 1, None, SAID, NOW)
    for number in range(MOST_HEADS + 3):
        memory.remember("u", 0, number, None, SAID, NOW + number * HOUR)
    assert set(memory.remembered("u", 0)) == set(range(3, MOST_HEADS + 3))
    assert set(memory.remembered("u", 1)) == {1}


def test_where_watermarks_stand_is_kept_until_nobody_asks(stores: Stores) -> None:
    memory = stores.dependencies
    eu, us = Standing(TABLE, "eu", NOW, NOW - HOUR, NOW), Standing(TABLE, "us", None, NOW, NOW)
    memory.note_standings("u", [us, eu])
    memory.note_standings("v", [Standing(TABLE, "", None, NOW, NOW - HOUR)])
    assert memory.standings("u") == [eu, us]
    assert stores.tables.standings(NOW) == [eu, us]
    assert [one.writer for one in stores.tables.standings(NOW - HOUR)] == ["", "eu", "us"]
    memory.note_standings("u", [us])
    assert memory.standings("u") == [us], "a writer that is not named any more is gone"
    memory.expire(NOW, NOW)
    assert (memory.standings("u"), memory.standings("v")) == ([us], [])


def test_readings_add_up_until_one_is_made_anew(stores: Stores) -> None:
    memory = stores.dependencies
    first = ReadTo((1,), whole=True)
    assert memory.read_to("u") is None
    assert memory.note_reading("u", None, first, PartitionReading((1,), True, (PartitionCommits(0, DAY1, 3, NOW, 1),)), NOW)
    assert memory.read_to("u") == first
    second = ReadTo((2,), whole=True)
    commits = (PartitionCommits(0, DAY1, -3), PartitionCommits(0, DAY2, 1, NOW + HOUR, 2), PartitionCommits(1, DAY2, 5))
    assert memory.note_reading("u", first, second, PartitionReading((2,), False, commits), NOW)
    known = {(one.spec_id, one.partition): one for one in memory.partitions("u")}
    # Partitions without files stay, with the time at which files were added last.
    assert known == {
        (0, DAY1): KnownPartition(0, DAY1, 0, NOW, 1),
        (0, DAY2): KnownPartition(0, DAY2, 1, NOW + HOUR, 2),
        (1, DAY2): KnownPartition(1, DAY2, 5),
    }
    assert memory.partitions("v") == []
    third = ReadTo((3,), whole=True)
    assert memory.note_reading("u", second, third, PartitionReading((3,), True, (PartitionCommits(0, DAY2, 9, NOW, 3),)), NOW)
    assert memory.partitions("u") == [KnownPartition(0, DAY2, 9, NOW, 3)]


def test_a_reading_that_another_one_overtook_changes_nothing(stores: Stores) -> None:
    memory = stores.dependencies
    reading = PartitionReading((1,), True, (PartitionCommits(0, DAY1, 3, NOW, 1),))
    assert memory.note_reading("u", None, ReadTo((1,), True), reading, NOW)
    assert not memory.note_reading("u", None, ReadTo((1,), True), reading, NOW)
    again = PartitionReading((2,), False, (PartitionCommits(0, DAY1, 1, NOW, 2),))
    assert not memory.note_reading("u", ReadTo((1,), False), ReadTo((2,), True), again, NOW)
    assert memory.partitions("u") == [KnownPartition(0, DAY1, 3, NOW, 1)]
    assert memory.read_to("u") == ReadTo((1,), True)


def test_a_later_commit_by_a_slow_clock_makes_a_partition_no_quieter(stores: Stores) -> None:
    memory = stores.dependencies
    first, slow = PartitionCommits(0, DAY1, 1, NOW, 1), PartitionCommits(0, DAY1, 1, NOW - HOUR, 2)
    assert memory.note_reading("u", None, ReadTo((1,), True), PartitionReading((1,), True, (first,)), NOW)
    assert memory.note_reading("u", ReadTo((1,), True), ReadTo((2,), True), PartitionReading((2,), False, (slow,)), NOW)
    assert memory.partitions("u") == [KnownPartition(0, DAY1, 2, NOW, 2)]


def test_partitions_are_told_apart_by_their_texts(stores: Stores) -> None:
    memory = stores.dependencies
    values: tuple[str | int | float | bool | None, ...] = (1, 1.0, True, "1", None, "null")
    commits = tuple(PartitionCommits(0, (PartitionValue("p", "any", value),), 1) for value in values)
    assert memory.note_reading("u", None, ReadTo((1,), True), PartitionReading((1,), True, commits), NOW)
    assert len(memory.partitions("u")) == len(values)


def test_answers_and_who_awaits_them_are_kept(stores: Stores) -> None:
    memory = stores.dependencies
    other = Answer("day=2026-01-02", "watermark", False, NOW, NOW)
    memory.save_answers(TABLE, "u", [ANSWER, other])
    assert memory.answers("u", [ANSWER.what, other.what, "day=2026-01-03"]) == {ANSWER.what: ANSWER, other.what: other}
    assert memory.answers("v", [ANSWER.what]) == {}
    assert memory.awaited(NOW) == []
    memory.await_answers("u", [other.what], NOW + HOUR, anew=True)
    first = AwaitedAnswer(TABLE, "u", other.what, NOW + HOUR)
    assert memory.awaited(NOW + HOUR) == [first]
    assert memory.awaited(NOW + 2 * HOUR) == []
    memory.note_told(first, "a change", ToldAs.WITHDRAWN)
    memory.save_answers(TABLE, "u", [other])
    told = replace(first, told="a change", told_as=ToldAs.WITHDRAWN)
    assert memory.awaited(NOW) == [told]
    memory.await_answers("u", [other.what], NOW + 2 * HOUR, anew=False)
    assert memory.awaited(NOW) == [replace(told, until=NOW + 2 * HOUR)]
    # What was being told when somebody awaited it anew is told to them, too.
    memory.await_answers("u", [other.what], NOW + 3 * HOUR, anew=True)
    memory.note_told(first, "another change", ToldAs.READY)
    (third,) = memory.awaited(NOW)
    assert third == replace(told, until=NOW + 3 * HOUR)
    # That it was told to be ready is not forgotten.
    memory.note_told(third, "a change", ToldAs.READY)
    for _ in range(2):
        memory.await_answers("u", [other.what], third.until, anew=True)
        assert memory.awaited(NOW) == [replace(third, told_as=ToldAs.READY_AGAIN)]


def test_a_report_marks_the_table_until_it_is_taken_if_its_answers_are_awaited(stores: Stores) -> None:
    memory, other = stores.dependencies, replace(TABLE, name="other")
    for table, uuid in ((TABLE, "u"), (other, "v")):
        memory.save_answers(table, uuid, [replace(ANSWER, what=what) for what in ("a=1", "a=2")])
        memory.note_reported(table, NOW)
    assert memory.take_reported(NOW) == []
    memory.await_answers("u", ["a=1", "a=2"], NOW + HOUR, anew=True)
    memory.await_answers("v", ["a=1"], NOW + HOUR, anew=True)
    memory.note_reported(TABLE, NOW + HOUR)
    memory.note_reported(other, NOW + 2 * HOUR)
    both = [AwaitedAnswer(TABLE, "u", "a=1", NOW + HOUR), AwaitedAnswer(TABLE, "u", "a=2", NOW + HOUR)]
    assert memory.take_reported(NOW + HOUR) == both
    assert memory.take_reported(NOW) == []
    memory.note_reported(TABLE, NOW)
    memory.note_reported(other, NOW)
    assert memory.take_reported(NOW) == sorted([*both, AwaitedAnswer(other, "v", "a=1", NOW + HOUR)], key=lambda one: str(one.table))


def test_reports_are_kept_until_they_are_withdrawn(stores: Stores) -> None:
    memory = stores.dependencies
    memory.report("u", Report("day=2026-01-02", NOW))
    memory.report("u", Report("day=2026-01-01", NOW))
    memory.report("u", Report("day=2026-01-01", NOW + HOUR))
    memory.report("v", Report("day=2026-01-01", NOW))
    assert memory.reports("u") == [Report("day=2026-01-01", NOW + HOUR), Report("day=2026-01-02", NOW)]
    assert memory.withdraw("u", "day=2026-01-01")
    assert not memory.withdraw("u", "day=2026-01-01")
    assert memory.reports("u") == [Report("day=2026-01-02", NOW)]
    assert memory.reports("v") == [Report("day=2026-01-01", NOW)]


def test_what_nobody_asked_for_expires(stores: Stores) -> None:
    memory = stores.dependencies
    for uuid, at in (("old", NOW), ("new", NOW + 2 * HOUR)):
        memory.remember(uuid, 0, 1, None, SAID, at)
        memory.note_reading(uuid, None, ReadTo((1,), True), PartitionReading((1,), True, (PartitionCommits(0, DAY1, 1, NOW, 1),)), at)
        memory.save_answers(TABLE, uuid, [Answer("day=2026-01-01", "watermark", True, NOW, at)])
        memory.report(uuid, Report("day=2026-01-01", at))
    # What is as old as that stays.
    memory.expire(NOW, NOW)
    assert memory.answers("old", ["day=2026-01-01"])
    assert len(memory.reports("old")) == 1
    memory.expire(NOW + HOUR, NOW - HOUR)
    assert (memory.remembered("old", 0), memory.read_to("old"), memory.partitions("old")) == ({}, None, [])
    assert memory.answers("old", ["day=2026-01-01"]) == {}
    assert len(memory.reports("old")) == 1
    assert memory.remembered("new", 0)
    assert memory.read_to("new")
    assert memory.partitions("new")
    assert memory.answers("new", ["day=2026-01-01"])
    # Nothing was committed since, but somebody asks.
    memory.save_answers(TABLE, "new", [Answer("day=2026-01-01", "watermark", True, NOW, NOW + 9 * HOUR)])
    memory.expire(NOW + 8 * HOUR, NOW - HOUR)
    assert memory.remembered("new", 0)
    assert memory.read_to("new")
    assert memory.partitions("new")
    memory.expire(NOW, NOW + HOUR)
    assert memory.reports("old") == []
    assert len(memory.reports("new")) == 1
