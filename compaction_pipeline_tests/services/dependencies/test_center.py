"""The dependency center, from the definition of a project to the claims of its scheduler."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest

from compaction_pipeline.core.dependencies.center.inbox import RunId, run_fact
from compaction_pipeline.core.dependencies.center.instances import InstanceState, Report
from compaction_pipeline.core.dependencies.center.ports import InstanceQuery
from compaction_pipeline.core.errors import ChangedMeanwhile, ConfigError, NotFoundError
from compaction_pipeline.services.dependencies.reports import RunReport
from compaction_pipeline_tests.services.dependencies.center_house import RECEIVER, CenterHouse
from compaction_pipeline_tests.state import sqlite_stores
from compaction_pipeline_tests.statements import statements

RAW = {"name": "raw", "period": "hour", "virtual": True}
LOAD = {"name": "load", "period": "day", "trigger": "02:00", "needs": [{"job": "raw", "times": "whole"}]}
REPORT = {"name": "report", "period": "day", "needs": [{"job": "load"}]}
DAY = "2026-01-02"
HOURS = [f"job=raw && biz={DAY}T{hour:02}" for hour in range(24)]


@pytest.fixture
def house(tmp_path: Path) -> CenterHouse:
    return CenterHouse(sqlite_stores(tmp_path))


def test_a_day_starts_when_its_last_hour_is_there_and_not_before(house: CenterHouse) -> None:
    house.save(RAW, LOAD, REPORT)
    house.pass_time(hours=3)
    assert house.one("load", DAY).missing == 24
    for hour in HOURS[1:]:
        house.succeed(hour)
    assert house.state("load", DAY) == "WAITING"
    assert house.claimed() == []
    house.succeed(HOURS[0])
    assert house.claimed() == [f"load/{DAY}/scheduled/1"]
    assert house.claimed() == []
    assert house.state("report", DAY) == "WAITING"
    house.succeed(f"job=load && biz={DAY}", generation=1)
    assert house.claimed() == [f"report/{DAY}/scheduled/1"]


def test_an_instance_is_made_at_its_trigger_and_triggers_that_passed_are_made_up_for(house: CenterHouse) -> None:
    house.save({"name": "load", "period": "day", "trigger": "02:00", "zone": "Europe/Berlin", "since": "2026-01-01"})
    house.settle()
    assert house.claimed() == ["load/2026-01-01/scheduled/1"]
    house.now = datetime(2026, 1, 2, 0, 59, 59, tzinfo=timezone.utc)
    house.settle()
    assert house.claimed() == []
    house.pass_time(seconds=1)
    assert house.claimed() == ["load/2026-01-02/scheduled/1"]
    house.pass_time(days=3)
    assert sorted(house.claimed()) == [f"load/2026-01-0{day}/scheduled/1" for day in (3, 4, 5)]


def test_a_claim_comes_again_until_it_is_delivered(house: CenterHouse) -> None:
    house.save({"name": "load", "period": "day", "since": "2026-01-01"})
    house.settle()
    (first,) = house.center.claim(RECEIVER)
    assert first.claimed_at == house.now
    (second,) = house.another_center().claim(RECEIVER)
    assert first.key == second.key
    assert not house.center.claim("somebody else")
    assert house.center.delivered("somebody else", [(first.id, 1)]) == 0
    assert house.center.delivered(RECEIVER, [(first.id, 2)]) == 0
    assert house.center.delivered(RECEIVER, [(first.id, 1)]) == 1
    assert not house.center.claim(RECEIVER)


def test_what_is_taken_back_waits_again_unless_it_was_claimed(house: CenterHouse) -> None:
    house.save({"name": "load", "period": "day", "since": "2026-01-01", "needs": [{"table": "lake.a.b"}]}, REPORT)
    window = "table=lake.a.b && window=2026-01-01T00:00Z/2026-01-02T00:00Z"
    house.settle()
    house.tell(window)
    assert house.state("load", "2026-01-01") == "READY"
    house.tell(window, 0)
    assert house.state("load", "2026-01-01") == "WAITING"
    assert house.claimed() == []
    house.tell(window)
    assert house.claimed() == ["load/2026-01-01/scheduled/1"]
    house.tell(window, 0)
    assert house.state("load", "2026-01-01") == "READY"
    assert house.one("load", "2026-01-01").changed_at == house.now
    assert not house.center.claim(RECEIVER)


def test_a_withdrawal_that_came_back_at_once_is_noted_for_what_ran(house: CenterHouse) -> None:
    house.save(
        {"name": "load", "period": "day", "since": "2026-01-01", "needs": [{"job": "raw", "times": "0"}]}, {**RAW, "since": "2026-01-01T00"}
    )
    house.settle()
    house.succeed("job=raw && biz=2026-01-01T00")
    assert house.claimed() == ["load/2026-01-01/scheduled/1"]
    for state in (InstanceState.RUNNING, InstanceState.SUCCEEDED):
        house.center.report("job=raw && biz=2026-01-01T00", state, "test")
    house.settle()
    assert house.one("raw", "2026-01-01T00").generation == 2
    assert house.one("load", "2026-01-01").changed_at == house.now


def test_a_watermark_releases_what_it_has_reached(house: CenterHouse) -> None:
    needs = [{"table": "lake.a.b", "watermark": True}]
    house.save({"name": "load", "period": "hour", "since": "2026-01-01T21", "needs": needs})
    house.settle()
    at = {hour: int(datetime(2026, 1, 1, hour, tzinfo=timezone.utc).timestamp() * 1000) for hour in (22, 23)}
    house.tell("table=lake.a.b && watermark=", at[22] - 1)
    assert house.claimed() == []
    house.tell("table=lake.a.b && watermark=", at[22])
    assert house.claimed() == ["load/2026-01-01T21/scheduled/1"]
    house.tell("table=lake.a.b && watermark=", at[23])
    assert house.state("load", "2026-01-01T22") == "READY"
    house.tell("table=lake.a.b && watermark=", at[22])
    assert house.state("load", "2026-01-01T22") == "WAITING"


def test_a_virtual_job_that_is_made_by_a_table_succeeds_and_is_taken_back_with_it(house: CenterHouse) -> None:
    made_by = {"table": "lake.c.d", "partition": "dt={%Y%m%d}/app=x"}
    stream = {"name": "stream", "period": "day", "since": "2026-01-01", "made-by": made_by}
    house.save(stream, {"name": "after", "period": "day", "since": "2026-01-01", "needs": [{"job": "stream"}]})
    house.settle()
    assert house.state("stream", "2026-01-01") == "WAITING"
    partition = "table=lake.c.d && app=x && dt=20260101"
    house.tell(partition)
    assert (house.state("stream", "2026-01-01"), house.state("after", "2026-01-01")) == ("SUCCEEDED", "READY")
    house.tell(partition, 0)
    assert (house.state("stream", "2026-01-01"), house.state("after", "2026-01-01")) == ("WAITING", "WAITING")
    with pytest.raises(ConfigError, match=r"'stream' is made by table=lake.c.d"):
        house.center.report("job=stream && biz=2026-01-01", InstanceState.SUCCEEDED, "test")


def test_parts_of_a_virtual_job_do_not_wait_for_each_other(house: CenterHouse) -> None:
    raw = {"name": "raw", "period": "day", "virtual": True, "parts": ["eu", "us"]}
    one = {"name": "one", "period": "day", "since": "2026-01-02", "needs": [{"job": "raw", "part": "eu"}]}
    house.save(raw, one, {"name": "both", "period": "day", "since": "2026-01-02", "needs": [{"job": "raw"}]})
    house.pass_time(hours=1)
    with pytest.raises(ConfigError, match="part by part"):
        house.center.report(f"job=raw && biz={DAY}", InstanceState.SUCCEEDED, "test")
    with pytest.raises(ConfigError, match=rf"part by part, so ask for one of its parts: 'job=raw && biz={DAY} && part=eu', 'job=raw"):
        house.center.ready(f"job=raw && biz={DAY}")
    with pytest.raises(ConfigError, match="part by part"):
        house.center.ready(f"job=raw && biz>={DAY} && biz<={DAY}")
    assert house.center.ready(f"job=raw && biz={DAY} && part=eu") is None
    with pytest.raises(ConfigError, match=r"declares no part 'asia'; it has eu, us"):
        house.center.report(f"job=raw && biz={DAY} && part=asia", InstanceState.SUCCEEDED, "test")
    house.succeed(f"job=raw && part=eu && biz={DAY}")
    assert house.claimed() == [f"one/{DAY}/scheduled/1"]
    house.succeed(f"job=raw && biz={DAY} && part=us")
    assert house.claimed() == [f"both/{DAY}/scheduled/1"]


def test_run_again_is_a_generation_and_what_an_older_run_reports_changes_nothing(house: CenterHouse) -> None:
    house.save({"name": "load", "period": "day", "since": "2026-01-01"}, {**REPORT, "since": "2026-01-01"})
    house.settle()
    with pytest.raises(ConfigError, match="was not started here"):
        house.center.run_again("report", "2026-01-01")
    assert house.claimed() == ["load/2026-01-01/scheduled/1"]
    # Whoever claimed it may run it, although nobody has reported so.
    with pytest.raises(ConfigError, match="load/2026-01-01/scheduled/1 was claimed at 2026-01-01 23:30:00 UTC, so it may run: report how"):
        house.center.run_again("load", "2026-01-01")
    house.succeed("job=load && biz=2026-01-01", generation=1)
    assert house.state("report", "2026-01-01") == "READY"
    assert house.center.run_again("load", "2026-01-01").generation == 2
    house.settle()
    assert house.state("report", "2026-01-01") == "WAITING"
    assert house.claimed() == ["load/2026-01-01/scheduled/2"]
    house.succeed("job=load && biz=2026-01-01", generation=1)
    assert house.state("report", "2026-01-01") == "WAITING"
    house.succeed("job=load && biz=2026-01-01", 2, InstanceState.RUNNING)
    with pytest.raises(ConfigError, match="load/2026-01-01/scheduled/2 is running: report how it ended first"):
        house.center.run_again("load", "2026-01-01")
    house.succeed("job=load && biz=2026-01-01", generation=2)
    assert house.claimed() == ["report/2026-01-01/scheduled/1"]


def test_a_late_success_of_a_generation_that_had_failed_counts(house: CenterHouse) -> None:
    house.save({"name": "load", "period": "day", "since": "2026-01-01"}, {**REPORT, "since": "2026-01-01"})
    house.settle()
    house.claimed()
    house.succeed("job=load && biz=2026-01-01", 1, InstanceState.FAILED)
    assert house.claimed() == []
    house.succeed("job=load && biz=2026-01-01", 1)
    assert house.claimed() == ["report/2026-01-01/scheduled/1"]


def test_a_backfill_waits_for_its_own_runs_and_scheduled_ones_never_see_it(house: CenterHouse) -> None:
    jobs = ({"name": "load", "period": "day", "since": "2026-01-01"}, {**REPORT, "since": "2026-01-01"})
    house.save(*jobs)
    house.settle()
    house.succeed("job=load && biz=2026-01-01", generation=1)
    assert house.center.backfill("fix", ["load", "report"], "2025-12-31", "2026-01-01") == 4
    assert house.center.backfill("fix", ["load", "report"], "2025-12-31", "2026-01-01") == 0
    house.settle()
    assert house.state("report", "2026-01-01", "fix") == "WAITING"
    assert house.center.why("report", "2025-12-31", "fix").waits_for[0].subject == "job=load && backfill=fix && biz=2025-12-31"
    house.succeed("job=load && biz=2025-12-31 && backfill=fix", generation=1)
    assert house.state("report", "2025-12-31", "fix") == "READY"
    # The scheduled report of this day is ready, so that of the backfill waits for its end.
    house.succeed("job=load && biz=2026-01-01 && backfill=fix", generation=1)
    why = house.center.why("report", "2026-01-01", "fix")
    assert (why.instance.state, why.busy) == (InstanceState.WAITING, "scheduled")
    house.succeed("job=report && biz=2026-01-01", generation=1)
    assert house.state("report", "2026-01-01", "fix") == "READY"


def test_a_saved_project_changes_what_waits_and_not_what_was_claimed(house: CenterHouse) -> None:
    load = {"name": "load", "period": "day", "since": "2026-01-01", "needs": [{"table": "lake.a.b"}]}
    house.save(load)
    house.settle()
    changed = house.save({**load, "needs": [{"table": "lake.c.d"}]})
    assert (changed.added, changed.changed, changed.removed) == ((), ("load",), ())
    assert changed.previews == {"load": ("table=lake.c.d && window=2026-01-01T00:00Z/2026-01-02T00:00Z",)}
    house.tell("table=lake.a.b && window=2026-01-01T00:00Z/2026-01-02T00:00Z")
    assert house.claimed() == []
    house.tell("table=lake.c.d && window=2026-01-01T00:00Z/2026-01-02T00:00Z")
    assert house.claimed() == ["load/2026-01-01/scheduled/1"]
    assert house.save({**load, "needs": [{"table": "lake.e.f"}]}).changed == ("load",)
    assert house.state("load", "2026-01-01") == "READY"
    assert house.save().removed == ("load",)
    assert house.center.projects() == []
    with pytest.raises(NotFoundError, match="there is no job 'load'"):
        house.center.why("load", "2026-01-01")


def test_a_dry_run_saves_nothing_and_two_that_save_at_once_are_told(house: CenterHouse, monkeypatch: pytest.MonkeyPatch) -> None:
    file = {"project": "sales", "receiver": RECEIVER, "jobs": [{"name": "load", "period": "day"}]}
    assert house.center.save_project(file, dry_run=True).added == ("load",)
    assert house.center.jobs() == []
    other = house.another_center()
    real = house.store.turns

    def meanwhile(project: str) -> object:
        monkeypatch.undo()
        other.save_project({**file, "project": "other", "jobs": []})
        return real(project)

    monkeypatch.setattr(type(house.store), "turns", lambda self, project: meanwhile(project))
    with pytest.raises(ChangedMeanwhile, match="save it again"):
        house.center.save_project(file)


def test_a_save_says_how_many_instances_are_made_at_once_and_refuses_too_many(house: CenterHouse) -> None:
    file = {
        "project": "sales",
        "receiver": RECEIVER,
        "jobs": [{"name": "load", "period": "hour", "since": "2024-01-01T00", "trigger": "45"}],
    }
    days = {"name": "days", "period": "day", "trigger": "02:00"}
    # It is 23:30, so the trigger of the last hour has not passed.
    assert house.center.save_project(file, dry_run=True).at_once == {"load": (366 + 365 + 1) * 24 - 1}
    with pytest.raises(ConfigError, match=r"17,567 instances would be made at once.*'load' alone has 17,567 since 2024-01-01T00; give"):
        house.center.save_project(file)
    assert house.center.jobs() == []
    assert house.save({**days, "since": "2025-12-30"}).at_once == {"days": 3}
    house.settle()
    assert len(house.store.instances(InstanceQuery())) == 3
    assert house.save({**days, "since": "2025-12-30", "owner": "me"}).at_once == {}
    assert house.save({**days, "since": "2025-12-28"}).at_once == {"days": 5}
    house.settle()
    assert len(house.store.instances(InstanceQuery())) == 5
    assert house.center.save_project({**file, "project": "hours"}, many=True).at_once == {"load": 17_567}


def test_another_project_keeps_the_jobs_that_it_waits_for(house: CenterHouse) -> None:
    house.save(RAW)
    house.save({"name": "load", "period": "day", "needs": [{"job": "raw", "times": "whole"}]}, project="other")
    with pytest.raises(ConfigError, match="'raw' would be gone, but 'load' waits for it"):
        house.save()
    with pytest.raises(ConfigError, match="another calendar"):
        house.save({**RAW, "zone": "Europe/Berlin"})
    with pytest.raises(ConfigError, match="'sales' has a job of this name"):
        house.save(RAW, project="third")


def test_one_that_leads_no_more_changes_nothing(house: CenterHouse) -> None:
    house.save({"name": "load", "period": "day", "since": "2026-01-01"})
    house.settle()
    second = house.another_leader()
    assert second.once() is None
    house.now = datetime(2026, 1, 2, 1, tzinfo=timezone.utc)
    assert second.once() is not None
    assert house.leader.once() is None
    second.resign()
    assert house.leader.once() is not None


def test_why_names_who_makes_the_data(house: CenterHouse) -> None:
    made = {"name": "make", "period": "day", "since": "2026-01-01", "produces": ["table=lake.a.b"]}
    house.save(made, {"name": "load", "period": "day", "since": "2026-01-01", "needs": [{"table": "lake.a.b"}]})
    house.settle()
    (waits,) = house.center.why("load", "2026-01-01").waits_for
    assert (waits.produced_by, waits.there, waits.at) == (("make",), False, None)


def test_why_says_when_a_run_failed_and_what_if_failed_makes_of_it(house: CenterHouse) -> None:
    raw = {"name": "raw", "period": "day", "since": DAY, "receiver": RECEIVER}
    jobs = [
        {"name": "load", "period": "day", "since": DAY, "needs": [{"job": "raw"}]},
        {"name": "wait", "period": "day", "since": DAY, "needs": [{"job": "raw", "until": "6h"}]},
        {"name": "ignore", "period": "day", "since": DAY, "needs": [{"job": "raw", "until": "6h", "if-failed": "ignore"}]},
    ]
    house.save(raw, *jobs)
    house.pass_time(hours=1)
    assert house.center.why("load", DAY).waits_for[0].problem == ""
    house.succeed(f"job=raw && biz={DAY}", 1, InstanceState.FAILED)
    ends = {"load": "", "wait": ", also after 2026-01-02 06:00:00 UTC (if-failed: wait)"}
    ends["ignore"] = ", or until 2026-01-02 06:00:00 UTC (if-failed: ignore)"
    for name, end in ends.items():
        (one,) = house.center.why(name, DAY).waits_for
        assert one.problem == f"it FAILED at 2026-01-02 00:30:00 UTC, and is waited for until it has succeeded{end}"
    house.succeed(f"job=raw && biz={DAY}", 1)
    assert [one.problem for one in house.center.why("load", DAY).found] == [""]


def test_why_says_which_parts_of_a_virtual_job_are_reported(house: CenterHouse) -> None:
    house.save({"name": "raw", "period": "day", "virtual": True, "parts": ["eu", "us", "asia"]}, {**RAW, "name": "hours"})
    nothing = house.center.why("raw", DAY)
    assert (nothing.instance.id, nothing.instance.missing, nothing.waits_for[0].problem) == (0, 3, "nobody has reported it")
    house.succeed(f"job=raw && biz={DAY} && part=eu")
    house.succeed(f"job=raw && biz={DAY} && part=us", state=InstanceState.FAILED)
    why = house.center.why("raw", DAY)
    assert [one.subject for one in why.found] == [f"job=raw && biz={DAY} && part=eu"]
    assert {one.subject[-4:]: one.problem for one in why.waits_for} == {
        "t=us": "it was reported as FAILED at 2026-01-01 23:30:00 UTC",
        "asia": "nobody has reported it",
    }
    assert house.center.why("hours", f"{DAY}T03").waits_for[0].subject == f"job=hours && biz={DAY}T03"
    house.succeed(f"job=hours && biz={DAY}T03")
    found = house.center.why("hours", f"{DAY}T03")
    assert (found.instance.state, found.waits_for, found.found[0].at) == (InstanceState.SUCCEEDED, (), house.now)
    house.succeed(f"job=raw && biz={DAY} && part=us")
    house.succeed(f"job=raw && biz={DAY} && part=asia")
    assert house.center.why("raw", DAY).instance.state is InstanceState.SUCCEEDED


def test_reports_need_a_generation_where_runs_are_started_here(house: CenterHouse) -> None:
    house.save({"name": "load", "period": "day"}, RAW)
    with pytest.raises(ConfigError, match="needs 'generation'"):
        house.center.report(f"job=load && biz={DAY}", InstanceState.SUCCEEDED, "test")
    with pytest.raises(ConfigError, match="is data of a table"):
        house.center.report("table=lake.a.b && day=2026-01-01", InstanceState.SUCCEEDED, "test")
    with pytest.raises(ConfigError, match="is no HOUR"):
        house.center.report(f"job=raw && biz={DAY}", InstanceState.SUCCEEDED, "test")
    assert house.center.ready(f"job=raw && biz={DAY}T03") is None
    house.succeed(f"job=raw && biz={DAY}T03:00+00:00")
    assert house.center.ready(f"job=raw && biz={DAY}T03") is True
    house.succeed(f"job=raw && biz={DAY}T03", state=InstanceState.RUNNING)
    assert house.center.ready(f"job=raw && biz={DAY}T03") is False


def test_numbers_of_a_reporter_tell_copies_and_old_reports(house: CenterHouse) -> None:
    house.save(RAW)
    subject = f"job=raw && biz={DAY}T03"
    for number, state in ((5, InstanceState.SUCCEEDED), (5, InstanceState.FAILED), (4, InstanceState.FAILED)):
        house.center.report(subject, state, "a", number=number)
        house.settle()
        assert house.center.ready(subject) is True
    house.center.report(subject, InstanceState.FAILED, "b", number=1)
    house.settle()
    assert house.center.ready(subject) is False


def test_of_several_reports_all_are_taken_or_none(house: CenterHouse) -> None:
    house.save(RAW)
    good = [RunReport(hour, InstanceState.SUCCEEDED) for hour in HOURS]
    with pytest.raises(NotFoundError, match="report 25 of 25: there is no job 'nobody'"):
        house.center.report_all([*good, RunReport(f"job=nobody && biz={DAY}", InstanceState.SUCCEEDED)], "test")
    house.settle()
    assert house.center.ready(HOURS[0]) is None
    house.center.report_all([*good, RunReport(HOURS[5], InstanceState.FAILED)], "test")
    house.settle()
    assert [house.center.ready(hour) for hour in HOURS].count(True) == 23
    assert house.center.ready(HOURS[5]) is False


def test_a_range_of_runs_is_ready_when_each_is(house: CenterHouse) -> None:
    house.save(RAW, {**LOAD, "zone": "Europe/Berlin"})
    day = f"job=raw && biz>={DAY}T00 && biz<={DAY}T23"
    assert house.center.ready(day) is None
    for hour in HOURS[1:]:
        house.succeed(hour)
    assert house.center.ready(day) is None
    assert house.center.ready(f"job=raw && biz>={DAY}T01 && biz<={DAY}T23") is True
    house.succeed(HOURS[0], state=InstanceState.FAILED)
    assert house.center.ready(day) is False
    house.succeed(HOURS[0])
    assert house.center.ready(day) is True
    for wrong in (f"job=raw && biz>={DAY}T03 && biz<={DAY}T02", "job=raw && biz>=2000-01-01T00 && biz<=2026-01-01T00"):
        with pytest.raises(ConfigError, match="is empty, or has more than"):
            house.center.ready(wrong)
    with pytest.raises(ConfigError, match="compares 'biz'"):
        house.center.ready(f"job=raw && biz>={DAY}T00")


def test_what_is_never_delivered_keeps_nothing_new_from_its_turn(house: CenterHouse) -> None:
    house.save(*({"name": f"stuck{number}", "period": "day", "since": "2026-01-01"} for number in range(5)))
    house.settle()
    assert len(house.center.claim(RECEIVER, 5)) == 5
    house.save({"name": "good", "period": "day", "since": "2026-01-01"}, project="other")
    house.settle()
    assert [one.job for one in house.center.claim(RECEIVER, 1)] == ["good"]


@pytest.mark.parametrize("name", ["scheduled", "", "a b", "a/b", "fix\t", "a" * 201])
def test_a_backfill_has_a_name_of_its_own(house: CenterHouse, name: str) -> None:
    house.save({"name": "load", "period": "day"})
    with pytest.raises(ConfigError, match="must have a name of letters"):
        house.center.backfill(name, ["load"], "2026-01-01", "2026-01-01")


@pytest.mark.parametrize(("generation", "number"), [(1_000_001, None), (0, None), (None, 2**63), (None, -1)])
def test_numbers_that_no_database_keeps_are_refused(house: CenterHouse, generation: int | None, number: int | None) -> None:
    house.save(RAW)
    with pytest.raises(ConfigError, match="'number' must be"):
        house.center.report(HOURS[0], InstanceState.SUCCEEDED, "test", generation=generation, number=number)


def test_what_has_ended_is_looked_at_for_some_weeks(house: CenterHouse) -> None:
    house.save({"name": "stream", "period": "day", "since": "2026-01-01", "made-by": {"table": "lake.c.d"}})
    house.settle()
    house.tell("table=lake.c.d && window=2026-01-01T00:00Z/2026-01-02T00:00Z")
    assert house.state("stream", "2026-01-01") == "SUCCEEDED"
    assert len(house.store.awaited("table", house.now - timedelta(days=35), 10)) == 1
    assert not house.store.awaited("table", house.now + timedelta(days=1), 10)


def test_what_a_rule_reaches_is_kept_and_what_is_older_is_unknown_and_said_to_be_forgotten(house: CenterHouse) -> None:
    raw = {"name": "raw", "period": "day", "virtual": True, "since": "2026-01-01"}
    year = {"name": "year", "period": "day", "since": "2027-01-26", "needs": [{"job": "raw", "times": -390}]}
    house.save(raw, year)
    house.succeed("job=raw && biz=2026-01-01")
    house.now = datetime(2027, 1, 26, tzinfo=timezone.utc)
    house.settle()
    assert "year/2027-01-26/scheduled/1" in house.claimed()
    house.pass_time(days=30)
    assert house.center.ready("job=raw && biz=2026-01-01") is True, "what ran on it is still there"
    house.succeed("job=year && biz=2027-01-26", generation=1)
    house.pass_time(days=401)
    assert house.center.ready("job=raw && biz=2026-01-01") is None
    house.center.backfill("old", ["year"], "2027-01-26", "2027-01-26")
    (one,) = house.center.why("year", "2027-01-26", "old").waits_for
    assert (one.subject, one.problem.partition(":")[0].startswith("it is unknown, because what was there before")) == (
        "job=raw && biz=2026-01-01",
        True,
    )
    house.succeed("job=raw && biz=2026-01-01")
    assert "year/2027-01-26/old/1" in house.claimed()


def test_numbers_of_reporters_are_forgotten_with_what_they_are_about(house: CenterHouse) -> None:
    house.save(RAW)
    house.center.report(HOURS[0], InstanceState.SUCCEEDED, "test", number=7)
    house.settle()
    house.store.expire(house.now + timedelta(days=1))
    house.center.report(HOURS[0], InstanceState.SUCCEEDED, "test", number=1)
    house.settle()
    assert house.center.ready(HOURS[0]) is True


def test_a_generation_that_nobody_started_changes_nothing(house: CenterHouse) -> None:
    house.save({"name": "load", "period": "day", "since": "2026-01-01", "needs": [{"table": "lake.a.b"}]})
    house.settle()
    with pytest.raises(ConfigError, match="'generation' of 'job=load && biz=2026-01-01' is 99, but its newest run has 1"):
        house.succeed("job=load && biz=2026-01-01", 99)
    # One that came before the door knew that.
    house.store.post([run_fact(RunId("load", "2026-01-01"), Report(InstanceState.SUCCEEDED, house.now, 99), "test")])
    house.settle()
    assert house.state("load", "2026-01-01") == "WAITING"
    assert house.center.ready("job=load && biz=2026-01-01") is False


@pytest.mark.parametrize("state", [InstanceState.RUNNING, InstanceState.FAILED, InstanceState.SUCCEEDED])
def test_a_generation_that_nobody_started_makes_no_instance(house: CenterHouse, state: InstanceState) -> None:
    load = {"name": "load", "period": "day", "since": DAY, "needs": [{"table": "lake.a.b"}]}
    house.save(load, {**REPORT, "since": DAY})
    house.store.post([run_fact(RunId("load", DAY), Report(state, house.now, 3), "test")])
    house.pass_time(days=1)
    assert (house.state("load", DAY), house.state("report", DAY), house.claimed()) == ("WAITING", "WAITING", [])


def test_reports_of_runs_that_nobody_started_are_refused_and_those_that_come_late_or_twice_are_not(house: CenterHouse) -> None:
    house.save({"name": "load", "period": "day", "since": DAY}, RAW)
    house.pass_time(hours=1)
    subject, of_fix = f"job=load && biz={DAY}", f"job=load && backfill=fix && biz={DAY}"
    ran, skips = (RunReport(subject, InstanceState.FAILED, generation) for generation in (2, 4))
    with pytest.raises(
        ConfigError, match=r"report 2 of 2: 'generation' of .* is 4, but its newest run has 2, and one that ran again .* 3:"
    ):
        house.center.report_all([ran, skips], "test")
    # Nobody has applied the first ones yet.
    for generation, state in ((1, InstanceState.FAILED), (2, InstanceState.RUNNING), (2, InstanceState.FAILED)):
        house.center.report(subject, state, "test", generation=generation)
    house.center.report_all([RunReport(subject, InstanceState.SUCCEEDED, generation) for generation in (3, 4, 3, 1, 4)], "test")
    house.settle()
    assert (house.one("load", DAY).generation, house.state("load", DAY)) == (4, "SUCCEEDED")
    with pytest.raises(NotFoundError, match=f"there is no run '{of_fix}': no backfill 'fix' has 'load' for '{DAY}'; correct the name"):
        house.center.report(of_fix, InstanceState.SUCCEEDED, "test", generation=1)
    house.center.backfill("fix", ["load"], DAY, DAY)
    for _ in range(2):
        house.succeed(of_fix, 1)
    assert house.state("load", DAY, "fix") == "SUCCEEDED"
    with pytest.raises(ConfigError, match="has the backfill 'fix', but 'raw' is virtual, and its runs are of none: leave 'backfill' out"):
        house.center.report(f"{HOURS[0]} && backfill=fix", InstanceState.SUCCEEDED, "test")


def test_reports_of_times_far_off_are_refused(house: CenterHouse) -> None:
    house.save({**RAW, "since": "2026-01-01T00"}, {"name": "old", "period": "day", "since": "2020-01-01", "virtual": True})
    for biz, says in (("2062-01-01T00", "begins more than 400 days from now"), ("2016-01-01T00", r"is more than 400 days ago, and before")):
        with pytest.raises(ConfigError, match=f"'biz' of 'job=raw && biz={biz}' {says}"):
            house.center.report(f"job=raw && biz={biz}", InstanceState.SUCCEEDED, "test")
    for subject in ("job=raw && biz=2025-12-31T23", "job=raw && biz=2026-12-31T00", "job=old && biz=2020-01-01"):
        house.succeed(subject)
        assert house.center.ready(subject) is True


def test_why_says_that_a_time_is_before_the_first_one_or_still_to_come(house: CenterHouse) -> None:
    house.save({**LOAD, "since": "2026-01-01"}, {**RAW, "since": "2026-01-01T00"})
    with pytest.raises(
        NotFoundError, match=r"'load' has no instance for '2025-12-31': its first time is 2026-01-01 \('since'\), so none is"
    ):
        house.center.why("load", "2025-12-31")
    with pytest.raises(NotFoundError, match="it is made at its trigger, at 2026-01-03 02:00:00 UTC"):
        house.center.why("load", "2026-01-03")
    with pytest.raises(NotFoundError, match="its trigger was at 2026-01-01 02:00:00 UTC, and it is made while `serve` runs"):
        house.center.why("load", "2026-01-01")
    with pytest.raises(NotFoundError, match="the backfill 'fix' has none of it"):
        house.center.why("load", "2026-01-01", "fix")
    (missing,) = house.center.why("raw", "2025-12-31T23").waits_for
    assert missing.problem == "nobody has reported it, and nobody waits for it: the first time of 'raw' is 2026-01-01T00 ('since')"


def test_a_backfill_of_times_before_the_first_one_waits_for_its_data_or_is_refused(house: CenterHouse) -> None:
    start = {"since": "2026-01-01"}
    end = {"name": "end", "period": "day", **start, "needs": [{"table": "lake.a.b"}, {"job": "end", "times": -1}]}
    house.save({**RAW, "since": "2026-01-01T00"}, {**LOAD, **start}, {**REPORT, **start}, end)
    with pytest.raises(
        ConfigError, match=r"would start 'load' for '2025-12-31' without job=raw && biz=2025-12-31T00, .*: give it an earlier"
    ):
        house.center.backfill("fix", ["load", "report"], "2025-12-31", "2026-01-01")
    with pytest.raises(
        ConfigError, match=r"'report' for '2025-12-31' without job=load && biz=2025-12-31, .*: take 'load' into the backfill,"
    ):
        house.center.backfill("fix", ["report"], "2025-12-31", "2026-01-01")
    assert house.center.backfill("fix", ["end"], "2025-12-30", "2026-01-01") == 3
    assert [one.subject for one in house.center.why("end", "2025-12-30", "fix").waits_for] == [
        "table=lake.a.b && window=2025-12-30T00:00Z/2025-12-31T00:00Z"
    ]


@pytest.mark.parametrize("form", ["jobs", "nodes"])
def test_a_backfill_before_the_first_time_of_a_project_that_is_waited_for_is_refused(house: CenterHouse, form: str) -> None:
    house.save({"name": "load", "period": "day", "since": "2026-01-01"}, project="sources")
    house.save({"name": "report", "period": "day", "since": "2026-01-01"}, after=["sources"], form=form)
    with pytest.raises(ConfigError, match=r"without job=load && biz=2025-12-31, .*: take 'load' into the backfill"):
        house.center.backfill("fix", ["report"], "2025-12-31", "2025-12-31")
    assert house.center.backfill("fix", ["load", "report"], "2025-12-31", "2025-12-31") == 2


def test_a_missing_receiver_is_called_missing(house: CenterHouse) -> None:
    with pytest.raises(
        ConfigError, match="job load: 'receiver' is missing: write in the job, or in the project for all of its jobs, by which"
    ):
        house.center.save_project({"project": "sales", "jobs": [{"name": "load", "period": "day"}]})
    with pytest.raises(ConfigError, match="'receiver' is 'a b' but must be a name of 1 to 200 letters, digits"):
        house.save({"name": "load", "period": "day", "receiver": "a b"})


def test_a_backfill_of_many_years_is_refused_at_once(house: CenterHouse) -> None:
    house.save({"name": "load", "period": "hour"})
    with pytest.raises(ConfigError, match="more than 10000 instances of 'load'"):
        house.center.backfill("fix", ["load"], "1990-01-01T00", "2026-01-01T00")


def test_a_state_database_that_was_set_back_is_read_anew(house: CenterHouse, tmp_path: Path) -> None:
    """Somebody restored an older copy of it below a running server, which knows a job that is not there."""
    house.save({"name": "load", "period": "day", "since": DAY})
    with closing(sqlite3.connect(tmp_path / "state.db")) as running, closing(sqlite3.connect(":memory:")) as copy:
        running.backup(copy)
        house.save({"name": "later", "period": "day", "since": DAY}, project="more")
        copy.backup(running)
    assert [one.name for one in house.center.jobs()] == ["load"]


def test_one_pass_takes_a_report_in_and_releases_what_waits_for_it(house: CenterHouse) -> None:
    house.save({"name": "raw", "period": "day", "since": "2026-01-01", "virtual": True})
    house.save({"name": "load", "period": "day", "since": "2026-01-01", "needs": [{"job": "raw"}]}, project="loads")
    house.settle()
    house.center.report("job=raw && biz=2026-01-01", InstanceState.SUCCEEDED, "test")
    house.leader.run_while_full(lambda: False)
    assert house.state("load", "2026-01-01") == "READY"


def test_a_time_that_is_forgotten_by_then_is_refused(house: CenterHouse) -> None:
    need = {"job": "raw", "times": -391}
    with pytest.raises(ConfigError, match="-390"):
        house.save({"name": "raw", "period": "day", "virtual": True}, {"name": "load", "period": "day", "needs": [need]})
    house.save({"name": "raw", "period": "day", "virtual": True}, {"name": "load", "period": "day", "needs": [{**need, "times": -390}]})


def test_a_report_of_a_run_that_is_known_does_not_read_the_inbox(tmp_path: Path) -> None:
    house = CenterHouse(sqlite_stores(tmp_path))
    house.save({"name": "load", "period": "day", "since": DAY})
    house.center.backfill_runs("again", [("load", DAY)])
    run = f"job=load && biz={DAY} && backfill=again"

    def reads_of_inbox(generation: int) -> int:
        with statements() as asked:
            house.center.report(run, InstanceState.RUNNING, "test", generation=generation)
        return sum(one.startswith("SELECT") and "FROM compaction_center_fact" in one for one in asked)

    # It is there, or it may be the next one. What is higher than that may be known by the inbox.
    assert [reads_of_inbox(generation) for generation in (1, 2, 3)] == [0, 0, 1]
    with pytest.raises(ConfigError, match="its newest run has 3"):
        house.center.report(run, InstanceState.RUNNING, "test", generation=5)
    # The highest report of one request decides what is asked.
    reports = [RunReport(run, InstanceState.RUNNING, generation=generation) for generation in (2, 4)]
    house.center.report_all(reports, "test")
    with pytest.raises(NotFoundError, match="no backfill 'other'"):
        house.center.report(run.replace("again", "other"), InstanceState.RUNNING, "test", generation=1)
