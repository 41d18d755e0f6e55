"""The check `no_job_alerts`: what owners of jobs should look at is told without being asked for."""

from __future__ import annotations

from typing import Any

from compaction_pipeline.core.dependencies.center.instances import InstanceState
from compaction_pipeline.core.insight.checks.every_check import CHECKS
from compaction_pipeline.core.insight.checks.judgement import Judgement
from compaction_pipeline.core.stores import Stores
from compaction_pipeline.services.insight.judge_compaction import JudgeCompaction, JudgedWork
from compaction_pipeline_tests.services.dependencies.center_house import CenterHouse

CHECK = next(check for check in CHECKS if check.name == "no_job_alerts")
RAW = {"name": "raw", "period": "day", "virtual": True, "since": "2026-01-01", "owner": "team-a"}


def judged(house: CenterHouse) -> Judgement:
    nobody: Any = None
    stores = house.stores
    work = JudgedWork(stores.queues, stores.groups, stores.teams, stores.costs)
    judge = JudgeCompaction(stores.catalogs, stores.tables, stores.tasks, work, nobody, nobody, lambda: house.now)
    (result,) = judge.judge([CHECK])
    return result.judgement


def told(house: CenterHouse) -> tuple[dict[str, str], dict[str, int]]:
    """What the check says of each job, and how many alerts each owner has, after a server looked."""
    house.lineage.tell()
    failures = judged(house).failures
    assert judged(house).passed == (not failures)
    return {one.place: one.reason for one in failures}, dict(house.stores.center_figures.figures(house.now).alerts)


def test_a_silent_virtual_job_is_red_for_its_owner_until_it_is_reported(stores: Stores) -> None:
    house = CenterHouse(stores)
    house.save(RAW, {"name": "load", "period": "day", "since": "2026-01-01", "needs": [{"job": "raw"}]})
    assert told(house) == ({}, {})
    assert judged(house).text == "no owner of a job has anything to look at"
    house.pass_time(days=3, hours=1)
    silent = "team-a, no run was ever reported, though its period is a DAY: who makes it should report it"
    assert told(house) == ({"job raw": silent}, {"team-a": 1})
    house.center.report("job=raw && biz=2026-01-03", InstanceState.SUCCEEDED, "test")
    house.settle()
    # What a server found stands until one looks again.
    assert not judged(house).passed
    assert told(house) == ({}, {})


def test_a_late_report_of_an_old_time_ends_the_silence(stores: Stores) -> None:
    house = CenterHouse(stores)
    house.save(RAW)
    house.center.report("job=raw && biz=2026-01-02", InstanceState.SUCCEEDED, "test")
    house.settle()
    house.pass_time(days=3)
    assert list(told(house)[0]) == ["job raw"]
    house.center.report("job=raw && biz=2026-01-01", InstanceState.SUCCEEDED, "test")
    house.settle()
    assert told(house) == ({}, {})


def test_waits_without_a_reason_and_sql_that_is_not_understood_are_told(stores: Stores) -> None:
    house = CenterHouse(stores)
    made = {"name": "made", "period": "day", "since": "2026-01-01", "produces": ["table=lake.a.made"]}
    reads = {"name": "reads", "period": "day", "since": "2026-01-01", "needs": [{"job": "made"}], "reads": ["table=lake.a.other"]}
    odd = {"name": "odd", "period": "day", "since": "2026-01-01", "sql": "CALL lake.a.made('x\x00')", "owner": "team-b"}
    house.save(made, reads, odd, owner="team-a")
    failures, counts = told(house)
    assert failures["job reads"].startswith("team-a, it waits for job=made but reads nothing of what that makes")
    assert failures["job odd"].startswith("team-b, its SQL is not understood: ")
    assert counts == {"team-a": 1, "team-b": 1}
    assert judged(house).text.startswith("2 of 2 alerts fail; job odd: team-b, its SQL is not understood")


def test_an_alert_goes_with_its_job(stores: Stores) -> None:
    house = CenterHouse(stores)
    house.save(RAW)
    house.pass_time(days=4)
    assert told(house)[1] == {"team-a": 1}
    house.save()
    assert told(house) == ({}, {})
