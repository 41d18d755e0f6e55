"""The check `jobs_start`: what was released is started soon, and counts are right."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

from sqlalchemy import update

from compaction_pipeline.core.insight.checks.every_check import CHECKS
from compaction_pipeline.core.insight.checks.judgement import Judgement
from compaction_pipeline.services.insight.judge_compaction import JudgeCompaction, JudgedWork
from compaction_pipeline.storage import schema
from compaction_pipeline.storage.engine import open_state, writing
from compaction_pipeline_tests.services.dependencies.center_house import RECEIVER, CenterHouse
from compaction_pipeline_tests.state import sqlite_stores

CHECK = next(check for check in CHECKS if check.name == "jobs_start")


def judged(house: CenterHouse) -> Judgement:
    nobody: Any = None
    stores = house.stores
    work = JudgedWork(stores.queues, stores.groups, stores.teams, stores.costs)
    judge = JudgeCompaction(stores.catalogs, stores.tables, stores.tasks, work, nobody, nobody, lambda: house.now)
    (result,) = judge.judge([CHECK])
    return result.judgement


def test_what_nobody_starts_for_ten_minutes_fails_its_receiver(tmp_path: Path) -> None:
    house = CenterHouse(sqlite_stores(tmp_path))
    assert judged(house).text == "no job waits to be started"
    house.save({"name": "load", "period": "day", "since": "2026-01-01"})
    house.settle()
    house.now += timedelta(minutes=10)
    assert judged(house).passed
    house.now += timedelta(seconds=1)
    assert judged(house).text == (
        "1 of 1 receivers fail; receiver airflow: load/2026-01-01/scheduled/1: ready for 10 min 1 s, and nobody claimed it: see that a "
        "scheduler claims for this receiver"
    )
    house.claimed()
    assert judged(house).passed
    house.now += timedelta(minutes=11)
    assert "claimed 11 min ago, and no run was reported" in judged(house).text
    assert not house.center.claim(RECEIVER)
    house.succeed("job=load && biz=2026-01-01", 1)
    assert judged(house).passed


def test_a_wrong_count_is_a_fault(tmp_path: Path) -> None:
    house = CenterHouse(sqlite_stores(tmp_path))
    house.save({"name": "load", "period": "day", "since": "2026-01-01", "needs": [{"table": "lake.a.b"}]})
    house.settle()
    assert judged(house).passed
    with writing(open_state(f"sqlite:///{tmp_path / 'state.db'}")) as connection:
        connection.execute(update(schema.center_instance).values(missing=2))
    assert "1 instance would wait for ever: their count is wrong" in judged(house).text
