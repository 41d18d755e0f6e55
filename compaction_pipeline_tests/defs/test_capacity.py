"""The page of what compaction costs and may cost."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import dagster as dg
import pytest

from compaction_pipeline.core.capacity.own_work import OwnKind, OwnWork
from compaction_pipeline.core.capacity.team import Limits, Team
from compaction_pipeline.core.queue.optimizer import Optimizer
from compaction_pipeline_tests.behaviours.example_tasks import LEASE, example, failed, prepared
from compaction_pipeline_tests.builders import TABLE
from compaction_pipeline_tests.defs.ticks import Tick
from compaction_pipeline_tests.opened import OpenedServices
from compaction_pipeline_tests.plain_names import COMPACTION_CAPACITY


def told(result: dg.SensorResult) -> dict[str, Any]:
    """The metadata of `compaction_capacity` in a tick; nothing when it has no event."""
    found = [each for each in result.asset_events if isinstance(each, dg.AssetMaterialization) and each.asset_key == COMPACTION_CAPACITY]
    return {name: value.value for event in found for name, value in event.metadata.items()}


@pytest.mark.usefixtures("lake")
def test_the_page_says_what_was_spent_who_is_held_and_what_is_badly_used(services: OpenedServices, tick: Tick) -> None:
    first = tick("queue_sensor")
    assert told(first) == {}, "nothing was merged, nothing runs, and no team has a limit"
    now = services.clock()
    begun = now - timedelta(minutes=31)
    one = Optimizer("o1", "default", "host", "1", "1.0", 2, begun, now, memory_bytes=2 * 10**9, cores=2.0)
    services.stores.optimizers.add(one)
    for name, merges in (("t1", True), ("t2", False)):
        services.stores.tasks.insert([example(name)], [], now)
        task = services.stores.tasks.poll(None, "o1", now, LEASE, [name])
        assert task is not None
        result = replace(prepared(task), cpu_ms=9_000) if merges else failed(task)
        services.stores.tasks.complete(result, now + timedelta(seconds=36))
    services.stores.costs.add_own([OwnWork(now.date(), OwnKind.PLAN, str(TABLE), "unassigned", 3, 3600.0, 900.0)])
    services.manage_teams.set(Team("shop", (), Limits(slots=0)), "a person")
    second = tick("queue_sensor", first.cursor)
    shown = told(second)
    [cost] = [row.data for row in shown["costs_today"].records]
    assert (cost["table"].replace("\u2060", "").replace("\u00a0", " "), cost["attempts"]) == (str(TABLE), 2)
    assert (shown["slot_hours_today"], shown["slot_hours_in_vain_today"], shown["cpu_hours_today"]) == (0.02, 0.01, 0.0025)
    assert shown["gb_hours_today"] == 0.02
    # The ticks of this test took moments.
    assert shown["own_work_hours_today"] == pytest.approx(1.0, abs=0.05)
    [of_team] = [row.data for row in shown["costs_of_teams_today"].records]
    assert (of_team["team"], of_team["attempts"]) == ("unassigned", 2)
    assert (shown["held_teams_count"], shown["low_use_percent"]) == (1, 100.0)
    said = " ".join(shown["capacity_now"].replace("\\\n", " ").replace("\\", "").split())
    assert "**team shop** team shop uses 0 of 0 slots" in said
    assert "**o1** score" in said
    assert told(tick("queue_sensor", second.cursor)) == {}, "nothing has changed"
