"""When instances will be ready and done, by what was before."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from compaction_pipeline.core.dependencies.center.inbox import Quality
from compaction_pipeline.core.dependencies.center.instances import InstanceState
from compaction_pipeline.core.errors import ConfigError, NotFoundError
from compaction_pipeline.services.dependencies.definitions import Definitions
from compaction_pipeline.services.dependencies.forecast import Forecast, ForecastJobs, InstanceForecast, Promise
from compaction_pipeline.services.dependencies.reports import QualityReport
from compaction_pipeline_tests.services.dependencies.center_house import CenterHouse
from compaction_pipeline_tests.state import sqlite_stores

RAW = {"name": "raw", "period": "day", "virtual": True, "since": "2026-01-01"}
LOAD: dict[str, Any] = {"name": "load", "period": "day", "trigger": "01:00", "since": "2026-01-01", "needs": [{"job": "raw", "times": -1}]}
REPORT: dict[str, Any] = {"name": "report", "period": "day", "trigger": "02:00", "since": "2026-01-01", "needs": [{"job": "load"}]}


@pytest.fixture
def house(tmp_path: Path) -> CenterHouse:
    return CenterHouse(sqlite_stores(tmp_path), datetime(2026, 1, 1, 0, 30, tzinfo=timezone.utc))


def forecast(house: CenterHouse, **asked: Any) -> Forecast:
    return ForecastJobs(house.stores.center_runs, Definitions(house.store), lambda: house.now).forecast(**asked)


def at(day: int, hour: int, minute: int = 0) -> datetime:
    return datetime(2026, 1, day, hour, minute, tzinfo=timezone.utc)


def live_a_day(house: CenterHouse, day: int, *, raw: int = 30, load: int = 60, report: int = 10) -> None:
    """The raw data of the day before comes `raw` minutes after midnight, and the jobs take so many minutes."""
    house.now = at(day, 0) + timedelta(minutes=raw)
    house.succeed(f"job=raw && biz=2026-01-{day - 1:02}")
    house.now = max(house.now, at(day, 1))
    run(house, "load", day, load)
    house.now = max(house.now, at(day, 2))
    run(house, "report", day, report)


def run(house: CenterHouse, job: str, day: int, minutes: int) -> None:
    house.settle()
    assert f"{job}/2026-01-{day:02}/scheduled/1" in house.claimed()
    house.now += timedelta(minutes=minutes)
    house.succeed(f"job={job} && biz=2026-01-{day:02}", generation=1)


def of(found: Forecast, job: str, day: int) -> InstanceForecast:
    return next(one for one in found.instances if (one.job, one.biz) == (job, f"2026-01-{day:02}"))


def times(one: InstanceForecast) -> tuple[datetime, datetime, datetime]:
    assert one.ready is not None
    assert one.done is not None
    return one.ready.usual, one.done.usual, one.done.late


def test_a_chain_takes_as_long_as_it_usually_takes_and_as_long_as_late_runs_take(house: CenterHouse) -> None:
    house.save(RAW, LOAD, REPORT)
    for day, load in enumerate([60] * 8 + [90, 60], start=2):
        live_a_day(house, day, load=load)
    house.now = at(12, 0, 5)
    house.settle()
    found = forecast(house, hours=24)
    # The raw data comes at 00:30, load begins at its trigger, and report waits for load.
    assert times(of(found, "load", 12)) == (at(12, 1), at(12, 2), at(12, 2))
    assert times(of(found, "report", 12)) == (at(12, 2), at(12, 2, 10), at(12, 2, 10))
    house.now = at(12, 1, 15)
    house.settle()
    # Nobody has reported raw yet, and it comes now at the earliest.
    found = forecast(house)
    assert times(of(found, "load", 12)) == (at(12, 1, 15), at(12, 2, 15), at(12, 2, 15))
    report = of(found, "report", 12)
    assert times(report) == (at(12, 2, 15), at(12, 2, 25), at(12, 2, 25))
    assert report.path == ("job=report && biz=2026-01-12", "job=load && biz=2026-01-12", "job=raw && biz=2026-01-11")
    assert not report.is_at_least
    # Of ten runs, one took longer: the ninth of ten is late.
    live_a_day(house, 12, raw=90, load=90)
    late = of(forecast(house, job="load"), "load", 13)
    assert times(late)[1:] == (at(13, 2), at(13, 2, 30))


def test_why_says_when_what_is_waited_for_is_expected_where_it_was_seen_before(house: CenterHouse) -> None:
    house.save(RAW, LOAD, REPORT)
    jobs = ForecastJobs(house.stores.center_runs, Definitions(house.store), lambda: house.now)
    house.now = at(2, 1)
    house.settle()
    assert [one.expected for one in jobs.explain(house.center.why("load", "2026-01-02")).waits_for] == [None]
    for day in range(3, 8):
        live_a_day(house, day)
    house.now = at(8, 1)
    house.settle()
    (raw,) = jobs.explain(house.center.why("load", "2026-01-08")).waits_for
    assert raw.expected is not None
    # Half an hour after midnight is over.
    assert raw.expected.usual == at(8, 1)


def test_a_run_that_takes_longer_than_usual_is_done_now_at_the_earliest(house: CenterHouse) -> None:
    house.save(RAW, LOAD, REPORT)
    for day in range(2, 8):
        live_a_day(house, day)
    house.now = at(8, 0, 30)
    house.succeed("job=raw && biz=2026-01-07")
    house.now = at(8, 1)
    house.settle()
    assert house.claimed() == ["load/2026-01-08/scheduled/1"]
    house.now = at(8, 1, 20)
    assert times(of(forecast(house), "report", 8)) == (at(8, 2), at(8, 2, 10), at(8, 2, 10))
    house.now = at(8, 3)
    found = of(forecast(house), "load", 8)
    assert found.state.value == "READY"
    assert times(found) == (at(8, 1), at(8, 3), at(8, 3))


def test_a_failed_run_is_named_by_all_that_wait_for_it(house: CenterHouse) -> None:
    house.save(RAW, LOAD, {**REPORT, "promise": "06:00"})
    for day in range(2, 5):
        live_a_day(house, day)
    house.now = at(5, 0, 30)
    house.succeed("job=raw && biz=2026-01-04")
    house.now = at(5, 1)
    house.settle()
    house.claimed()
    house.center.report("job=load && biz=2026-01-05", InstanceState.FAILED, "test", generation=1)
    house.settle()
    found = of(forecast(house), "report", 5)
    assert (found.ready, found.done, found.blocked_by) == (None, None, "job=load && biz=2026-01-05")
    assert (found.promise, found.promised_at) == (Promise.IN_DANGER, at(5, 6))
    house.now = at(5, 7)
    assert of(forecast(house), "report", 5).promise is Promise.BROKEN


def test_what_was_never_seen_makes_a_forecast_the_earliest_time(house: CenterHouse) -> None:
    house.save(RAW, LOAD, {**REPORT, "needs": [*REPORT["needs"], {"table": "lake.shop.orders"}]})
    found = forecast(house)
    assert of(found, "load", 1).is_at_least
    assert times(of(found, "report", 1))[0] == at(1, 2)
    assert of(found, "report", 1).is_at_least
    assert (found.kept, found.judged) == (0, 0)


def test_data_of_tables_comes_as_long_after_the_start_of_the_period_as_before(house: CenterHouse) -> None:
    house.save({**REPORT, "needs": [{"table": "lake.shop.orders"}]})
    for day in range(1, 7):
        house.now = at(day, 5, 20 if day == 6 else 0)
        house.tell(f"table=lake.shop.orders && window=2026-01-{day:02}T00:00Z/2026-01-{day + 1:02}T00:00Z")
        run(house, "report", day, 30)
    one = of(forecast(house), "report", 7)
    assert times(one) == (at(7, 5), at(7, 5, 30), at(7, 5, 50))
    assert one.path[-1] == "table=lake.shop.orders && window=2026-01-07T00:00Z/2026-01-08T00:00Z"


def test_promises_are_kept_in_danger_or_broken(house: CenterHouse) -> None:
    house.save(RAW, LOAD, {**REPORT, "promise": "15min"})
    for day, report in enumerate([10] * 7 + [30], start=2):
        live_a_day(house, day, report=report)
    found = forecast(house, project="sales")
    assert of(found, "report", 10).promised_at == at(10, 2, 15)
    assert of(found, "report", 10).promise is Promise.IN_DANGER
    assert of(found, "load", 10).promise is None
    house.save(RAW, LOAD, {**REPORT, "promise": "5min"})
    assert of(forecast(house), "report", 10).promise is Promise.BROKEN
    house.save(RAW, LOAD, {**REPORT, "promise": "03:00"})
    assert of(forecast(house), "report", 10).promise is Promise.KEPT
    with pytest.raises(ConfigError, match="job report: 'promise' is 'soon' but must be a duration"):
        house.save(RAW, LOAD, {**REPORT, "promise": "soon"})


def test_the_share_of_runs_that_kept_to_the_forecast_is_counted(house: CenterHouse) -> None:
    house.save(RAW, LOAD, REPORT)
    for day, load in enumerate([50, 51, 52, 53, 54, 55, 45, 46], start=2):
        live_a_day(house, day, load=load)
    found = forecast(house, job="load")
    # The sixth took longer than the five before it; the seventh and the eighth did not.
    assert (found.kept, found.judged) == (2, 3)


def test_a_long_chain_of_runs_that_wait_for_the_one_before_is_forecast(house: CenterHouse) -> None:
    house.save({"name": "own", "period": "hour", "since": "2026-01-01T00", "needs": [{"job": "own", "times": -1}]})
    house.now = at(1, 0) + timedelta(hours=1500)
    house.settle()
    found = forecast(house, hours=1)
    assert len(found.instances) >= 1500
    assert max(len(one.path) for one in found.instances) >= 1500


def test_wrong_questions_are_refused(house: CenterHouse) -> None:
    house.save(RAW, LOAD)
    with pytest.raises(ConfigError, match="'hours' is 0 but must be above 0"):
        forecast(house, hours=0)
    with pytest.raises(NotFoundError, match="no job 'loud'"):
        forecast(house, job="loud")
    with pytest.raises(NotFoundError, match="no project 'sails'"):
        forecast(house, project="sails")
    with pytest.raises(NotFoundError, match="the job 'load' is of project 'sales', not of 'sails'"):
        forecast(house, job="load", project="sails")


def test_a_run_that_waits_for_its_quality_is_not_there(house: CenterHouse) -> None:
    house.save(RAW, {**LOAD, "quality": "expectations"}, REPORT)
    house.now = at(2, 0)
    house.succeed("job=raw && biz=2026-01-01")
    house.now = at(2, 2)
    run(house, "load", 2, 60)
    house.now = at(2, 5)
    waiting = of(forecast(house), "report", 2)
    assert waiting.is_at_least
    assert times(waiting)[0] == at(2, 5)
    house.center.tell_quality([QualityReport("job=load && biz=2026-01-02", Quality.FAILED, 1)], "test")
    house.settle()
    assert of(forecast(house), "report", 2).blocked_by == "job=load && biz=2026-01-02"
