"""The check `nothing_missed`: what the patrol found although somebody should have told it, whichever process found it."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from compaction_pipeline.core.dependencies.center.inbox import Fact
from compaction_pipeline.core.insight.checks.every_check import CHECKS
from compaction_pipeline.core.insight.checks.judgement import Judgement
from compaction_pipeline.core.stores import Stores
from compaction_pipeline.services.insight.judge_compaction import JudgeCompaction, JudgedWork
from compaction_pipeline_tests.services.dependencies.center_house import CenterHouse

CHECK = next(check for check in CHECKS if check.name == "nothing_missed")


def judged(house: CenterHouse) -> Judgement:
    nobody: Any = None
    stores = house.stores
    work = JudgedWork(stores.queues, stores.groups, stores.teams, stores.costs)
    judge = JudgeCompaction(stores.catalogs, stores.tables, stores.tasks, work, nobody, nobody, lambda: house.now)
    (result,) = judge.judge([CHECK])
    return result.judgement


def miss(house: CenterHouse, table: str, *reached: int) -> None:
    house.store.post([Fact(f"table={table} && watermark=", house.now, "tables", one) for one in reached], missed_by="tables")


def test_what_a_detector_missed_is_red_for_a_day_with_its_count_and_its_name(stores: Stores) -> None:
    house = CenterHouse(stores)
    assert (judged(house).passed, judged(house).text) == (True, "no event was missed in the last day")
    miss(house, "lake.a.b", 1)
    house.now += timedelta(hours=1)
    miss(house, "lake.a.b", 2, 3)
    miss(house, "lake.a.c", 1)
    assert judged(house).text.startswith(
        "2 of 2 tables fail; lake.a.b: the detector 'tables' missed 3 events in the last day, lastly in the hour from 00:00:00 UTC"
    )
    assert dict(judged(house).figures) == {"missed_events_count": 4}
    house.now += timedelta(hours=26)
    assert judged(house).passed
    assert stores.center_figures.figures(house.now).missed == 0


def test_what_was_missed_is_forgotten_with_the_rest(stores: Stores) -> None:
    house = CenterHouse(stores)
    miss(house, "lake.a.b", 1)
    assert stores.tables.missed_events(house.now - timedelta(days=1))[0].events == 1
    house.store.expire(house.now + timedelta(hours=2))
    assert not stores.tables.missed_events(house.now - timedelta(days=1))
