from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from compaction_pipeline.core.errors import NotFoundError
from compaction_pipeline.core.fragmentation.verdict import NodeState, NodeVerdict, PlanReason, PlanReasonCode
from compaction_pipeline.core.planning.ports import TableState
from compaction_pipeline.core.queue.task import CompactionType
from compaction_pipeline.core.tables.figures import NodeMetrics
from compaction_pipeline.core.tables.node import PartitionValue, TableNode, node_key
from compaction_pipeline.core.tables.table import TableIdentifier, TableLayout
from compaction_pipeline.storage.stores import Stores
from compaction_pipeline_tests.behaviours.example_tasks import example
from compaction_pipeline_tests.builders import NOW, TABLE, data, node

LATER = NOW + timedelta(hours=1)
OTHER = TableIdentifier("pond", ("a.b", "c"), "orders`x")
LAYOUT = TableLayout("s3://b", 2, 1, {0: "{}", 1: "[]"}, 0, {0: "{}"}, 0, {}, frozenset({3, 4}), {"k": "v"})
REASON = PlanReason(PlanReasonCode.NO_GAIN, "nothing to gain")
FULL_STATE = TableState(
    TABLE,
    table_uuid="u",
    head_snapshot_id=2**62,
    known_snapshot_id=-1,
    known_sequence_number=7,
    last_old_spec_delete_at=NOW,
    complete=True,
    layout=LAYOUT,
    refusal="r",
    problem="p",
    warning="w",
    last_planned_at=NOW,
    last_committed_at=LATER,
    plan_reason=REASON,
    refreshed_at=NOW,
)


def node_state(day: int = 1, **changes: object) -> NodeState:
    return replace(NodeState(TABLE, node(day), node_key(TABLE, node(day)), NodeMetrics(data_files=day)), **changes)  # type: ignore[arg-type]


def test_a_state_comes_back_as_it_was_saved(stores: Stores) -> None:
    for state in (TableState(TABLE), FULL_STATE, TableState(TABLE)):
        stores.tables.save(state)
        assert stores.tables.state(TABLE) == state


def test_states_are_sorted_of_one_catalog_and_without_dropped_tables(stores: Stores) -> None:
    gone = replace(TABLE, name="gone")
    for state in (TableState(OTHER), TableState(TABLE), TableState(gone, dropped=True)):
        stores.tables.save(state)
    assert [state.table for state in stores.tables.states()] == [TABLE, OTHER]
    assert [state.table for state in stores.tables.states("pond")] == [OTHER]


def test_an_update_sets_its_fields_only(stores: Stores) -> None:
    stores.tables.save(FULL_STATE)
    stores.tables.update(TABLE, {"plan_reason": None, "last_planned_at": LATER, "layout": replace(LAYOUT, schema_id=0)})
    assert stores.tables.state(TABLE) == replace(FULL_STATE, plan_reason=None, last_planned_at=LATER, layout=replace(LAYOUT, schema_id=0))
    stores.tables.update(TABLE, {})


@pytest.mark.parametrize("field", ["paused", "table", "no_such_field"])
def test_an_update_of_another_field_is_refused(stores: Stores, field: str) -> None:
    stores.tables.save(FULL_STATE)
    with pytest.raises(ValueError, match=field):
        stores.tables.update(TABLE, {field: True})


def test_an_unknown_table_is_not_found(stores: Stores) -> None:
    for question in (
        lambda: stores.tables.state(TABLE),
        lambda: stores.tables.pause(TABLE, True),
        lambda: stores.tables.update(TABLE, {"problem": "x"}),
        lambda: stores.tables.update(TABLE, {}),
    ):
        with pytest.raises(NotFoundError, match=r"lake\.shop\.orders"):
            question()


def test_only_pause_pauses(stores: Stores) -> None:
    stores.tables.save(TableState(TABLE, paused=True))
    stores.tables.save(TableState(OTHER))
    assert not stores.tables.state(TABLE).paused
    assert stores.tables.pause(TABLE, True) == 1
    stores.tables.save(TableState(TABLE, problem="p"))
    assert stores.tables.state(TABLE) == TableState(TABLE, problem="p", paused=True)
    assert stores.tables.pause(None, True) == 1
    assert stores.tables.pause(None, False) == 2
    assert stores.tables.pause(TABLE, False) == 0


