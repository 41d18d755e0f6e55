"""The four values of a table and the facts about its nodes. Each value is written by its own port, and all are read together."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta

import pytest

from compaction_pipeline.core.commit.table_commits import TableCommits
from compaction_pipeline.core.errors import NotFoundError
from compaction_pipeline.core.fragmentation.verdict import NodeState, NodeVerdict, PlanReason, PlanReasonCode
from compaction_pipeline.core.insight.known_table import KnownTable
from compaction_pipeline.core.planning.table_planning import TablePlanning
from compaction_pipeline.core.stores import Stores
from compaction_pipeline.core.tables.figures import MeasuredNode, NodeMetrics
from compaction_pipeline.core.tables.index import Empty, Failed, IndexState, Reading, Refused, TableIndex, Unread, WholeRead
from compaction_pipeline.core.tables.node import PartitionValue, TableNode
from compaction_pipeline.core.tables.node_keys import short_key
from compaction_pipeline.core.tables.switch import TableSwitch
from compaction_pipeline.core.tables.table import CatalogEntry, TableIdentifier
from compaction_pipeline.core.work.kinds import CompactionType
from compaction_pipeline_tests.behaviours.example_tasks import example
from compaction_pipeline_tests.builders import COMPLETE, LOADED, NOW, TABLE, data, indexed, node

LATER = NOW + timedelta(hours=1)
OTHER = TableIdentifier("pond", ("a.b", "c"), "orders`x")
REASON = PlanReason(PlanReasonCode.NO_GAIN, "nothing to gain")
WHOLE = replace(COMPLETE, snapshot_id=-1, sequence_number=2**62, landed=1)
STATES: tuple[IndexState, ...] = (
    Unread(),
    Reading(LOADED),
    Reading(LOADED, "a property breaks its rule"),
    WHOLE,
    replace(WHOLE, landed=0, property_problem="a property breaks its rule"),
    Empty(LOADED, "m1", "read 1", NOW, 1, "a property breaks its rule"),
    Empty(LOADED, "m1", "read 1", NOW),
    Refused("format v3"),
    Refused("format v3", LOADED, "m1"),
    Failed("the catalog is away"),
    Failed("the catalog is away", LOADED),
)
PLANNING = TablePlanning(NOW, REASON, "not planned", "read 0")
COMMITS = TableCommits(1, LATER, "no right", 3, NOW)


def measured(day: int = 1, **changes: int) -> MeasuredNode:
    return MeasuredNode(node(day), NodeMetrics(data_files=day, **changes), 2**60 + day)


def node_state(day: int = 1, **changes: object) -> NodeState:
    """The node that the reader returns after `measured` was saved at NOW."""
    known = measured(day)
    state = NodeState(TABLE, node(day), short_key(TABLE, node(day)), known.metrics, None, NOW, {}, known.changed_snapshot_id)
    return replace(state, **changes)  # type: ignore[arg-type]


@pytest.mark.parametrize("state", STATES, ids=lambda state: type(state).__name__)
def test_an_index_comes_back_as_it_was_saved(stores: Stores, state: IndexState) -> None:
    stores.index.add(TABLE)
    earlier = None if isinstance(state, (type(WHOLE), Empty)) else WholeRead(9, LATER)
    for index in (TableIndex(TABLE, state), TableIndex(TABLE, state, earlier, NOW, "two compactors"), TableIndex(TABLE, state)):
        indexed(stores, index)
        assert stores.tables.state(TABLE) == KnownTable(index)


def test_the_last_read_of_a_table_without_a_snapshot_is_remembered(stores: Stores) -> None:
    indexed(stores, TableIndex(TABLE, Failed("away"), WholeRead(None, NOW)))
    assert stores.tables.state(TABLE).index.last_read == WholeRead(None, NOW)


def test_each_value_is_written_whole_and_leaves_the_others(stores: Stores) -> None:
    index = TableIndex(TABLE, WHOLE, None, NOW, "w")
    indexed(stores, index)
    stores.planning.save(TABLE, PLANNING)
    stores.commits.note_landed(TABLE, LATER)
    stores.commits.note_failure(TABLE, "no right", 3, NOW)
    stores.switches.pause(TABLE, True)
    assert stores.tables.state(TABLE) == KnownTable(index, PLANNING, COMMITS, TableSwitch(True))
    stores.index.add(TABLE)
    assert stores.tables.state(TABLE) == KnownTable(index, PLANNING, COMMITS, TableSwitch(True))
    stores.commits.note_landed(TABLE, NOW)
    landed = TableCommits(2, NOW)
    assert stores.tables.state(TABLE) == KnownTable(index, PLANNING, landed, TableSwitch(True))
    assert stores.tables.waiting_for_room() == {}
    stores.planning.save(TABLE, TablePlanning(queue_full_since=NOW))
    assert stores.tables.waiting_for_room() == {TABLE: NOW}
    stores.planning.save(TABLE, TablePlanning())
    assert stores.tables.waiting_for_room() == {}
    assert stores.tables.state(TABLE) == KnownTable(index, TablePlanning(), landed, TableSwitch(True))
    indexed(stores, TableIndex(TABLE))
    assert stores.tables.state(TABLE) == KnownTable(TableIndex(TABLE), TablePlanning(), landed, TableSwitch(True))


def test_an_index_is_saved_only_over_the_version_that_it_was_made_from(stores: Stores) -> None:
    stores.index.add(TABLE)
    first = stores.tables.state(TABLE).index_version
    second = stores.index.save(TableIndex(TABLE, Reading(LOADED)), first)
    assert second is not None
    assert stores.tables.state(TABLE).index_version == second
    assert stores.index.save(TableIndex(TABLE, WHOLE), first) is None
    assert stores.index.begin_anew(TABLE, first) is None
    assert stores.tables.state(TABLE).index == TableIndex(TABLE, Reading(LOADED))
    assert stores.index.save(TableIndex(TABLE, WHOLE), second) not in (None, first, second)


def test_a_table_that_is_forgotten_and_found_again_has_another_version(stores: Stores) -> None:
    stores.index.add(TABLE)
    before = stores.tables.state(TABLE).index_version
    stores.index.forget(TABLE)
    stores.index.add(TABLE)
    assert stores.index.save(TableIndex(TABLE, WHOLE), before) is None
    assert stores.tables.state(TABLE) == KnownTable(TableIndex(TABLE))


def test_tables_are_sorted_and_of_one_catalog(stores: Stores) -> None:
    for table in (OTHER, TABLE):
        stores.index.add(table)
    assert [known.table for known in stores.tables.states()] == [TABLE, OTHER]
    assert [known.table for known in stores.tables.states("pond")] == [OTHER]


@pytest.mark.parametrize(
    "question",
    [
        lambda stores: stores.tables.state(TABLE),
        lambda stores: stores.switches.pause(TABLE, True),
        lambda stores: stores.index.save(TableIndex(TABLE), "1"),
        lambda stores: stores.planning.save(TABLE, TablePlanning()),
        lambda stores: stores.commits.note_landed(TABLE, NOW),
        lambda stores: stores.commits.note_failure(TABLE, "no right", 1, NOW),
    ],
)
def test_an_unknown_table_is_not_found(stores: Stores, question: Callable[[Stores], object]) -> None:
    with pytest.raises(NotFoundError, match=r"lake\.shop\.orders"):
        question(stores)


def test_a_node_remembers_since_when_it_has_small_files_until_it_has_none(stores: Stores) -> None:
    stores.index.add(TABLE)
    for since in (NOW, LATER, None):
        stores.index.save_figures(TABLE, [replace(measured(), small_since=since)], NOW)
        assert stores.tables.nodes(TABLE) == (node_state(small_since=since),)


def test_while_all_tables_are_paused_a_new_one_is_paused_too(stores: Stores) -> None:
    stores.index.add(TABLE)
    stores.switches.pause(None, True)
    stores.index.add(OTHER)
    assert stores.tables.state(OTHER).paused
    stores.switches.pause(OTHER, False)
    stores.index.add(OTHER)
    assert not stores.tables.state(OTHER).paused
    stores.index.forget(OTHER)
    stores.switches.pause(None, False)
    stores.index.add(OTHER)
    assert not stores.tables.state(OTHER).paused


def test_a_pause_outlives_a_table_that_is_forgotten_and_found_again(stores: Stores) -> None:
    stores.catalogs.add(CatalogEntry("lake", {}))
    stores.index.add(TABLE)
    stores.index.add(OTHER)
    stores.switches.pause(TABLE, True)
    for forget in (lambda: stores.index.forget(TABLE), lambda: stores.catalogs.remove("lake")):
        forget()
        stores.index.add(TABLE)
        assert stores.tables.state(TABLE).paused
    assert stores.switches.pause(TABLE, False) == 1
    stores.index.forget(TABLE)
    stores.index.add(TABLE)
    assert not stores.tables.state(TABLE).paused


def test_a_forgotten_table_can_be_resumed(stores: Stores) -> None:
    for table in (TABLE, None):
        stores.index.add(TABLE)
        stores.switches.pause(TABLE, True)
        stores.index.forget(TABLE)
        assert stores.switches.pause(table, False) == (table is not None)
        stores.index.add(TABLE)
        assert not stores.tables.state(TABLE).paused
        stores.index.forget(TABLE)
        with pytest.raises(NotFoundError):
            stores.switches.pause(TABLE, False)


def test_pausing_one_table_does_not_pause_new_ones(stores: Stores) -> None:
    stores.index.add(TABLE)
    stores.switches.pause(TABLE, True)
    stores.index.add(OTHER)
    assert not stores.tables.state(OTHER).paused


def test_pause_answers_how_many_tables_changed(stores: Stores) -> None:
    stores.index.add(TABLE)
    stores.index.add(OTHER)
    assert not stores.tables.state(TABLE).paused
    assert stores.switches.pause(TABLE, True) == 1
    assert stores.tables.state(TABLE).paused
    assert stores.switches.pause(None, True) == 1
    assert stores.switches.pause(None, False) == 2
    assert stores.switches.pause(TABLE, False) == 0


def test_a_table_that_begins_anew_keeps_only_its_switch(stores: Stores) -> None:
    indexed(stores, TableIndex(TABLE, WHOLE))
    stores.index.save_figures(TABLE, [measured(1)], NOW)
    stores.files.apply(TABLE, [], {"m": [data("f")]})
    stores.commits.note_landed(TABLE, NOW)
    stores.switches.pause(TABLE, True)
    assert stores.index.begin_anew(TABLE, stores.tables.state(TABLE).index_version) == stores.tables.state(TABLE).index_version
    assert stores.tables.state(TABLE) == KnownTable(TableIndex(TABLE), switch=TableSwitch(True))
    assert (stores.tables.nodes(TABLE), stores.files.files(TABLE)) == ((), ())


def test_a_node_has_the_facts_of_three_ports(stores: Stores) -> None:
    verdict = NodeVerdict(node(2), CompactionType.MAJOR, PlanReason(PlanReasonCode.FAILING, "no memory"), NodeMetrics(rows=9))
    stores.index.save_figures(TABLE, [measured(2), measured(1)], NOW)
    stores.planning.save_verdicts(TABLE, [verdict, replace(verdict, node=node(9))])
    stores.commits.mark_done(TABLE, [(node(2), CompactionType.FULL)], LATER)
    full = node_state(2, verdict=verdict, failing="no memory", last_done={CompactionType.FULL: LATER})
    assert stores.tables.nodes(TABLE) == stores.tables.nodes() == (node_state(1), full)
    assert stores.tables.node(full.key) == full
    assert stores.tables.nodes(OTHER) == ()


def test_a_node_is_found_by_its_cut_key(stores: Stores) -> None:
    long = TableNode(0, (PartitionValue("p", "string", "x" * 9000),))
    stores.index.save_figures(TABLE, [MeasuredNode(long, NodeMetrics(), None)], NOW)
    key = short_key(TABLE, long)
    assert "~" in key
    assert stores.tables.node(key).node == long
    with pytest.raises(NotFoundError, match="no-such"):
        stores.tables.node("no-such")


def test_measuring_a_node_again_changes_its_figures_only(stores: Stores) -> None:
    verdict = NodeVerdict(node(1), None, REASON, NodeMetrics())
    stores.index.save_figures(TABLE, [measured(1), measured(2)], NOW)
    stores.planning.save_verdicts(TABLE, [verdict])
    stores.commits.mark_done(TABLE, [(node(1), CompactionType.MINOR)], NOW)
    stores.index.save_figures(TABLE, [replace(measured(1, rows=5), changed_snapshot_id=8), measured(3)], LATER)
    again = node_state(
        1,
        metrics=NodeMetrics(data_files=1, rows=5),
        changed_snapshot_id=8,
        verdict=verdict,
        last_done={CompactionType.MINOR: NOW},
    )
    assert stores.tables.nodes() == (again, node_state(2), node_state(3, first_seen=LATER))


def test_verdicts_of_one_table_are_forgotten_but_its_failures_are_not(stores: Stores) -> None:
    verdict = NodeVerdict(node(1), None, PlanReason(PlanReasonCode.FAILING, "no memory"), NodeMetrics())
    for table in (TABLE, OTHER):
        stores.index.save_figures(table, [measured(1)], NOW)
        stores.planning.save_verdicts(table, [verdict])
    stores.index.forget_verdicts(TABLE)
    assert stores.tables.nodes(TABLE) == (node_state(1, failing="no memory"),)
    assert [state.verdict for state in stores.tables.nodes(OTHER)] == [verdict]


def test_done_work_is_marked_by_type_and_never_set_back(stores: Stores) -> None:
    stores.index.save_figures(TABLE, [measured(1), measured(2)], NOW)
    minor, full = CompactionType.MINOR, CompactionType.FULL
    stores.commits.mark_done(TABLE, [(node(1), minor), (node(1), full), (node(9), minor)], LATER)
    stores.commits.mark_done(TABLE, [(node(1), minor)], NOW)
    assert [state.last_done for state in stores.tables.nodes()] == [{minor: LATER, full: LATER}, {}]


def test_a_forgotten_table_leaves_nothing_but_its_records(stores: Stores) -> None:
    stores.index.add(TABLE)
    stores.index.save_figures(TABLE, [measured(1)], NOW)
    stores.files.apply(TABLE, [], {"m": [data("f")]})
    stores.tasks.insert([example("t1")], [], NOW)
    stores.tasks.poll(None, "me", NOW, timedelta(1))
    stores.index.forget(TABLE)
    assert (stores.tables.states(), stores.tables.nodes(), stores.files.files(TABLE)) == ((), (), ())
    assert (stores.files.manifests(TABLE), stores.tasks.tasks(), stores.tasks.attempts("t1")) == (frozenset(), (), ())


@pytest.mark.parametrize("state", STATES, ids=lambda state: type(state).__name__)
def test_seen_gives_the_metadata_location_of_a_table_that_need_not_be_read(stores: Stores, state: IndexState) -> None:
    indexed(stores, TableIndex(TABLE, state))
    stores.index.add(OTHER)
    for _ in range(3):
        for planning in (TablePlanning(), TablePlanning(distrusted_read_id="read 1")):
            stores.planning.save(TABLE, planning)
            known = stores.tables.state(TABLE)
            assert stores.tables.seen() == {TABLE: known.metadata_location, OTHER: None}
            assert (known.metadata_location is None) == (known.whole is None and state != Refused("format v3", LOADED, "m1"))
        stores.commits.note_landed(TABLE, NOW)


def test_an_index_is_whole_until_a_newer_commit_or_a_plan_that_distrusts_it(stores: Stores) -> None:
    indexed(stores, TableIndex(TABLE, WHOLE))
    assert stores.tables.state(TABLE).whole is None
    stores.commits.note_landed(TABLE, NOW)
    assert stores.tables.state(TABLE).whole == WHOLE
    stores.planning.save(TABLE, TablePlanning(distrusted_read_id=WHOLE.read_id))
    assert stores.tables.state(TABLE).whole is None
    stores.planning.save(TABLE, TablePlanning(distrusted_read_id="read 0"))
    stores.commits.note_landed(TABLE, NOW)
    assert stores.tables.state(TABLE).whole is None


def test_some_nodes_are_answered_and_removed_alone(stores: Stores) -> None:
    stores.index.save_figures(TABLE, [measured(day) for day in (1, 2, 3)], NOW)
    stores.index.save_figures(OTHER, [measured(1)], NOW)
    assert [state.metrics.data_files for state in stores.tables.nodes(TABLE, [node(3), node(1), node(9)])] == [1, 3]
    assert stores.tables.nodes(TABLE, []) == ()
    stores.index.remove_nodes(TABLE, [node(1), node(9)])
    assert [state.metrics.data_files for state in stores.tables.nodes(TABLE)] == [2, 3]
    assert len(stores.tables.nodes(OTHER)) == 1


CHANGES: dict[str, Callable[[Stores], object]] = {
    "a new node": lambda stores: stores.index.save_figures(TABLE, [measured(3)], NOW),
    "new figures": lambda stores: stores.index.save_figures(TABLE, [measured(1, rows=7)], LATER),
    "a node less": lambda stores: stores.index.remove_nodes(TABLE, [node(1)]),
    "a verdict": lambda stores: stores.planning.save_verdicts(TABLE, [NodeVerdict(node(1), None, REASON, NodeMetrics(rows=8))]),
    "no verdicts": lambda stores: stores.index.forget_verdicts(TABLE),
    "work that was done": lambda stores: stores.commits.mark_done(TABLE, [(node(2), CompactionType.FULL)], LATER),
    "a table that begins anew": lambda stores: stores.index.begin_anew(TABLE, stores.tables.state(TABLE).index_version),
    "a table less": lambda stores: stores.index.forget(TABLE),
    "a catalog less": lambda stores: stores.catalogs.remove("lake"),
    "a table more": lambda stores: stores.index.add(replace(TABLE, name="new")),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_nodes_of_tables_are_those_of_now_after_each_change(stores: Stores, change: Callable[[Stores], object]) -> None:
    stores.catalogs.add(CatalogEntry("lake", {}))
    for table in (TABLE, OTHER):
        stores.index.add(table)
        stores.index.save_figures(table, [measured(2), measured(1)], NOW)
        stores.planning.save_verdicts(table, [NodeVerdict(node(1), None, REASON, NodeMetrics())])
    before = stores.tables.nodes_of_tables()
    change(stores)
    after = stores.tables.nodes_of_tables()
    assert after == {known.table: stores.tables.nodes(known.table) for known in stores.tables.states()}
    assert after[OTHER] is before[OTHER], "the nodes of a table that did not change are not read again"
    assert after != before


def test_nodes_of_a_table_that_comes_back_are_read_anew(stores: Stores) -> None:
    stores.index.add(TABLE)
    stores.index.save_figures(TABLE, [measured(1)], NOW)
    assert [state.first_seen for state in stores.tables.nodes_of_tables()[TABLE]] == [NOW]
    stores.index.forget(TABLE)
    stores.index.add(TABLE)
    assert stores.tables.nodes_of_tables() == {TABLE: ()}
    stores.index.save_figures(TABLE, [measured(1)], LATER)
    assert [state.first_seen for state in stores.tables.nodes_of_tables()[TABLE]] == [LATER]
