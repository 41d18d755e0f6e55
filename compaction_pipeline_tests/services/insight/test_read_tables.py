"""What the program shows of tables."""

from __future__ import annotations

from dataclasses import replace

import pytest

from compaction_pipeline.core.errors import NotFoundError
from compaction_pipeline.core.fragmentation.health import HealthStatus
from compaction_pipeline.core.fragmentation.verdict import PlanReason, PlanReasonCode
from compaction_pipeline.core.planning.table_planning import TablePlanning
from compaction_pipeline.core.tables.figures import NodeMetrics
from compaction_pipeline.core.tables.index import Failed, LoadedTable, Reading, Refused, Unread, WholeRead
from compaction_pipeline.core.tables.table import TableLayout
from compaction_pipeline.core.work.kinds import CompactionType
from compaction_pipeline_tests.builders import COMPLETE, LOADED
from compaction_pipeline_tests.defs.values import NOW, ORDERS, live_file
from compaction_pipeline_tests.services.insight.desk import WATCHED, Desk, due, judged


def test_a_table_that_changed_is_not_called_unread(desk: Desk) -> None:
    desk.table(ORDERS, state=Unread())
    assert desk.tables.tables()[0].reason.startswith("its files were not read yet")
    assert not desk.tables.tables()[0].is_read
    desk.table(ORDERS, state=Reading(LOADED), earlier=WholeRead(7, NOW))
    assert desk.tables.tables()[0].reason == "the table changed since its files were read; the next tick reads them again"


def test_a_refused_table_shows_its_reason_on_itself_and_its_nodes(desk: Desk) -> None:
    desk.table(ORDERS, due(1), state=Refused("format v3 is not written yet"))
    detail = desk.tables.table(ORDERS)
    assert (detail.overview.health, detail.overview.reason) == (HealthStatus.REFUSED, "format v3 is not written yet")
    assert detail.nodes[0].health is HealthStatus.REFUSED


def test_a_failing_node_makes_its_table_failing(desk: Desk) -> None:
    failing = judged(2, PlanReasonCode.FAILING)
    assert failing.verdict is not None
    reason = PlanReason(PlanReasonCode.FAILING, "task t failed 4 times: no memory")
    desk.table(ORDERS, due(1), replace(failing, verdict=replace(failing.verdict, reason=reason)))
    found = desk.tables.tables()[0]
    assert found.health is HealthStatus.FAILING
    assert "day=2026-01-02: task t failed" in found.reason


def test_the_figures_of_a_table_are_those_of_its_nodes(desk: Desk) -> None:
    desk.table(ORDERS, due(1), due(2, small=1, files=2))
    metrics = desk.tables.tables()[0].metrics
    assert (metrics.data_files, metrics.small_files, metrics.data_bytes) == (12, 10, 2000)


def test_a_table_shows_properties_in_force_and_those_without_effect(desk: Desk) -> None:
    own = {"self-optimizing.fragment-ratio": "4", "self-optimizing.max-retry": "3", "self-optimizing.fragmnt": "1"}
    layout = TableLayout("s3://lake/orders", 2, 0, {}, 0, {}, 0, {}, frozenset(), own)
    desk.table(ORDERS, state=replace(COMPLETE, loaded=LoadedTable("uuid", layout)))
    found = desk.tables.table(ORDERS).properties
    assert found is not None
    assert (found.fragment_ratio, list(found.ignored), found.unknown) == (4, ["self-optimizing.max-retry"], ("self-optimizing.fragmnt",))


def test_a_property_out_of_bounds_is_reported_and_hides_nothing_else(desk: Desk) -> None:
    layout = TableLayout("s3://lake/orders", 2, 0, {}, 0, {}, 0, {}, frozenset(), {"self-optimizing.fragment-ratio": "1"})
    desk.table(ORDERS, due(1), state=replace(COMPLETE, loaded=LoadedTable("uuid", layout)))
    detail = desk.tables.table(ORDERS)
    assert detail.properties is None
    assert detail.property_error is not None
    assert "'self-optimizing.fragment-ratio' is 1 but must be ≥ 2 and < 2^31; the table sets it: ALTER TABLE " in detail.property_error
    assert len(detail.nodes) == 1


