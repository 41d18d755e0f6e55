"""Files of projects: what they mean, and all that is wrong with one in one answer."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timezone
from typing import Any

import pytest

from compaction_pipeline.core.dependencies.center.jobs import DataJob, requirements
from compaction_pipeline.core.dependencies.center.projects import project_of, saved_jobs, with_since
from compaction_pipeline.core.errors import ConfigError

NOW = datetime(2026, 1, 1, 12, tzinfo=timezone.utc)
LOAD: Mapping[str, Any] = {"name": "load", "period": "day"}


def project(*jobs: Any, **more: Any) -> Mapping[str, DataJob]:
    return project_of({"project": "sales", "receiver": "airflow", "jobs": list(jobs), **more}, {}, {}, NOW).jobs


def needs_of(jobs: Mapping[str, DataJob], name: str, biz: str) -> list[str]:
    job = jobs[name]
    return [str(one.subject) for one in requirements(job, job.calendar.parse(biz), jobs, "", lambda job, time: False)]


def test_each_kind_of_need_names_what_it_waits_for() -> None:
    needs = [
        {"job": "raw", "times": "[-1,0]"},
        {"table": "lake.a.b"},
        {"table": "lake.a.c", "partition": "dt={%Y%m%d}/app=ads", "times": -1},
        {"table": "lake.a.d", "watermark": True},
        {"table": "lake.a.e", "period": "month"},
        {"asset": "a/b", "times": "0"},
    ]
    jobs = project(
        {"name": "raw", "period": "hour", "virtual": True, "since": "2026-01-01T00"}, {**LOAD, "zone": "Europe/Berlin", "needs": needs}
    )
    assert needs_of(jobs, "load", "2026-03-29") == [
        "job=raw && biz=2026-03-28T22",
        "job=raw && biz=2026-03-28T23",
        "table=lake.a.b && window=2026-03-28T23:00Z/2026-03-29T22:00Z",
        "table=lake.a.c && app=ads && dt=20260328",
        "table=lake.a.d && watermark>=2026-03-29T22:00Z",
        "table=lake.a.e && window=2026-02-28T23:00Z/2026-03-31T22:00Z",
        "asset=a/b && window=2026-03-28T23:00Z/2026-03-29T22:00Z",
    ]


def test_what_was_before_the_first_business_time_of_an_upstream_is_not_waited_for() -> None:
    jobs = project({**LOAD, "since": "2026-01-02", "needs": [{"job": "load", "times": -1}]})
    assert needs_of(jobs, "load", "2026-01-02") == []
    assert needs_of(jobs, "load", "2026-01-03") == ["job=load && biz=2026-01-02"]


@pytest.mark.parametrize(("trigger", "since"), [("11:59", "2026-01-02"), ("12:00", "2026-01-01"), ("12:01", "2026-01-01")])
def test_a_new_job_begins_with_the_next_trigger(trigger: str, since: str) -> None:
    job = project({**LOAD, "trigger": trigger})["load"]
    assert job.calendar.text(job.since) == since


def test_a_saved_project_reads_as_the_same_jobs_later() -> None:
    given = {
        "project": "sales",
        "receiver": "x",
        "jobs": [{"name": "raw", "period": "hour", "virtual": True}, {**LOAD, "needs": [{"job": "raw"}]}],
    }
    made = project_of(given, {}, {}, NOW)
    assert saved_jobs([with_since(given, made)], {}) == made.jobs


def test_a_job_keeps_its_first_time_when_its_file_says_none() -> None:
    before = project({**LOAD, "since": "2025-12-01"})
    again = project_of({"project": "sales", "receiver": "x", "jobs": [LOAD]}, {}, before, NOW).jobs["load"]
    assert again.since == before["load"].since


BAD: list[tuple[Any, str]] = [
    (7, "it is 7 but must have a name"),
    ({"period": "day"}, "'name' is None"),
    ({"name": "a b", "period": "day"}, "'name' is 'a b'"),
    ({"name": "a/b", "period": "day"}, "'name' is 'a/b'"),
    ({"name": "a"}, "'period' is None but must be hour, day, week or month"),
    ({"name": "a", "period": "year"}, "'period' is 'year'"),
    ({**LOAD, "zone": "Mars"}, "does not know the zone 'Mars'"),
    ({**LOAD, "trigger": "25:00"}, "the trigger '25:00'"),
    ({**LOAD, "trigger": 120}, "write it in quotes"),
    ({**LOAD, "period": "week", "trigger": "02:00"}, "a weekday and a time"),
    ({**LOAD, "period": "month", "trigger": "31 02:00"}, "a day from 1 to 28, or last"),
    ({**LOAD, "since": "2026-13-01"}, "the business time '2026-13-01'"),
    ({**LOAD, "since": "2026-01"}, "the business time '2026-01'"),
    ({**LOAD, "owner": 3}, "'owner' is 3"),
    ({**LOAD, "receiver": ""}, "'receiver' is ''"),
    ({**LOAD, "virtual": "yes"}, "'virtual' is 'yes'"),
    ({**LOAD, "virtual": True, "receiver": "x"}, "has no 'receiver'"),
    ({**LOAD, "virtual": True, "needs": []}, "has no 'needs'"),
    ({**LOAD, "parts": ["a"]}, "'parts' belong to a virtual job"),
    ({**LOAD, "virtual": True, "parts": "eu"}, "'parts' is 'eu' but must be a list"),
    ({**LOAD, "produces": ["table=a && b=c"]}, "'produces' is"),
    ({**LOAD, "colour": "red"}, "'colour' is unknown"),
    ({**LOAD, "needs": {"job": "x"}}, "'needs' is {'job': 'x'} but must be a list"),
    ({**LOAD, "needs": ["x"]}, "need 1: it is 'x'"),
    ({**LOAD, "needs": [{}]}, "it must name one of job, table and asset, and names none"),
    ({**LOAD, "needs": [{"job": "load", "table": "a"}]}, "names job, table"),
    ({**LOAD, "needs": [{"job": "nobody"}]}, "there is no job 'nobody'"),
    ({**LOAD, "needs": [{"job": "load", "times": "soon"}]}, "soon"),
    ({**LOAD, "needs": [{"job": "load", "times": -1, "zone": "UTC"}]}, "are those of the job that is waited for"),
    ({**LOAD, "needs": [{"job": "load", "times": -1, "part": "eu"}]}, "declares no part 'eu'; it has none"),
    ({**LOAD, "needs": [{"table": "lake.a.b", "part": "eu"}]}, "a table has no"),
    ({**LOAD, "needs": [{"asset": "a", "watermark": True}]}, "an asset has no"),
    ({**LOAD, "needs": [{"table": "lake.a.b", "partition": "day=1"}]}, "with the period in braces"),
    ({**LOAD, "needs": [{"table": "lake.a.b", "partition": "{%Y}"}]}, "with the period in braces"),
    ({**LOAD, "needs": [{"table": "lake.a.b", "partition": "d={%Y}", "watermark": True}]}, "are both given"),
    ({**LOAD, "needs": [{"table": "lake.a.b", "watermark": "yes"}]}, "'watermark' is 'yes'"),
    ({**LOAD, "needs": [{"table": "lake.a && b=c"}]}, "must be a name"),
    ({**LOAD, "needs": [{"table": " "}]}, "must be a name"),
    ({**LOAD, "needs": [{"table": "lake..x"}]}, "lake..x"),
    ({**LOAD, "needs": [{"table": "orders"}]}, "orders"),
    ({**LOAD, "needs": [{"asset": "a\x00b"}]}, "which no name has"),
    ({**LOAD, "virtual": True, "parts": ["a\x00b"]}, "which no name has"),
    ({**LOAD, "needs": [{"table": "lake.a.b", "colour": 1}]}, "'colour' is unknown"),
    ({**LOAD, "needs": [{"table": "lake.a.b", "strength": "some"}]}, "'strength' is 'some' but must be one of all, any, newest"),
    ({**LOAD, "needs": [{"table": "lake.a.b", "strength": ["any"]}]}, "'strength' is ['any'] but must be one of all, any, newest"),
    ({**LOAD, "needs": [{"table": "lake.a.b", "until": 960}]}, "'until' is 960 but must be a text"),
    ({**LOAD, "needs": [{"table": "lake.a.b", "until": "soon"}]}, 'or a time of day like "06:00"'),
    ({**LOAD, "period": "hour", "needs": [{"table": "lake.a.b", "until": "06:00"}]}, "'until' is '06:00' but must be a duration"),
    ({**LOAD, "needs": [{"table": "lake.a.b", "until": "2h", "if-failed": "ignore"}]}, "tables and assets have none"),
    ({**LOAD, "needs": [{"job": "load", "times": -1, "until": "2h", "if-failed": "stop"}]}, "must be wait or ignore"),
    ({**LOAD, "needs": [{"job": "load", "times": -1, "if-failed": "wait"}]}, "give 'until', too"),
    ({**LOAD, "made-by": {"table": "lake.a.b", "strength": "any"}}, "what makes a virtual job has none of strength, until, if-failed"),
    ({**LOAD, "needs": [{"table": "lake.a.b", "period": "week", "times": 0}], "period": "month"}, "week"),
]


@pytest.mark.parametrize(("job", "says"), BAD, ids=[says for _, says in BAD])
def test_a_bad_job_is_refused_in_words(job: Any, says: str) -> None:
    with pytest.raises(ConfigError) as refused:
        project(job)
    assert says in str(refused.value)


def test_one_answer_has_all_that_is_wrong() -> None:
    wrong = [
        {**job, "name": f"j{number}"}
        for number, (job, _) in enumerate(BAD)
        if isinstance(job, dict) and "name" in job and "/" not in job["name"] and " " not in job["name"]
    ]
    with pytest.raises(ConfigError) as refused:
        project(*wrong, colour="red")
    for number in range(len(wrong)):
        name = wrong[number]["name"]
        assert f"job {name}:" in str(refused.value) or f"job {name}, need" in str(refused.value)
    assert "the project: 'colour' is unknown" in str(refused.value)


@pytest.mark.parametrize("given", [None, [], {"project": "a"}, {"project": "a", "jobs": {}}])
def test_a_file_that_is_no_project_is_refused(given: Any) -> None:
    with pytest.raises(ConfigError, match="a list 'jobs'"):
        project_of(given, {}, {}, NOW)


def test_a_name_that_is_given_twice_is_refused() -> None:
    with pytest.raises(ConfigError, match="the name is given twice"):
        project(LOAD, LOAD)
