"""A fact that cannot be applied holds up no other one, on SQLite and on PostgreSQL."""

from __future__ import annotations

import logging

import pytest
from sqlalchemy import text as sql

from compaction_pipeline.core.dependencies.center.inbox import Fact
from compaction_pipeline.core.dependencies.center.instances import InstanceState
from compaction_pipeline.core.errors import ConfigError, NotFoundError
from compaction_pipeline.core.stores import Stores
from compaction_pipeline.services.dependencies.facts_set_aside import FactsSetAside
from compaction_pipeline.storage.engine import writing
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


def put(house: CenterHouse, text: str, problem: str | None = None) -> None:
    """Put something into the inbox that no release of today writes."""
    with writing(house.stores.center._engine) as connection:  # type: ignore[attr-defined]
        stored = "INSERT INTO compaction_center_fact (value, problem) VALUES (:value, :problem)"
        connection.execute(sql(stored), {"value": text, "problem": problem})


def test_figures_are_told_also_while_the_first_fact_cannot_be_read(stores: Stores) -> None:
    house = CenterHouse(stores)
    house.save({"name": "raw", "period": "day", "since": "2026-01-01", "virtual": True})
    put(house, "{]")
    put(house, '{"key": "job=raw && biz=2026-01-01"}')
    house.center.report("job=raw && biz=2026-01-01", InstanceState.SUCCEEDED, "test")
    assert stores.center_figures.figures(house.now).report_since == house.now
    house.settle()
    assert house.center.ready("job=raw && biz=2026-01-01") is True
    first, second = house.store.set_aside(10)
    assert (first.subject, first.at, first.text, second.subject) == (None, None, "{]", "job=raw && biz=2026-01-01")
    assert "ValidationError" in first.problem


def test_a_fact_is_tried_again_unless_something_newer_has_overtaken_it_and_one_is_removed(
    stores: Stores, caplog: pytest.LogCaptureFixture
) -> None:
    house, doors = CenterHouse(stores), FactsSetAside(stores.center)
    house.save(*({"name": name, "period": "day", "since": "2026-01-01", "virtual": True} for name in ("raw", "other")))
    for name in ("raw", "other"):
        house.center.report(f"job={name} && biz=2026-01-01", InstanceState.SUCCEEDED, "test")
    with writing(stores.center._engine) as connection:  # type: ignore[attr-defined]
        connection.execute(sql("UPDATE compaction_center_fact SET problem = 'short of something'"))
    put(house, "{]", "no JSON")
    house.pass_time(minutes=1)
    house.succeed("job=other && biz=2026-01-01", state=InstanceState.FAILED)
    raw, other, broken = doors.facts()
    assert (raw.subject, raw.source, raw.problem) == ("job=raw && biz=2026-01-01", "test", "short of something")
    assert house.center.ready("job=raw && biz=2026-01-01") is None
    with caplog.at_level(logging.WARNING):
        doors.try_again(raw.id, "an admin")
    assert "an admin" in caplog.text
    house.settle()
    assert house.center.ready("job=raw && biz=2026-01-01") is True
    with pytest.raises(ConfigError, match="job=other && biz=2026-01-01 has changed since then"):
        doors.try_again(other.id, "an admin")
    with pytest.raises(ConfigError, match="cannot be read"):
        doors.try_again(broken.id, "an admin")
    for one in (other, broken):
        assert doors.remove(one.id, "an admin") == one
    with pytest.raises(NotFoundError, match="is set aside"):
        doors.remove(raw.id, "an admin")
    assert doors.facts() == []
