"""The page of what jobs of the dependency center wait for."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import dagster as dg
import pytest

from compaction_pipeline.core.dependencies.center.inbox import Fact
from compaction_pipeline.core.dependencies.center.instances import Instance, InstanceState
from compaction_pipeline.core.dependencies.center.lineage import Alert
from compaction_pipeline.core.dependencies.center.ports import InstanceQuery
from compaction_pipeline.services.dependencies.center import DependencyCenter
from compaction_pipeline_tests.defs.ticks import Tick
from compaction_pipeline_tests.opened import OpenedServices
from compaction_pipeline_tests.plain_names import WAITING_JOBS


def told(result: dg.SensorResult) -> dict[str, Any]:
    """The metadata of `waiting_jobs` in a tick; nothing when it has no event."""
    events = [event for event in result.asset_events if isinstance(event, dg.AssetMaterialization) and event.asset_key == WAITING_JOBS]
    return {name: value.value for event in events for name, value in event.metadata.items()}


@pytest.mark.usefixtures("lake")
def test_the_page_says_what_waits_since_when_for_what_and_who_makes_it(services: OpenedServices, tick: Tick) -> None:
    first = tick("queue_sensor")
    assert told(first) == {}, "the center has no jobs"
    today = services.clock().date()
    yesterday = (today - timedelta(days=1)).isoformat()
    jobs: list[dict[str, Any]] = [
        {"name": "raw", "period": "hour", "virtual": True, "since": "2026-01-01T00"},
        {"name": "copy", "period": "day", "since": "2026-01-01", "virtual": True, "produces": ["asset=shop/daily"]},
        {"name": "load", "period": "day", "since": today.isoformat(), "needs": [{"job": "raw", "times": "[-24,-20]"}]},
        {"name": "report", "period": "day", "since": today.isoformat(), "needs": [{"asset": "shop/daily", "times": -1}]},
    ]
    services.center.save_project({"project": "sales", "receiver": "airflow", "jobs": jobs})
    services.lead_center.run()
    shown = told(tick("queue_sensor", first.cursor))
    said = " ".join(shown["waiting_now"].replace("\\\n", " ").replace("\\", "").split())
    load, report = (f"{name}/{today}/scheduled/1" for name in ("load", "report"))
    hours = ", ".join(f"job=raw && biz={yesterday}T{hour:02}" for hour in range(3))
    made = f"{services.center.why('load', today.isoformat()).instance.made_at:%Y-%m-%d %H:%M} UTC"
    assert f"**{load}** since {made} for {hours} and 2 more" in said
    assert f"**{report}** since {made} for asset=shop/daily && window={yesterday}T00:00Z/{today}T00:00Z (made by copy)" in said
    rows = [row.data for row in shown["waiting"].records]
    assert [(row["instance"], row["missing"], row["made_by"]) for row in rows] == [(load, 5, "raw"), (report, 1, "copy")]
    assert (shown["waiting_instances_count"], shown["ready_instances_count"]) == (2, 0)
    assert "p99_delay_seconds" not in shown
    assert (shown["missed_events_count"], shown["alerts_count"]) == (0, 0)


@pytest.mark.usefixtures("lake")
def test_a_page_without_news_is_not_told_again(services: OpenedServices, tick: Tick) -> None:
    today = services.clock().date().isoformat()
    job = {"name": "load", "period": "day", "since": today, "needs": [{"job": "raw"}]}
    raw = {"name": "raw", "period": "day", "virtual": True, "since": "2026-01-01"}
    services.center.save_project({"project": "sales", "receiver": "airflow", "jobs": [raw, job]})
    services.lead_center.run()
    first = tick("queue_sensor")
    assert told(first)["waiting_instances_count"] == 1
    assert told(tick("queue_sensor", first.cursor)) == {}
    services.center.report(f"job=raw && biz={today}", InstanceState.FAILED, "test")
    services.lead_center.run()
    failed = told(tick("queue_sensor", first.cursor))
    assert f"job=raw && biz={today}: it FAILED at " in " ".join(failed["waiting_now"].replace("\\\n", " ").replace("\\", "").split())
    services.center.report(f"job=raw && biz={today}", InstanceState.SUCCEEDED, "test")
    services.stores.center.post([Fact("table=lake.a.b && watermark=", services.clock(), "tables", 1)], missed_by="tables")
    services.lead_center.run()
    shown = told(tick("queue_sensor", first.cursor))
    assert (shown["waiting_now"], shown["waiting_instances_count"], shown["ready_instances_count"]) == ("No job waits.", 0, 1)
    assert shown["p99_delay_seconds"] >= 0
    assert shown["missed_events_count"] == 1
    services.stores.center.note_alerts([Alert("raw", "team-a", "it is silent"), Alert("load", "", "its SQL is not understood")])
    assert told(tick("queue_sensor", first.cursor))["alerts_count"] == 2


@pytest.mark.usefixtures("lake")
def test_a_job_that_is_removed_while_the_page_is_made_is_left_out(
    services: OpenedServices, tick: Tick, monkeypatch: pytest.MonkeyPatch
) -> None:
    today = services.clock().date().isoformat()
    raw = {"name": "raw", "period": "day", "virtual": True, "since": "2026-01-01"}
    load, more = ({"name": name, "period": "day", "since": today, "needs": [{"job": "raw"}]} for name in ("load", "more"))
    services.center.save_project({"project": "sales", "receiver": "airflow", "jobs": [raw, load, more]})
    services.lead_center.run()
    real = DependencyCenter.instances

    def removed_meanwhile(self: DependencyCenter, query: InstanceQuery) -> Sequence[Instance]:
        found = real(self, query)
        services.center.save_project({"project": "sales", "receiver": "airflow", "jobs": [raw, more]})
        return found

    monkeypatch.setattr(DependencyCenter, "instances", removed_meanwhile)
    rows = [row.data for row in told(tick("queue_sensor"))["waiting"].records]
    assert [row["instance"] for row in rows] == [f"more/{today}/scheduled/1"]
