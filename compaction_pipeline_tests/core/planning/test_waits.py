"""A FULL waits until its partition is ready, and a MAJOR until nobody writes to it any more. Other work does not wait."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from itertools import product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compaction_pipeline.core.fragmentation.verdict import NodeHistory, NodeState, NodeVerdict, PlanReason, PlanReasonCode, since_first_due
from compaction_pipeline.core.planning.frame import Judged, _not_ready
from compaction_pipeline.core.planning.keyed.in_work import InWork
from compaction_pipeline.core.planning.keyed.planner import plan_keyed
from compaction_pipeline.core.planning.plain.planner import Planning
from compaction_pipeline.core.planning.plan import Circumstances, CompactionPlan, PlanRequest
from compaction_pipeline.core.planning.waits import NOTHING_WAITS, Waits, closed_windows, places_to_ask
from compaction_pipeline.core.queue.open_work import InUse
from compaction_pipeline.core.tables.data_file import LiveFile
from compaction_pipeline.core.tables.figures import NodeMetrics
from compaction_pipeline.core.tables.keyed.keyed_files import KeyedContent
from compaction_pipeline.core.tables.live_files import TableFiles
from compaction_pipeline.core.tables.node import Place, TableNode
from compaction_pipeline.core.tables.properties import TableProperties
from compaction_pipeline.core.windows import Window
from compaction_pipeline.core.words import duration_text
from compaction_pipeline.core.work.kinds import CompactionType, TaskAction
from compaction_pipeline.core.work.work import Work
from compaction_pipeline_tests import strategies
from compaction_pipeline_tests.builders import NOW, PLENTY, TABLE, data, forced, node, properties, table_files
from compaction_pipeline_tests.core.planning.keyed.simulation import PARTITIONS, SimTable
from compaction_pipeline_tests.core.planning.keyed.test_node_rewrites import _RULES, add

MINOR, MAJOR, FULL = CompactionType.MINOR, CompactionType.MAJOR, CompactionType.FULL
HOUR, DAY = timedelta(hours=1), timedelta(days=1)
FULL_RULES = properties(full_interval=DAY, full_when_ready=True, minor_interval=400 * DAY)
COLD_RULES = properties(major_cold_after=HOUR)
MISSING = "the watermark is 2026-01-01 and must be 2026-01-02"


def plan(
    files: TableFiles,
    waits: Waits,
    rules: TableProperties,
    history: NodeHistory = NodeHistory(),
    request: PlanRequest = PlanRequest(),
    in_use: InUse = InUse(),
) -> CompactionPlan:
    planning = Planning(in_use, rules, request, history, PLENTY, NOW, waits)
    planning.add(files)
    return planning.plan()


def types(found: CompactionPlan) -> list[CompactionType]:
    return [work.type for work in found.tasks]


def due_for_full(*days: int) -> NodeHistory:
    return NodeHistory(first_seen={node(day): NOW - 2 * DAY for day in days})


def test_a_full_of_a_partition_that_is_not_ready_is_not_planned_and_says_what_is_missing() -> None:
    files = table_files(data("a"), data("b"), data("c", day=2), data("d", day=2))
    waits = Waits(not_ready={node(1).place: MISSING})
    found = plan(files, waits, FULL_RULES, due_for_full(1, 2))
    assert [(work.type, work.node) for work in found.tasks] == [(FULL, node(2))]
    told = next(verdict for verdict in found.verdicts if verdict.node == node(1))
    assert (told.reason.code, told.type) == (PlanReasonCode.NOT_READY, FULL)
    assert told.reason.text == f"no FULL for {duration_text(DAY)}; it waits until its partition is ready: {MISSING}"
    alone = plan(table_files(data("a"), data("b")), waits, FULL_RULES, due_for_full(1))
    assert (alone.tasks, alone.reason.code) == ((), PlanReasonCode.NOT_READY)
    assert MISSING in alone.reason.text


def test_other_work_of_the_partition_does_not_wait() -> None:
    waits = Waits(not_ready={node(1).place: MISSING})
    found = plan(table_files(*(data(f"f{number:02}") for number in range(12))), waits, FULL_RULES, due_for_full(1))
    assert types(found) == [MINOR]
    # Undersized files are the work of a MAJOR.
    assert types(plan(table_files(data("a", 300), data("b", 300)), waits, properties(), due_for_full(1))) == [MAJOR]


def test_what_a_person_forces_waits_for_nothing() -> None:
    files = table_files(replace(data("a", 300), added_snapshot_id=5), data("b", 300))
    waits = Waits({node(1).place: MISSING}, {5: NOW})
    assert types(plan(files, waits, FULL_RULES, due_for_full(1), forced(FULL))) == [FULL]
    assert types(plan(files, waits, COLD_RULES, request=forced(MAJOR))) == [MAJOR]


def written(minutes_ago: float) -> tuple[TableFiles, Waits]:
    """A partition with work for a MAJOR, and what is known of its commits."""
    young = replace(data("a", 300), added_snapshot_id=5)
    return table_files(young, data("b", 300)), Waits(commits={5: NOW - timedelta(minutes=minutes_ago)})


@pytest.mark.parametrize(("minutes_ago", "expected"), [(0, []), (59, []), (60, [MAJOR]), (1000, [MAJOR])])
def test_a_major_waits_until_no_file_was_added_for_some_time(minutes_ago: float, expected: list[CompactionType]) -> None:
    files, waits = written(minutes_ago)
    found = plan(files, waits, COLD_RULES)
    assert types(found) == expected
    assert types(plan(files, waits, properties())) == [MAJOR], "the table does not ask for it"
    if not expected:
        (told,) = found.verdicts
        assert (told.reason.code, told.type, found.reason.code) == (PlanReasonCode.NOT_READY, MAJOR, PlanReasonCode.NOT_READY)
        assert "2 undersized data files can be joined; it waits until no file was added for 1 h (" in told.reason.text


def test_the_newest_of_several_commits_to_a_partition_counts() -> None:
    files = table_files(*(replace(data(name, 300), added_snapshot_id=snapshot) for name, snapshot in (("a", 5), ("b", 6), ("c", 7))))
    quiet = dict.fromkeys((5, 6, 7), NOW - HOUR)
    assert types(plan(files, Waits(commits=quiet), COLD_RULES)) == [MAJOR]
    for newest in quiet:
        assert types(plan(files, Waits(commits={**quiet, newest: NOW - HOUR + timedelta(seconds=1)}), COLD_RULES)) == []


@pytest.mark.parametrize("code", PlanReasonCode)
def test_only_a_node_without_other_work_or_hindrance_is_told_to_wait(code: PlanReasonCode) -> None:
    verdict = NodeVerdict(node(1), MINOR, PlanReason(code, "why"), NodeMetrics())
    judged: Judged[Work] = Judged({node(1): verdict}, (), {}, {}, waits={node(1): PlanReason(PlanReasonCode.NOT_READY, "it waits")})
    (told,) = _not_ready(judged, Circumstances(COLD_RULES, PlanRequest(), NodeHistory(), NOW)).values()
    if code in (PlanReasonCode.NOT_FRAGMENTED, PlanReasonCode.NO_GAIN):
        assert (told.type, told.reason) == (MAJOR, PlanReason(PlanReasonCode.NOT_READY, "it waits"))
    else:
        assert told == verdict


@pytest.mark.parametrize(("waited", "expected"), [(timedelta(hours=23), []), (timedelta(hours=24), [MAJOR])])
def test_a_major_waits_for_a_day_at_most(waited: timedelta, expected: list[CompactionType]) -> None:
    files, waits = written(1)
    assert types(plan(files, waits, COLD_RULES, NodeHistory(held_since={node(1): NOW - waited}))) == expected


def test_the_longest_wait_begins_when_a_plan_first_finds_the_work_and_not_with_the_files() -> None:
    files, waits = written(5 * 60)
    rules = properties(major_cold_after=2 * DAY, major_cold_at_most=HOUR)
    assert types(plan(files, waits, rules)) == []
    assert types(plan(files, waits, rules, NodeHistory(held_since={node(1): NOW - HOUR}))) == [MAJOR]


def test_who_forces_other_work_is_not_told_of_a_full_that_waits() -> None:
    files, waits = table_files(data("a")), Waits({node(1).place: MISSING})
    (told,) = plan(files, waits, FULL_RULES, due_for_full(1), forced(MINOR)).verdicts
    (free,) = plan(files, NOTHING_WAITS, FULL_RULES, due_for_full(1), forced(MINOR)).verdicts
    assert (told, told.reason.code is PlanReasonCode.NOT_READY) == (free, False)


def test_small_files_of_a_partition_that_is_written_to_are_merged_by_a_minor() -> None:
    files, waits = written(1)
    small = [replace(data(f"f{number:02}"), added_snapshot_id=5) for number in range(12)]
    found = plan(replace(files, files=(*files.files, *small)), waits, COLD_RULES)
    assert types(found) == [MINOR]
    assert {file.path for work in found.tasks for file in work.inputs} == {file.path for file in small}


def state(held_hours: float | None, code: PlanReasonCode, kind: CompactionType | None) -> NodeState:
    held = None if held_hours is None else NOW - timedelta(hours=held_hours)
    return NodeState(TABLE, node(1), "k", NodeMetrics(), NodeVerdict(node(1), kind, PlanReason(code, "why"), NodeMetrics(), None, held))


@pytest.mark.parametrize(
    ("before", "code", "kind", "hours"),
    [
        (None, PlanReasonCode.NOT_READY, MAJOR, 0),
        (5, PlanReasonCode.NOT_READY, MAJOR, 5),
        # MINORs go on meanwhile, and are no reason to wait anew.
        (5, PlanReasonCode.PLANNED, MINOR, 5),
        (5, PlanReasonCode.FILES_IN_USE, None, 5),
        (None, PlanReasonCode.PLANNED, MINOR, None),
        (5, PlanReasonCode.PLANNED, MAJOR, None),
        (5, PlanReasonCode.PLANNED, FULL, None),
        (5, PlanReasonCode.NOT_FRAGMENTED, None, None),
        (5, PlanReasonCode.NO_GAIN, MAJOR, None),
    ],
)
def test_how_long_a_node_has_waited_is_remembered_until_its_work_is_planned(
    before: float | None, code: PlanReasonCode, kind: CompactionType | None, hours: float | None
) -> None:
    verdict = NodeVerdict(node(1), kind, PlanReason(code, "why"), NodeMetrics())
    found = since_first_due(verdict, state(before, PlanReasonCode.NOT_READY, MAJOR), NOW).held_since
    assert found == (None if hours is None else NOW - timedelta(hours=hours))


def test_only_partitions_that_are_due_for_a_full_are_asked_about() -> None:
    history = NodeHistory(first_seen={node(1): NOW - 2 * DAY, node(2): NOW})
    nodes = [node(1), node(2)]
    assert places_to_ask(nodes, history, FULL_RULES, NOW) == {node(1).place}
    assert places_to_ask(nodes, history, properties(full_interval=DAY), NOW) == frozenset()


# ---- laws


def young_files(files: TableFiles, young: frozenset[str]) -> TableFiles:
    return replace(files, files=tuple(replace(file, added_snapshot_id=5) if file.path in young else file for file in files.files))


def contents(found: CompactionPlan) -> list[tuple[object, ...]]:
    works = ((work.node, work.type, tuple(file.path for file in work.inputs), work.converts) for work in found.tasks)
    return sorted(works, key=repr)


@given(strategies.live_files(), strategies.table_properties(), st.data())
def test_a_plan_with_work_that_waits_is_the_plan_of_somebody_who_does_not_ask_for_it(
    files: TableFiles, rules: TableProperties, choose: st.DataObject
) -> None:
    """When all partitions wait for FULL, for MAJOR or for both, the tasks are those of a request without these types."""
    in_use = choose.draw(strategies.in_use(files))
    full, major = choose.draw(st.booleans()), choose.draw(st.booleans())
    nodes = {file.node for file in files.files}
    history = NodeHistory(first_seen=dict.fromkeys(nodes, NOW - 400 * DAY)) if choose.draw(st.booleans()) else NodeHistory()
    rules = replace(rules, full_when_ready=True, major_cold_after=HOUR)
    waits = Waits({each.place: MISSING for each in nodes} if full else {}, {5: NOW} if major else {})
    written_to = young_files(files, frozenset(file.path for file in files.files)) if major else files
    found = plan(written_to, waits, rules, history, in_use=in_use)
    left = tuple(kind for kind in CompactionType if not (kind is FULL and full) and not (kind is MAJOR and major))
    expected = plan(written_to, NOTHING_WAITS, rules, history, PlanRequest(left), in_use)
    assert contents(found) == contents(expected)
    if full:
        assert FULL not in types(found)
    if major:
        assert MAJOR not in types(found)


@given(strategies.live_files(), strategies.table_properties(), st.data())
def test_what_waits_and_what_does_not_are_told_for_every_node(files: TableFiles, rules: TableProperties, choose: st.DataObject) -> None:
    nodes = sorted({file.node for file in files.files}, key=str)
    history = NodeHistory(first_seen=dict.fromkeys(nodes, NOW - 400 * DAY))
    held = choose.draw(st.sets(st.sampled_from(nodes))) if nodes else set()
    young = choose.draw(st.sets(st.sampled_from([file.path for file in files.files]))) if files.files else set()
    rules = replace(rules, full_when_ready=True, major_cold_after=HOUR)
    waits = Waits({each.place: MISSING for each in held}, {5: NOW})
    found = plan(young_files(files, frozenset(young)), waits, rules, history)
    hot = {file.node for file in files.files if file.path in young}
    for work in found.tasks:
        if work.action is TaskAction.MERGE:
            assert not (work.type is FULL and work.node in held)
            assert not (work.type is MAJOR and work.node in hot)
    for verdict in found.verdicts:
        if verdict.reason.code is PlanReasonCode.NOT_READY:
            assert verdict.node in (held if verdict.type is FULL else hot)
            assert verdict.type in (FULL, MAJOR)


INSTANT = timedelta(microseconds=1)
AGES = (timedelta(0), HOUR - INSTANT, HOUR, 5 * HOUR)
WAITED = (None, timedelta(0), DAY - INSTANT, DAY, 2 * DAY)


def own_work(found: CompactionPlan, files: TableFiles) -> list[Work]:
    """The work that concerns its own partition alone.

    A task that drops dangling deletes concerns the whole table, whatever node it names. A global equality delete goes when all partitions
    that it reaches are merged or converted together, so a conversion of one in one partition is of use only beside the others.
    """
    everywhere = {file.path for file in files.files if not file.is_data and file.node.spec_id in files.unpartitioned_spec_ids}
    return [
        work
        for work in found.tasks
        if work.action is not TaskAction.DROP_DELETES and not (work.action is TaskAction.CONVERT and everywhere.intersection(work.converts))
    ]


def of_places(found: CompactionPlan, files: TableFiles, places: set[Place]) -> list[tuple[object, ...]]:
    """The work on these partitions that concerns each of them alone."""
    return contents(replace(found, tasks=tuple(work for work in own_work(found, files) if work.node.place in places)))


def codes_of_places(found: CompactionPlan, files: TableFiles, places: set[Place]) -> dict[TableNode, PlanReasonCode]:
    """Why there is work on the nodes of these partitions, or none. What concerns more than the partition is no gain of its own."""
    gaining = {work.node for work in own_work(found, files)}
    return {
        verdict.node: PlanReasonCode.NO_GAIN
        if verdict.reason.code is PlanReasonCode.PLANNED and verdict.node not in gaining
        else verdict.reason.code
        for verdict in found.verdicts
        if verdict.node.place in places
    }


@given(strategies.live_files(), strategies.table_properties(), st.data())
def test_a_node_waits_exactly_as_long_as_its_rule_says(files: TableFiles, rules: TableProperties, choose: st.DataObject) -> None:
    """Each example is judged at twenty times: around the end of the quiet time, and of the longest wait.

    Where the rule says that nodes wait, the plan is the one in which they wait for ever. Where it says that they do not, it is the one of
    somebody who does not ask for it.
    """
    nodes = sorted({file.node for file in files.files}, key=str)
    hot = choose.draw(st.sets(st.sampled_from(nodes))) if nodes else set()
    written_to = young_files(files, frozenset(file.path for file in files.files if file.node in hot))
    rules = replace(rules, full_when_ready=True, major_cold_after=HOUR, major_cold_at_most=DAY)
    for_ever = replace(rules, major_cold_after=900 * DAY, major_cold_at_most=900 * DAY)
    seen = dict.fromkeys(nodes, NOW - 400 * DAY)
    for age, waited in product(AGES, WAITED):
        history = NodeHistory(first_seen=seen, held_since={} if waited is None else dict.fromkeys(nodes, NOW - waited))
        waits = age < HOUR and (waited is None or waited < DAY)
        found = plan(written_to, Waits(commits={5: NOW - age}), rules, history)
        expected = plan(written_to, Waits(commits={5: NOW}) if waits else NOTHING_WAITS, for_ever, history)
        assert contents(found) == contents(expected)
        told = {verdict.node for verdict in found.verdicts if verdict.reason.code is PlanReasonCode.NOT_READY}
        assert told <= (hot if waits else set())


@given(strategies.live_files(), strategies.table_properties(), st.data())
def test_what_waits_holds_up_no_other_partition(files: TableFiles, rules: TableProperties, choose: st.DataObject) -> None:
    nodes = sorted({file.node for file in files.files}, key=str)
    places = {each.place for each in nodes}
    history = NodeHistory(first_seen=dict.fromkeys(nodes, NOW - 400 * DAY))
    rules = replace(rules, full_when_ready=True, full_interval=choose.draw(st.sampled_from([None, DAY])), major_cold_after=HOUR)
    free = plan(files, NOTHING_WAITS, rules, history)
    for full, major in product((True, False), repeat=2):
        held = choose.draw(st.sets(st.sampled_from(nodes))) if nodes else set()
        young = frozenset(file.path for file in files.files if file.node in held)
        waits = Waits({each.place: MISSING for each in held} if full else {}, {5: NOW} if major else {})
        found = plan(young_files(files, young), waits, rules, history)
        others = places - {each.place for each in held}
        assert of_places(found, files, others) == of_places(free, files, others)
        assert codes_of_places(found, files, others) == codes_of_places(free, files, others)


@given(strategies.live_files(), strategies.table_properties(), st.data())
def test_a_person_waits_for_nothing(files: TableFiles, rules: TableProperties, choose: st.DataObject) -> None:
    nodes = {file.node for file in files.files}
    history = NodeHistory(first_seen=dict.fromkeys(nodes, NOW - 400 * DAY)) if choose.draw(st.booleans()) else NodeHistory()
    rules = replace(rules, full_when_ready=True, full_interval=choose.draw(st.sampled_from([None, DAY])), major_cold_after=HOUR)
    everything = Waits({each.place: MISSING for each in nodes}, {5: NOW})
    written_to = young_files(files, frozenset(file.path for file in files.files))
    for kinds in ((MINOR,), (MAJOR,), (FULL,), tuple(CompactionType)):
        request = PlanRequest(kinds, force=True)
        found = plan(written_to, everything, rules, history, request)
        free = plan(written_to, NOTHING_WAITS, rules, history, request)
        assert contents(found) == contents(free)
        assert [verdict.reason for verdict in found.verdicts] == [verdict.reason for verdict in free.verdicts]


def test_a_major_waits_for_the_newest_of_the_commits_that_added_to_its_partition() -> None:
    commits = {5: NOW - HOUR / 4, 6: NOW - HOUR / 2, 7: NOW}
    waiting = Waits(commits=commits).major(node(0), frozenset({4, 5, 6}), NodeHistory(), COLD_RULES, NOW + HOUR / 2)
    assert waiting is not None
    assert Waits(commits=commits).major(node(0), frozenset({4, 5, 6}), NodeHistory(), COLD_RULES, NOW + 3 * HOUR / 4) is None


# ---- keyed tables


def of_keyed(table: SimTable, waits: Waits, young: LiveFile | None, history: NodeHistory = NodeHistory(), **rules: Any) -> CompactionPlan:
    files = table.files()
    if young is not None:
        changes = tuple(replace(file, added_snapshot_id=5) if file.path == young.path else file for file in files.changes)
        files = replace(files, changes=changes)
    of = Circumstances(replace(_RULES, **rules), PlanRequest(), history, NOW, waits)
    return plan_keyed(KeyedContent(files, (), frozenset()), {"base.file-index.hash-bucket": "2"}, InWork(), of, PLENTY)


def test_a_major_of_a_keyed_table_waits_for_its_partition_alone() -> None:
    table = SimTable()
    for partition in (0, 1):
        for _ in range(3):
            add(table, "I", size=20, partition=partition)
    assert {work.type for work in of_keyed(table, NOTHING_WAITS, None).tasks} == {MAJOR}
    hot = next(file for file in table.files().changes if file.partition == PARTITIONS[0])
    found = of_keyed(table, Waits(commits={5: NOW}), hot, major_cold_after=HOUR)
    assert {(work.type, work.node.partition) for work in found.tasks} == {(MAJOR, PARTITIONS[1])}
    waiting = [verdict for verdict in found.verdicts if verdict.reason.code is PlanReasonCode.NOT_READY]
    assert {(verdict.node.partition, verdict.type) for verdict in waiting} == {(PARTITIONS[0], MAJOR)}


def test_a_full_of_a_keyed_table_waits_until_its_partition_is_ready() -> None:
    table = SimTable()
    add(table, "I", size=20)
    (file,) = table.files().changes
    place = (file.spec_id, file.partition)
    nodes = [verdict.node for verdict in of_keyed(table, NOTHING_WAITS, None).verdicts]
    history = NodeHistory(first_seen=dict.fromkeys(nodes, NOW - 2 * DAY))
    assert {work.type for work in of_keyed(table, NOTHING_WAITS, None, history, full_interval=DAY).tasks} == {FULL}
    found = of_keyed(table, Waits({place: MISSING}), None, history, full_interval=DAY)
    assert (found.tasks, found.reason.code) == ((), PlanReasonCode.NOT_READY)
    assert MISSING in found.reason.text


@pytest.mark.parametrize("which", [0, 1])
def test_a_partition_with_a_full_and_a_major_that_wait_tells_of_the_full_whichever_node_is_due(which: int) -> None:
    table = SimTable()
    for number in range(6):
        add(table, "I", size=20, node=(1, number % 2))
    hot = table.files().changes[0]
    place = (hot.spec_id, hot.partition)
    nodes = [verdict.node for verdict in of_keyed(table, NOTHING_WAITS, None).verdicts]
    assert len(nodes) == 2
    history = NodeHistory(first_seen={nodes[which]: NOW - 2 * DAY, nodes[1 - which]: NOW})
    rules = {"full_interval": DAY, "major_cold_after": HOUR}
    found = of_keyed(table, Waits({place: MISSING}, {5: NOW}), hot, history, **rules)
    assert {(verdict.reason.code, verdict.type) for verdict in found.verdicts} == {(PlanReasonCode.NOT_READY, FULL)}


NIGHT = {"full_window": Window.parse("00:00-00:01 UTC"), "major_window": Window.parse("00:00-00:01 UTC")}


def test_a_full_and_a_major_wait_for_their_windows_and_a_minor_does_not() -> None:
    rules = replace(FULL_RULES, full_when_ready=False, **NIGHT)
    waits = Waits(outside=closed_windows(rules, NOW))
    held = plan(table_files(data("a"), data("b")), waits, rules, due_for_full(1))
    assert held.tasks == ()
    (verdict,) = held.verdicts
    assert (verdict.type, verdict.reason.code) == (FULL, PlanReasonCode.OUTSIDE_WINDOW)
    assert "waits for its window 00:00-00:01 UTC, which opens at " in verdict.reason.text
    open_now = replace(rules, full_window=Window.parse("00:00-00:00 UTC"))
    assert closed_windows(open_now, NOW).keys() == {MAJOR}
    assert types(plan(table_files(data("a"), data("b")), Waits(outside=closed_windows(open_now, NOW)), open_now, due_for_full(1))) == [FULL]


def test_a_wait_for_a_window_counts_as_waiting_for_writers() -> None:
    """Else a MAJOR that waits for both would never be planned at the latest."""
    verdict = NodeVerdict(node(1), MAJOR, PlanReason(PlanReasonCode.OUTSIDE_WINDOW, "it waits"), NodeMetrics())
    before = since_first_due(verdict, NodeState(TABLE, node(1), "k", NodeMetrics()), NOW)
    assert before.held_since == NOW
    waits = replace(verdict, reason=PlanReason(PlanReasonCode.NOT_READY, "it waits"))
    assert since_first_due(waits, NodeState(TABLE, node(1), "k", NodeMetrics(), before), NOW + DAY).held_since == NOW
