"""A fact that cannot be applied holds up no other one, on SQLite and on PostgreSQL."""

from __future__ import annotations

import logging

import pytest

from compaction_pipeline.core.dependencies.center.inbox import Fact
from compaction_pipeline.core.dependencies.center.instances import InstanceState
from compaction_pipeline.core.stores import Stores
from compaction_pipeline_tests.services.dependencies.center_house import CenterHouse


@pytest.mark.filterwarnings("ignore:Pydantic serializer warnings")
def test_a_fact_that_cannot_be_applied_is_set_aside_and_the_next_ones_are_applied(stores: Stores, caplog: pytest.LogCaptureFixture) -> None:
    house = CenterHouse(stores)
    raw = [{"name": f"raw{number}", "period": "day", "since": "2026-01-01", "virtual": True} for number in range(3)]
    house.save(*raw, {"name": "load", "period": "day", "since": "2026-01-01", "needs": [{"job": one["name"]} for one in raw]})
    house.pass_time(days=1)
    house.center.report("job=raw0 && biz=2026-01-01", InstanceState.SUCCEEDED, "test")
    unreadable = Fact("job=raw1 && biz=2026-01-01", house.now, "test", "far")  # type: ignore[arg-type]
    house.store.post([unreadable])
    house.center.report("job=raw1 && biz=2026-01-01", InstanceState.SUCCEEDED, "test")
    house.center.report("job=raw2 && biz=2026-01-01", InstanceState.SUCCEEDED, "test")
    with caplog.at_level(logging.ERROR):
        house.settle()
    assert house.state("load", "2026-01-01") == "READY"
    (said,) = [record.getMessage() for record in caplog.records]
    assert "job=raw1 && biz=2026-01-01" in said
    assert (stores.center_figures.figures(house.now).set_aside, stores.center_figures.figures(house.now).report_since) == (1, None)
    house.settle()
    assert (stores.center_figures.figures(house.now).set_aside, house.store.recount()) == (1, 0)


def test_a_fact_for_which_memory_was_short_is_applied_later(stores: Stores, monkeypatch: pytest.MonkeyPatch) -> None:
    house = CenterHouse(stores)
    house.save({"name": "raw", "period": "day", "since": "2026-01-01", "virtual": True})
    house.center.report("job=raw && biz=2026-01-01", InstanceState.SUCCEEDED, "test")

    def short(*_: object) -> None:
        raise MemoryError

    with monkeypatch.context() as patched:
        patched.setattr("compaction_pipeline.storage.center_leader.apply", short)
        with pytest.raises(MemoryError):
            house.settle()
    assert stores.center_figures.figures(house.now).set_aside == 0
    house.settle()
    assert house.center.ready("job=raw && biz=2026-01-01") is True
