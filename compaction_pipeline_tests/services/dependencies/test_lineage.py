"""What jobs should wait for, by the tables that they read and write."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from compaction_pipeline.core.errors import ConfigError, NotFoundError
from compaction_pipeline.core.tables.table import CatalogEntry
from compaction_pipeline_tests.services.dependencies.center_house import CenterHouse
from compaction_pipeline_tests.state import sqlite_stores

SINCE = {"period": "day", "since": "2026-01-01"}


@pytest.fixture
def house(tmp_path: Path) -> CenterHouse:
    return CenterHouse(sqlite_stores(tmp_path))


def job(name: str, reads: str = "", makes: str = "", **more: Any) -> Mapping[str, Any]:
    tables = {key: [f"table=lake.shop.{one}" for one in text.split()] for key, text in (("reads", reads), ("produces", makes)) if text}
    return {"name": name, **SINCE, **tables, **more}


LOAD = job("load", makes="orders")


def test_a_job_that_reads_what_another_makes_is_told_to_wait_for_it(house: CenterHouse) -> None:
    change = house.save(LOAD, job("report", reads="orders"), job("weekly", reads="orders", period="week", since="2026-W01"))
    assert [str(one) for one in change.suggestions] == [
        "report: should wait for job=load, times 0, because it reads table=lake.shop.orders",
        "weekly: should wait for job=load, times whole, because it reads table=lake.shop.orders",
    ]
    assert house.lineage.lineage().suggestions == change.suggestions
    assert house.needs("report") == ()


def test_automatic_needs_are_added_when_the_project_is_saved_and_gone_when_it_says_suggest(house: CenterHouse) -> None:
    jobs = (LOAD, job("report", reads="orders"), job("running", reads="running orders", makes="running"))
    change = house.save(*jobs, dependencies="automatic")
    assert [(one.job, one.upstream, one.times, one.added) for one in change.suggestions] == [
        ("report", "job=load", "0", True),
        ("running", "job=load", "0", True),
        ("running", "job=running", "-1", True),
    ]
    assert house.needs("report") == ("job=load 0",)
    assert house.needs("running") == ("job=load 0", "job=running -1")
    assert house.lineage.lineage().suggestions == ()
    # What was saved can be saved again, and is the same.
    (saved,) = house.center.projects()
    again = house.center.save_project(saved.file)
    assert (again.added, again.changed, again.suggestions) == ((), (), change.suggestions)
    house.save(*jobs, dependencies="suggest")
    assert house.needs("report") == ()


def test_an_automatic_need_holds_its_job_back(house: CenterHouse) -> None:
    house.save(LOAD, job("report", reads="orders"), dependencies="automatic")
    house.settle()
    assert house.state("report", "2026-01-01") == "WAITING"
    assert house.claimed() == ["load/2026-01-01/scheduled/1"]
    house.succeed("job=load && biz=2026-01-01", generation=1)
    assert house.claimed() == ["report/2026-01-01/scheduled/1"]


@pytest.mark.parametrize(
    "need",
    [{"job": "load", "times": -1}, {"job": "load", "strength": "any", "times": "[-2,0]"}, {"table": "lake.shop.orders"}],
    ids=["other times", "a weak need", "the table itself"],
)
def test_a_need_that_a_person_wrote_stands_in_place_of_that_of_lineage(house: CenterHouse, need: Mapping[str, Any]) -> None:
    change = house.save(LOAD, job("report", reads="orders", needs=[need]), dependencies="automatic")
    assert change.suggestions == ()
    assert len(house.needs("report")) == 1


def test_what_only_a_person_can_say_is_suggested_and_never_added(house: CenterHouse) -> None:
    change = house.save(
        LOAD,
        job("hourly", reads="orders", period="hour", since="2026-01-01T00"),
        job("monthly", reads="weekly", period="month", since="2026-01"),
        job("week", makes="weekly", period="week", since="2026-W01"),
        job("other", reads="made.elsewhere"),
        dependencies="automatic",
    )
    assert [str(one) for one in change.suggestions] == [
        "hourly: should wait for job=load, and say which times, because it reads table=lake.shop.orders",
        "monthly: should wait for job=week, and say which times, because it reads table=lake.shop.weekly",
        "other: should wait for table=lake.shop.made.elsewhere, and say which times, because it reads table=lake.shop.made.elsewhere",
    ]
    assert house.needs("hourly") == ()


def test_a_wait_for_a_job_that_makes_nothing_of_what_is_read_is_told_to_the_owner(house: CenterHouse) -> None:
    waits = {"needs": [{"job": "load"}]}
    change = house.save(
        LOAD,
        job("copy"),
        job("report", reads="refunds", owner="ann", **waits),
        job("unknown", **waits),
        job("on_copy", needs=[{"job": "copy"}]),
    )
    (alert,) = change.alerts
    assert (alert.job, alert.owner) == ("report", "ann")
    assert alert.text == "it waits for job=load but reads nothing of what that makes (table=lake.shop.orders)"


def test_a_virtual_job_of_which_nobody_reports_is_told_after_twice_its_period(house: CenterHouse) -> None:
    house.save(job("raw", virtual=True, owner="eve"), job("never", virtual=True, period="hour", since="2026-01-01T22"))
    house.succeed("job=raw && biz=2026-01-01")
    house.now += timedelta(hours=1, minutes=29)
    assert house.lineage.lineage().alerts == ()
    house.now += timedelta(hours=2)
    (alert,) = house.lineage.lineage("sales").alerts
    assert str(alert) == "never: no run was ever reported, though its period is a HOUR: who makes it should report it"
    house.now += timedelta(hours=45)
    raw = house.lineage.lineage().alerts[1]
    assert (raw.job, raw.owner) == ("raw", "eve")
    assert "its last report is of 2026-01-01 23:30 UTC" in raw.text
    with pytest.raises(NotFoundError, match="no project 'sails'"):
        house.lineage.lineage("sails")


SQL = {"catalog": "lake", "namespace": "shop"}


def test_the_tables_of_sql_are_kept_in_its_place(house: CenterHouse) -> None:
    house.stores.catalogs.add(CatalogEntry("cold", {}))
    report = {"name": "report", **SINCE, "sql": "INSERT INTO cold.a.daily SELECT * FROM orders"}
    by_hand = {"name": "by_hand", **SINCE, "sql": "INSERT INTO x SELECT * FROM orders", "reads": ["table=lake.shop.other"]}
    change = house.save(LOAD, report, by_hand, sql=SQL, dependencies="automatic")
    assert house.needs("report") == ("job=load 0",)
    assert [one.upstream for one in change.suggestions] == ["job=load", "table=lake.shop.other"]
    (saved,) = house.center.projects()
    assert "sql" not in saved.file
    kept = {one["name"]: one for one in saved.file["jobs"]}
    assert kept["report"]["reads"] == ["table=lake.shop.orders"]
    assert kept["report"]["produces"] == ["table=cold.a.daily"]
    assert kept["by_hand"]["produces"] == ["table=lake.shop.x"]
    assert kept["by_hand"]["reads"] == ["table=lake.shop.other"]


def test_sql_that_is_not_understood_is_told_and_saved_all_the_same(house: CenterHouse) -> None:
    report = {"name": "report", **SINCE, "owner": "ann", "sql": "INSERT INTO daily SELECT * FROM {{ ref('orders') }}"}
    change = house.save(report, sql=SQL)
    (alert,) = change.alerts
    assert (alert.job, alert.owner) == ("report", "ann")
    assert "its SQL is not understood: " in alert.text
    assert change.added == ("report",)
    # It is told as long as the project is saved so, and no longer.
    assert house.lineage.lineage().alerts == change.alerts
    assert house.lineage.lineage("sales").alerts == change.alerts
    (saved,) = house.center.projects()
    assert house.center.save_project(saved.file).alerts == change.alerts
    assert house.save({**report, "sql": "INSERT INTO daily SELECT * FROM orders"}, sql=SQL).alerts == ()
    assert house.lineage.lineage().alerts == ()
    with pytest.raises(ConfigError, match="'unknown-sql' is 3 but must be a list of texts: leave it out"):
        house.save({"name": "report", **SINCE, "unknown-sql": 3})


def test_all_that_is_wrong_with_sql_and_the_rest_of_a_file_is_said_at_once(house: CenterHouse) -> None:
    jobs = ({"name": "a", **SINCE, "sql": 3}, {"name": "b", **SINCE, "sql": "SELECT 1", "needs": [{"job": "nobody"}]})
    with pytest.raises(ConfigError) as refused:
        house.save(*jobs, sql={"dialekt": "spark", "katalog": "lake", "catalog": 3, "catalogs": "lake"}, zone="Mars")
    said = str(refused.value).split("; ")
    assert [one for one in said if "'sql'" in one and "project" in one and "unknown" not in one] == [
        "'catalog' in 'sql' of the project is 3 but must be a text",
        "'catalogs' in 'sql' of the project is 'lake' but must be a list of texts",
    ]
    for part in ("'dialekt', which", "'katalog', which", "job a: 'sql' is 3", "zone 'Mars'", "no job 'nobody'"):
        assert part in str(refused.value)
    with pytest.raises(ConfigError) as refused:
        house.save(*({"name": name, **SINCE, "sql": "SELECT 1"} for name in "abc"), sql={"dialect": "klingon"})
    assert str(refused.value).count("klingon") == 1


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ({"sql": {"dialect": "klingon"}}, "job report: the dialect 'klingon' is unknown"),
        ({"sql": {"dialekt": "spark"}}, "'sql' of the project has 'dialekt', which is unknown; there are dialect,"),
        ({"sql": "spark"}, "'sql' of the project is 'spark' but must be a mapping"),
        ({"sql": {"catalog": 3}}, "'catalog' in 'sql' of the project is 3 but must be a text"),
        ({"sql": {"catalogs": "lake"}}, "'catalogs' in 'sql' of the project is 'lake' but must be a list of texts"),
        ({"dependencies": "maybe"}, "'dependencies' is 'maybe' but must be suggest or automatic"),
    ],
)
def test_wrong_keys_are_refused(house: CenterHouse, more: Mapping[str, Any], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        house.save({"name": "report", **SINCE, "sql": "SELECT 1"}, **more)
    with pytest.raises(ConfigError, match="job report: 'sql' is 3 but must be a text"):
        house.save({"name": "report", **SINCE, "sql": 3})
    assert house.center.jobs() == []


@pytest.mark.parametrize("jobs", [5, None, True, "abc", {"a": 1}])
def test_jobs_that_are_no_list_are_a_clear_problem(tmp_path: Path, jobs: object) -> None:
    house = CenterHouse(sqlite_stores(tmp_path))
    with pytest.raises(ConfigError, match="'jobs'"):
        house.center.save_project({"project": "p", "jobs": jobs})
    assert house.store.projects() == []
