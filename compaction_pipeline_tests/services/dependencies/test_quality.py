"""Runs of a job that is judged count once they have succeeded and their quality has passed, in whatever order that is told."""

from __future__ import annotations

from itertools import permutations, product
from pathlib import Path

import pytest
from sqlalchemy import update

from compaction_pipeline.core.dependencies.center.inbox import (
    NOTHING,
    THERE,
    Known,
    Quality,
    QualityTold,
    RunId,
    apply,
    quality_fact,
    run_fact,
)
from compaction_pipeline.core.dependencies.center.instances import InstanceState, Report
from compaction_pipeline.core.errors import ConfigError, NotFoundError
from compaction_pipeline.services.dependencies.reports import QualityReport
from compaction_pipeline.storage import schema
from compaction_pipeline_tests.services.dependencies.center_house import CenterHouse
from compaction_pipeline_tests.state import sqlite_stores

DAY = "2026-01-02"
LOAD = {"name": "load", "period": "day", "quality": "expectations"}
REPORT = {"name": "report", "period": "day", "needs": [{"job": "load"}]}
RUN = f"job=load && biz={DAY}"
STARTED = [f"report/{DAY}/scheduled/1"]
RUNNING, SUCCEEDED, FAILED = InstanceState.RUNNING, InstanceState.SUCCEEDED, InstanceState.FAILED


@pytest.fixture
def house(tmp_path: Path) -> CenterHouse:
    """A day of `load` has been claimed, and `report` waits for it."""
    house = CenterHouse(sqlite_stores(tmp_path))
    house.save(LOAD, REPORT)
    house.pass_time(hours=3)
    assert house.claimed() == [f"load/{DAY}/scheduled/1"]
    return house


def tell(house: CenterHouse, quality: Quality, generation: int | None = 1, number: int | None = None, subject: str = RUN) -> None:
    house.center.tell_quality([QualityReport(subject, quality, generation, number)], "expectations")
    house.settle()


def problem(house: CenterHouse, job: str = "report") -> str:
    (one,) = house.center.why(job, DAY).waits_for
    assert one.subject == RUN
    return one.problem


def test_a_success_counts_once_its_quality_has_passed(house: CenterHouse) -> None:
    house.succeed(RUN, 1)
    house.succeed(RUN, 1)
    assert (house.claimed(), house.center.ready(RUN)) == ([], False)
    tells = "which expectations tells (POST /api/v1/dependencies/quality)"
    waits = f"it has succeeded, and waits since 2026-01-02 02:30:00 UTC for its quality, {tells}"
    assert (problem(house), problem(house, "load")) == (waits, waits)
    tell(house, Quality.PASSED)
    tell(house, Quality.PASSED)
    assert (house.claimed(), house.center.ready(RUN)) == (STARTED, True)
    assert house.center.why("load", DAY).waits_for == ()


def test_a_quality_that_comes_before_the_success_starts_nothing_by_itself(house: CenterHouse) -> None:
    tell(house, Quality.PASSED)
    assert (house.claimed(), house.center.ready(RUN)) == ([], None)
    house.succeed(RUN, 1, RUNNING)
    assert house.claimed() == []
    house.succeed(RUN, 1)
    assert house.claimed() == STARTED


def test_a_failed_quality_takes_back_what_passed(house: CenterHouse) -> None:
    house.succeed(RUN, 1)
    tell(house, Quality.PASSED)
    assert house.state("report", DAY) == "READY"
    tell(house, Quality.FAILED)
    assert (house.state("report", DAY), house.claimed(), house.center.ready(RUN)) == ("WAITING", [], False)
    at = "at 2026-01-02 02:30:00 UTC, and is waited for until it has succeeded"
    assert problem(house) == f"it FAILED, or its quality did, which expectations tells, {at}"
    assert problem(house, "load").startswith("it succeeded, but its quality FAILED, as expectations told")
    house.succeed(RUN, 1)
    assert house.claimed() == []
    tell(house, Quality.PASSED)
    assert house.claimed() == STARTED
    tell(house, Quality.FAILED)
    assert house.one("report", DAY).changed_at is not None


def test_a_run_again_is_judged_anew(house: CenterHouse) -> None:
    house.succeed(RUN, 1)
    tell(house, Quality.PASSED)
    house.center.run_again("load", DAY)
    house.settle()
    assert (house.claimed(), problem(house)) == ([f"load/{DAY}/scheduled/2"], "")
    house.succeed(RUN, 2)
    tell(house, Quality.PASSED, 1)
    assert house.claimed() == []
    tell(house, Quality.FAILED, 2)
    tell(house, Quality.PASSED, 1)
    assert house.claimed() == []
    tell(house, Quality.PASSED, 2)
    assert house.claimed() == STARTED