def test_files_are_read_only_when_asked(desk: Desk) -> None:
    desk.table(ORDERS)
    desk.stores.files.apply(ORDERS, (), {"m1": [live_file(2), live_file(1)]})
    assert desk.tables.table(ORDERS).files == ()
    assert [str(file.node) for file in desk.tables.table(ORDERS, with_files=True).files] == ["day=2026-01-01", "day=2026-01-02"]


def test_unknown_names_are_errors(desk: Desk) -> None:
    with pytest.raises(NotFoundError):
        desk.tables.table(ORDERS)
    with pytest.raises(NotFoundError):
        desk.tables.tables("nowhere")


def test_a_table_without_nodes_has_no_files(desk: Desk) -> None:
    desk.table(ORDERS)
    found = desk.tables.tables()[0]
    assert (found.metrics, found.health) == (NodeMetrics(), HealthStatus.HEALTHY)


def test_a_table_is_held_back_as_a_whole_or_not(desk: Desk) -> None:
    desk.table(ORDERS)
    found = desk.tables.table(ORDERS).overview
    assert (found.snapshot_id, found.is_whole, found.is_held_back) == (7, True, False)
    for state in (Refused("because"), Failed("because"), replace(COMPLETE, property_problem="because")):
        desk.table(ORDERS, state=state)
        assert desk.tables.table(ORDERS).overview.is_held_back
    desk.table(ORDERS)
    desk.stores.planning.save(ORDERS, TablePlanning(problem="because"))
    assert desk.tables.table(ORDERS).overview.is_held_back
    desk.stores.planning.save(ORDERS, TablePlanning())
    assert not desk.tables.table(ORDERS).overview.is_held_back
    desk.stores.commits.note_failure(ORDERS, "because", 1, NOW)
    assert desk.tables.table(ORDERS).overview.is_held_back


@pytest.mark.parametrize("code", [PlanReasonCode.PAUSED, PlanReasonCode.INVALID_PROPERTY, PlanReasonCode.DISABLED, PlanReasonCode.OBSERVED])
def test_a_reason_that_was_corrected_is_shown_no_more(desk: Desk, code: PlanReasonCode) -> None:
    desk.table(ORDERS)
    before = desk.tables.table(ORDERS).overview.reason
    desk.stores.planning.save(ORDERS, TablePlanning(reason=PlanReason(code, "a person paused it")))
    assert desk.tables.table(ORDERS).overview.reason == before


def test_a_reason_that_still_holds_is_shown(desk: Desk) -> None:
    layout = TableLayout("s3://lake/orders", 2, 0, {}, 0, {}, 0, {}, frozenset(), {"self-optimizing.enabled": "false"})
    desk.table(ORDERS, state=replace(COMPLETE, loaded=LoadedTable("uuid", layout)))
    desk.stores.planning.save(ORDERS, TablePlanning(reason=PlanReason(PlanReasonCode.DISABLED, "as it is")))
    assert desk.tables.table(ORDERS).overview.reason == "as it is"


def test_a_table_that_waits_names_what_its_node_waits_for(desk: Desk) -> None:
    desk.table(ORDERS, judged(1, PlanReasonCode.OVER_BUDGET, CompactionType.MINOR))
    desk.stores.planning.save(ORDERS, TablePlanning(reason=PlanReason(PlanReasonCode.PLANNED, "1 task on 1 node, 12 data files")))
    found = desk.tables.table(ORDERS).overview
    assert (found.health, found.reason) == (HealthStatus.WAITING, "day=2026-01-01: because 1")


def test_names_are_sorted_and_those_of_one_catalog_where_asked(desk: Desk) -> None:
    desk.table(WATCHED)
    desk.table(ORDERS)
    assert desk.tables.names() == (ORDERS, WATCHED)
    assert desk.tables.names("watched") == (WATCHED,)


def test_a_node_is_found_by_its_key(desk: Desk) -> None:
    node = replace(due(1), changed_snapshot_id=9)
    desk.table(ORDERS, node)
    assert desk.tables.node(node.key) == (ORDERS, node.node)
    assert desk.tables.nodes(ORDERS) == {node.key: node.node}
    assert desk.tables.nodes(WATCHED) == {}
    assert desk.tables.table(ORDERS).nodes[0].changed_snapshot_id == 9
    with pytest.raises(NotFoundError):
        desk.tables.node("lake.shop.orders/9//0-0")