def test_a_node_comes_back_as_it_was_saved(stores: Stores) -> None:
    verdict = NodeVerdict(node(2), CompactionType.MAJOR, REASON, NodeMetrics(rows=9))
    full = node_state(2, verdict=verdict, first_seen=NOW, last_done={CompactionType.FULL: LATER}, changed_snapshot_id=2**60, failing="x")
    stores.tables.save_nodes(TABLE, [full, node_state(1)])
    assert stores.tables.nodes(TABLE) == stores.tables.nodes() == (node_state(1), full)
    assert stores.tables.node(full.key) == full
    assert stores.tables.nodes(OTHER) == ()


def test_a_node_is_found_by_its_cut_key(stores: Stores) -> None:
    long = TableNode(0, (PartitionValue("p", "string", "x" * 9000),))
    state = NodeState(TABLE, long, node_key(TABLE, long), NodeMetrics())
    stores.tables.save_nodes(TABLE, [state])
    assert "~" in state.key
    assert stores.tables.node(state.key).node == long
    with pytest.raises(NotFoundError, match="no-such"):
        stores.tables.node("no-such")


def test_saving_a_node_again_keeps_its_history(stores: Stores) -> None:
    done = {CompactionType.MINOR: LATER, CompactionType.FULL: NOW}
    stores.tables.save_nodes(TABLE, [node_state(first_seen=NOW, last_done=done)])
    stale = {CompactionType.MINOR: NOW, CompactionType.MAJOR: NOW, CompactionType.FULL: LATER}
    stores.tables.save_nodes(TABLE, [node_state(last_done=stale, failing="now")])
    later = {CompactionType.MINOR: LATER, CompactionType.MAJOR: NOW, CompactionType.FULL: LATER}
    assert stores.tables.nodes() == (node_state(first_seen=NOW, last_done=later, failing="now"),)


def test_other_nodes_stay(stores: Stores) -> None:
    stores.tables.save_nodes(TABLE, [node_state(1), node_state(2)])
    stores.tables.save_nodes(TABLE, [node_state(3)])
    assert stores.tables.nodes() == (node_state(1), node_state(2), node_state(3))


def test_done_work_is_marked_by_type_and_never_set_back(stores: Stores) -> None:
    stores.tables.save_nodes(TABLE, [node_state(1), node_state(2)])
    minor, full = CompactionType.MINOR, CompactionType.FULL
    stores.tables.mark_done(TABLE, [(node(1), minor), (node(1), full), (node(9), minor)], LATER)
    stores.tables.mark_done(TABLE, [(node(1), minor)], NOW)
    assert [state.last_done for state in stores.tables.nodes()] == [{minor: LATER, full: LATER}, {}]


def test_a_forgotten_table_leaves_nothing_but_its_records(stores: Stores) -> None:
    stores.tables.save(TableState(TABLE))
    stores.tables.save_nodes(TABLE, [node_state(1)])
    stores.files.apply(TABLE, [], {"m": [data("f")]})
    stores.tasks.insert([example("t1")], [], NOW)
    stores.tasks.poll(None, "me", NOW, timedelta(1))
    stores.tables.forget(TABLE)
    assert (stores.tables.states(), stores.tables.nodes(), stores.files.files(TABLE)) == ((), (), ())
    assert (stores.files.manifests(TABLE), stores.tasks.tasks(), stores.tasks.attempts("t1")) == (frozenset(), (), ())


def test_what_is_seen_is_where_the_metadata_lay_that_was_read_whole(stores: Stores) -> None:
    stores.tables.save(replace(FULL_STATE, metadata_location="m7", refusal=None))
    stores.tables.save(TableState(OTHER))
    assert stores.tables.seen() == {TABLE: "m7", OTHER: None}
    stores.tables.update(TABLE, {"complete": False})
    assert stores.tables.seen()[TABLE] is None
    stores.tables.update(TABLE, {"refusal": "keyed"})
    assert stores.tables.seen()[TABLE] == "m7"
    stores.tables.update(TABLE, {"dropped": True})
    assert stores.tables.seen() == {OTHER: None}


def test_some_nodes_are_answered_and_removed_alone(stores: Stores) -> None:
    states = [NodeState(TABLE, node(day), node_key(TABLE, node(day)), NodeMetrics(data_files=day)) for day in (1, 2, 3)]
    stores.tables.save_nodes(TABLE, states)
    stores.tables.save_nodes(OTHER, [replace(states[0], table=OTHER, key=node_key(OTHER, node(1)))])
    assert [state.metrics.data_files for state in stores.tables.nodes(TABLE, [node(3), node(1), node(9)])] == [1, 3]
    assert stores.tables.nodes(TABLE, []) == ()
    stores.tables.remove_nodes(TABLE, [node(1), node(9)])
    assert [state.metrics.data_files for state in stores.tables.nodes(TABLE)] == [2, 3]
    assert len(stores.tables.nodes(OTHER)) == 1