def test_what_succeeds_after_it_failed_is_judged_anew(house: CenterHouse) -> None:
    house.succeed(RUN, 1)
    tell(house, Quality.PASSED)
    house.succeed(RUN, 1, FAILED)
    house.succeed(RUN, 1)
    assert house.claimed() == []
    tell(house, Quality.PASSED)
    assert house.claimed() == STARTED


def test_an_old_number_changes_nothing(house: CenterHouse) -> None:
    house.succeed(RUN, 1)
    tell(house, Quality.FAILED, number=2)
    tell(house, Quality.PASSED, number=1)
    tell(house, Quality.PASSED, number=2)
    assert house.claimed() == []
    tell(house, Quality.PASSED, number=3)
    assert house.claimed() == STARTED


def test_parts_of_a_virtual_job_are_judged_one_by_one(house: CenterHouse) -> None:
    parts = {"name": "parts", "period": "day", "virtual": True, "since": DAY, "parts": ["eu", "us"], "quality": "expectations"}
    house.save(parts, {"name": "sums", "period": "day", "since": DAY, "needs": [{"job": "parts"}]}, project="parts")
    house.settle()
    eu, us = (f"job=parts && biz={DAY} && part={part}" for part in ("eu", "us"))
    house.succeed(eu)
    tell(house, Quality.PASSED, None, subject=us)
    found = {one.subject: one.problem for one in house.center.why("parts", DAY).waits_for}
    assert found[us] == "nobody has reported it"
    assert found[eu].startswith("it has succeeded, and waits since ")
    house.succeed(us)
    assert [one.subject for one in house.center.why("parts", DAY).waits_for] == [eu]
    tell(house, Quality.PASSED, None, subject=eu)
    assert house.claimed() == [f"sums/{DAY}/scheduled/1"]
    house.succeed(eu, state=RUNNING)
    # It may be of the run before, so the one that runs now is not judged by it.
    tell(house, Quality.PASSED, None, subject=eu)
    house.succeed(eu)
    assert house.center.ready(eu) is False
    tell(house, Quality.PASSED, None, subject=eu)
    assert house.center.ready(eu) is True


def test_a_job_that_is_judged_no_more_counts_when_it_is_reported_again(house: CenterHouse) -> None:
    house.succeed(RUN, 1)
    house.save({"name": "load", "period": "day"}, REPORT)
    house.succeed(RUN, 1)
    assert house.claimed() == STARTED


@pytest.mark.parametrize(
    ("subject", "generation", "raised", "said"),
    [
        (f"job=report && biz={DAY}", 1, ConfigError, "nobody judges the runs of 'report'"),
        (RUN, None, ConfigError, "needs 'generation'"),
        (RUN, 3, ConfigError, "its newest run has 1"),
        ("table=lake.shop.orders && day=2026-01-01", None, ConfigError, "is no run of a job"),
        (f"{RUN} && backfill=fix", 1, NotFoundError, "there is no run"),
        (f"{RUN} && quality=told", 1, ConfigError, "names the attribute 'quality'"),
    ],
)
def test_what_is_no_run_that_is_judged_is_refused(
    house: CenterHouse, subject: str, generation: int | None, raised: type[Exception], said: str
) -> None:
    good = QualityReport(RUN, Quality.PASSED, 1)
    with pytest.raises(raised, match=f"report 2 of 2: .*{said}"):
        house.center.tell_quality([good, QualityReport(subject, Quality.PASSED, generation)], "expectations")
    house.succeed(RUN, 1)
    assert house.claimed() == []


def test_what_makes_a_virtual_job_is_not_judged(house: CenterHouse) -> None:
    with pytest.raises(ConfigError, match="job made: 'quality' is of runs that are reported"):
        house.save({"name": "made", "period": "day", "made-by": {"job": "load"}, "quality": "expectations"}, project="other")
    with pytest.raises(ConfigError, match="'quality'"):
        house.save({"name": "made", "period": "day", "quality": True}, project="other")


RUN_ID = RunId("load", DAY)


def reached_after(told: tuple[tuple[str, int], ...], house: CenterHouse) -> int:
    """How far the run is after these: the state of a run, or its quality, each with a generation."""
    known = Known({}, {}, {})
    for what, generation in told:
        if what == "PASSED":
            apply([quality_fact(RUN_ID, QualityTold(Quality.PASSED, generation), house.now, "test")], known)
        elif what == "BAD":
            apply([quality_fact(RUN_ID, QualityTold(Quality.FAILED, generation), house.now, "test")], known)
        else:
            apply([run_fact(RUN_ID, Report(InstanceState(what), house.now, generation, is_judged=True), "test")], known)
    return known.reached.get(RUN_ID.key, NOTHING)


