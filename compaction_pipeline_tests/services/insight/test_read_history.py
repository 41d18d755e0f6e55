"""What a person is told about the state."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from compaction_pipeline.core.commit.record import RecordStatus
from compaction_pipeline.core.errors import NotFoundError
from compaction_pipeline.core.fragmentation.verdict import NodeState, NodeVerdict, PlanReason, PlanReasonCode
from compaction_pipeline.core.planning.ports import TableState
from compaction_pipeline.core.queue.task import CompactionType, TaskStatus
from compaction_pipeline.core.tables.figures import NodeMetrics
from compaction_pipeline.core.tables.table import CatalogEntry, TableIdentifier, TableLayout
from compaction_pipeline.services.insight.read_history import SHOWN, Health, ReadHistory, worst_first
from compaction_pipeline_tests.defs.values import NOW, ORDERS, live_file, node_state, overview, record, task
from compaction_pipeline_tests.fakes import fake_stores

WATCHED = TableIdentifier("watched", ("shop",), "orders")


class Desk:
    def __init__(self) -> None:
        self.stores = fake_stores()
        self.stores.catalogs.add(CatalogEntry("lake", {}))
        self.stores.catalogs.add(CatalogEntry("watched", {}, observe=True))
        self.history = ReadHistory(
            self.stores.catalogs, self.stores.tables, self.stores.files, self.stores.tasks, self.stores.records, lambda: NOW
        )

    def table(self, table: TableIdentifier, *nodes: NodeState, **changes: object) -> None:
        self.stores.tables.save(replace(TableState(table, complete=True), **changes))  # type: ignore[arg-type]
        self.stores.tables.save_nodes(table, nodes)


def judged(
    number: int, code: PlanReasonCode, kind: CompactionType | None = None, table: TableIdentifier = ORDERS, small: int = 9, files: int = 10
) -> NodeState:
    state = node_state(number, table, data_files=files, small_data_files=small, data_bytes=1000)
    return replace(state, verdict=NodeVerdict(state.node, kind, PlanReason(code, f"because {number}"), state.metrics))


def due(number: int, table: TableIdentifier = ORDERS, small: int = 9, files: int = 10) -> NodeState:
    return judged(number, PlanReasonCode.PLANNED, CompactionType.MINOR, table, small, files)


@pytest.fixture
def desk() -> Desk:
    return Desk()


def test_an_empty_state_is_an_answer(desk: Desk) -> None:
    status = desk.history.status()
    assert (status.tables, status.worst, status.records, status.nodes, status.due) == ((), (), (), 0, 0)
    assert status.queue.open == 0


def test_a_node_that_is_due_says_so_unless_nobody_may_do_it(desk: Desk) -> None:
    desk.table(ORDERS, due(1))
    desk.table(WATCHED, due(1, WATCHED))
    health = {node.table: (node.health, node.reason) for node in desk.history.worst_nodes()}
    assert health[ORDERS] == (Health.DUE, "because 1")
    assert health[WATCHED] == (Health.WAITING, "because 1; the catalog is only observed")
    desk.stores.tables.pause(ORDERS, True)
    assert desk.history.table(ORDERS).nodes[0].health is Health.WAITING


def test_a_verdict_of_other_files_is_not_due(desk: Desk) -> None:
    moved = replace(due(1), metrics=replace(due(1).metrics, data_files=1, small_data_files=0))
    desk.table(ORDERS, moved, due(2), refreshed_at=NOW)
    desk.stores.tables.mark_done(ORDERS, [(due(2).node, CompactionType.MINOR)], NOW + timedelta(seconds=1))
    nodes = desk.history.worst_nodes()
    assert {node.health for node in nodes} == {Health.WAITING}
    assert "changed since it was judged (because 1)" in {node.reason for node in nodes if node.key == moved.key}.pop()


def test_records_of_a_table_that_nobody_knows_are_an_error_and_those_of_one_that_is_gone_are_shown(desk: Desk) -> None:
    with pytest.raises(NotFoundError, match=r"table lake\.shop\.orders is not known"):
        desk.history.records(ORDERS)
    desk.table(ORDERS)
    assert desk.history.records(ORDERS) == ()
    done = record()
    desk.stores.records.save(done)
    desk.stores.tables.forget(ORDERS)
    assert desk.history.records(ORDERS) == (done,)
    with pytest.raises(NotFoundError, match="'nowhere' is not registered"):
        desk.history.records(TableIdentifier("nowhere", ("shop",), "orders"))


def test_a_table_that_changed_is_not_called_unread(desk: Desk) -> None:
    desk.table(ORDERS, complete=False)
    assert desk.history.tables()[0].reason.startswith("its files were not read yet")
    assert not desk.history.tables()[0].is_read
    desk.table(ORDERS, complete=False, refreshed_at=NOW)
    assert desk.history.tables()[0].reason == "changed since its files were read; read again at the next tick"


def test_a_refused_table_shows_its_reason_on_itself_and_its_nodes(desk: Desk) -> None:
    desk.table(ORDERS, due(1), refusal="format v3 is not written yet")
    detail = desk.history.table(ORDERS)
    assert (detail.overview.health, detail.overview.reason) == (Health.REFUSED, "format v3 is not written yet")
    assert detail.nodes[0].health is Health.REFUSED


def test_a_failing_node_is_the_table_s_word(desk: Desk) -> None:
    desk.table(ORDERS, due(1), replace(due(2), failing="task t failed 4 times: no memory"))
    found = desk.history.tables()[0]
    assert found.health is Health.FAILING
    assert "day=2026-01-02: task t failed" in found.reason


def test_the_figures_of_a_table_are_those_of_its_nodes(desk: Desk) -> None:
    desk.table(ORDERS, due(1), due(2, small=1, files=2))
    metrics = desk.history.tables()[0].metrics
    assert (metrics.data_files, metrics.small_files, metrics.data_bytes) == (12, 10, 2000)


def test_worst_nodes_come_first_and_are_few(desk: Desk) -> None:
    desk.table(ORDERS, *(due(number) for number in range(1, 29)))
    assert len(desk.history.worst_nodes()) == SHOWN
    assert len(desk.history.status().worst) == SHOWN
    assert desk.history.status().due == 28


def test_order_is_by_word_then_fragmentation_then_small_files() -> None:
    few = overview(1, data_files=2, small_data_files=2)
    many = overview(2, data_files=501, small_data_files=500)
    half = overview(3, data_files=900, small_data_files=450)
    waiting = overview(4, Health.WAITING, data_files=900, small_data_files=900)
    failing = overview(5, Health.FAILING, data_files=1, small_data_files=0)
    assert worst_first([waiting, half, few, failing, many]) == (failing, many, few, half, waiting)


def test_a_table_shows_properties_in_force_and_those_without_effect(desk: Desk) -> None:
    own = {"self-optimizing.fragment-ratio": "4", "self-optimizing.max-retry": "3", "self-optimizing.fragmnt": "1"}
    layout = TableLayout("s3://lake/orders", 2, 0, {}, 0, {}, 0, {}, frozenset(), own)
    desk.table(ORDERS, layout=layout)
    found = desk.history.table(ORDERS).properties
    assert found is not None
    assert (found.fragment_ratio, found.ignored, found.unknown) == (4, ("self-optimizing.max-retry",), ("self-optimizing.fragmnt",))


def test_a_property_out_of_bounds_is_told_and_hides_nothing_else(desk: Desk) -> None:
    layout = TableLayout("s3://lake/orders", 2, 0, {}, 0, {}, 0, {}, frozenset(), {"self-optimizing.fragment-ratio": "1"})
    desk.table(ORDERS, due(1), layout=layout)
    detail = desk.history.table(ORDERS)
    assert detail.properties is None
    assert detail.property_error is not None
    assert "'self-optimizing.fragment-ratio' is 1 but must be ≥ 2 and < 2^31; the table sets it: ALTER TABLE " in detail.property_error
    assert len(detail.nodes) == 1


def test_files_are_read_only_when_asked(desk: Desk) -> None:
    desk.table(ORDERS)
    desk.stores.files.apply(ORDERS, (), {"m1": [live_file(2), live_file(1)]})
    assert desk.history.table(ORDERS).files == ()
    assert [str(file.node) for file in desk.history.table(ORDERS, with_files=True).files] == ["day=2026-01-01", "day=2026-01-02"]


def test_what_runs_and_what_waits_is_counted(desk: Desk) -> None:
    pending = [replace(task(name, status=TaskStatus.PENDING), attempt=0, result=None) for name in ("t1", "t2", "t3")]
    assert desk.stores.tasks.insert(pending, (), NOW)
    assert desk.stores.tasks.poll(None, "me", NOW, timedelta(minutes=1)) is not None
    queue = desk.history.queue_counts()
    assert (queue.pending, queue.executing, queue.open) == (2, 1, 3)
    assert [item.owner for item in desk.history.executing()] == ["me"]


def test_a_record_is_found_by_a_beginning_that_fits_one(desk: Desk) -> None:
    for name in ("abc1", "abd2"):
        desk.stores.records.save(record(name))
    assert desk.history.record("abc").record.record_id == "abc1"
    assert desk.history.record("abd2").tasks == ()
    for unclear in ("ab", "zz", ""):
        with pytest.raises(NotFoundError):
            desk.history.record(unclear)


def test_unsettled_records_are_pointed_out(desk: Desk) -> None:
    desk.stores.records.save(replace(record("r1", status=RecordStatus.UNKNOWN), ended_at=None))
    desk.stores.records.save(record("r2"))
    assert [item.record_id for item in desk.history.status().unsettled] == ["r1"]


def test_unknown_names_are_errors(desk: Desk) -> None:
    with pytest.raises(NotFoundError):
        desk.history.table(ORDERS)
    with pytest.raises(NotFoundError):
        desk.history.tables("nowhere")


def test_a_table_without_nodes_has_no_files(desk: Desk) -> None:
    desk.table(ORDERS)
    found = desk.history.tables()[0]
    assert (found.metrics, found.health) == (NodeMetrics(), Health.HEALTHY)
