"""What a tick's plan reads and says, over time."""

from __future__ import annotations

import pytest

from compaction_pipeline.core.model.plan import PlanReasonCode
from compaction_pipeline.iceberg.rewrite_files import row_delta
from compaction_pipeline_tests.services.house import House


def test_ticks_read_no_files_while_nothing_may_be_planned(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    table = house.fragmented()
    services = house.services
    services.compact_tables.refresh(table.identifier)
    assert services.plan_tables.plan(table.identifier).tasks
    row_delta(table.table, [table.data_file([{"id": one, "name": "more"}]) for one in range(100, 120)])
    services.compact_tables.refresh(table.identifier)
    # Nodes whose files changed are judged at once, the pause between two plans or not.
    assert services.plan_tables.plan(table.identifier).plan.reason.code is PlanReasonCode.MIN_PLAN_INTERVAL
    with monkeypatch.context() as patch:
        patch.setattr(services.stores.files, "files", lambda *_: pytest.fail("files were read for nothing"))
        assert services.plan_tables.plan(table.identifier).plan.reason.code is PlanReasonCode.MIN_PLAN_INTERVAL
    house.pass_time(61)
    replanned = services.plan_tables.plan(table.identifier)
    assert len(replanned.tasks) == len(replanned.plan.replaces) == 1
    assert len(replanned.tasks[0].work.inputs) == 32