def test_no_order_lets_a_run_count_without_its_own_quality(house: CenterHouse) -> None:
    words = [
        ("RUNNING", 1),
        ("SUCCEEDED", 1),
        ("PASSED", 1),
        ("FAILED", 1),
        ("BAD", 1),
        ("RUNNING", 2),
        ("SUCCEEDED", 2),
        ("PASSED", 2),
        ("BAD", 2),
    ]
    counted = 0
    for told in product(words, repeat=4):
        is_there = reached_after(told, house) == THERE
        counted += is_there
        newest = max((generation for word, generation in told if word in ("RUNNING", "SUCCEEDED", "FAILED")), default=0)
        if is_there:
            assert {("SUCCEEDED", newest), ("PASSED", newest)} <= set(told), told
            verdicts = [word for word in told if word in (("PASSED", newest), ("BAD", newest))]
            assert verdicts[-1] == ("PASSED", newest), told
    assert counted
    for told in permutations((("SUCCEEDED", 1), ("PASSED", 1), ("RUNNING", 1))):
        assert reached_after(told, house) == THERE


PLAIN = {"name": "load", "period": "day"}
PASSED = Quality.PASSED


def test_a_fall_that_comes_back_within_one_pass_is_noted(house: CenterHouse) -> None:
    house.succeed(RUN, 1)
    tell(house, PASSED)
    assert house.claimed() == STARTED
    house.center.tell_quality([QualityReport(RUN, Quality.FAILED, 1), QualityReport(RUN, PASSED, 1)], "expectations")
    house.settle()
    assert house.one("report", DAY).changed_at is not None


def test_a_run_whose_quality_failed_counts_when_nobody_judges_it_any_more_and_it_is_reported_again(house: CenterHouse) -> None:
    house.succeed(RUN, 1)
    tell(house, Quality.FAILED)
    house.save(PLAIN, REPORT)
    house.succeed(RUN, 1)
    assert house.claimed() == STARTED


def test_what_was_told_of_a_run_that_failed_while_nobody_judged_it_is_lost(house: CenterHouse) -> None:
    tell(house, PASSED)
    house.save(PLAIN, REPORT)
    house.succeed(RUN, 1, FAILED)
    house.save(LOAD, REPORT)
    house.succeed(RUN, 1)
    assert house.center.ready(RUN) is not True


def test_what_was_told_of_an_instance_goes_with_it(tmp_path: Path) -> None:
    house = CenterHouse(sqlite_stores(tmp_path))
    house.save(LOAD, REPORT)
    house.pass_time(hours=3)
    tell(house, PASSED)
    house.save()
    house.save({**LOAD, "since": DAY}, {**REPORT, "since": DAY})
    house.settle()
    house.claimed()
    house.succeed(RUN, 1)
    assert house.center.ready(RUN) is not True


@pytest.fixture
def virtual(tmp_path: Path) -> CenterHouse:
    """The runs of `load` are made elsewhere, and have no numbers."""
    house = CenterHouse(sqlite_stores(tmp_path))
    house.save({**LOAD, "virtual": True, "since": DAY}, {**REPORT, "since": DAY})
    house.pass_time(hours=3)
    return house


def test_what_is_left_out_uses_up_no_number(virtual: CenterHouse) -> None:
    virtual.succeed(RUN)
    tell(virtual, PASSED, None, 1)
    virtual.succeed(RUN, state=RUNNING)
    tell(virtual, PASSED, None, 2)
    virtual.succeed(RUN)
    assert virtual.center.ready(RUN) is not True
    tell(virtual, PASSED, None, 2)
    assert virtual.center.ready(RUN) is True


def test_what_was_told_of_an_older_run_and_set_aside_is_not_tried_again(virtual: CenterHouse) -> None:
    virtual.succeed(RUN)
    virtual.center.tell_quality([QualityReport(RUN, PASSED)], "expectations")
    with virtual.store._engine.begin() as connection:
        connection.execute(update(schema.center_fact).values(problem="a test"))
    (aside,) = virtual.store.set_aside(5)
    virtual.pass_time(hours=1)
    virtual.succeed(RUN, state=RUNNING)
    virtual.succeed(RUN)
    with pytest.raises(ConfigError, match="has changed since then"):
        virtual.store.try_again(aside.id)
    assert virtual.center.ready(RUN) is not True
