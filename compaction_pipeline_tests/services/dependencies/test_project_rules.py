"""Projects that come after others: by each job, by root and end nodes, and what happens when either changes."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import pytest

from compaction_pipeline.core.dependencies.center.ports import LEADER, CenterStore, InstanceQuery, Leader
from compaction_pipeline.core.errors import ChangedMeanwhile, ConfigError
from compaction_pipeline.core.leases.timeouts import LEASE
from compaction_pipeline.core.stores import Stores
from compaction_pipeline.services.dependencies.center import DependencyCenter
from compaction_pipeline.services.dependencies.definitions import Definitions
from compaction_pipeline.services.dependencies.repair import RepairJobs
from compaction_pipeline_tests.services.dependencies.center_house import CenterHouse

DAY = "2026-01-02"
RAW: list[Mapping[str, Any]] = [
    {"name": "hours", "period": "hour", "virtual": True, "since": "2026-01-01T00"},
    {"name": "days", "period": "day", "since": "2026-01-01"},
]
LOAD: Mapping[str, Any] = {"name": "load", "period": "day", "trigger": "02:00"}
HOURS = [f"job=hours && biz={DAY}T{hour:02}" for hour in range(24)]


@pytest.fixture
def house(stores: Stores) -> CenterHouse:
    return CenterHouse(stores)


def with_rule(house: CenterHouse, form: str, *jobs: Mapping[str, Any]) -> None:
    house.save(*RAW, project="raw")
    house.save(*(jobs or [LOAD]), after=["raw"], form=form)


def finish_days(house: CenterHouse) -> None:
    house.claimed()
    house.succeed(f"job=days && biz={DAY}", 1)


@pytest.mark.parametrize("form", ["jobs", "nodes", "own"])
def test_a_job_starts_when_each_job_of_the_project_before_is_done_with_its_day(house: CenterHouse, form: str) -> None:
    with_rule(house, form)
    house.pass_time(hours=4)
    finish_days(house)
    for hour in HOURS[:-1]:
        house.succeed(hour)
    assert house.state("load", DAY) == "WAITING"
    house.center.report(HOURS[-1], house.one("load", DAY).state.SUCCEEDED, "test")
    # In one pass, whatever the form.
    house.leader.once()
    assert house.state("load", DAY) == "READY"
    assert house.one("load", DAY).ready_at == house.now
    assert house.store.recount() == 0


@pytest.mark.parametrize("form", ["jobs", "nodes", "own"])
def test_what_runs_again_takes_back_what_nobody_has_claimed(house: CenterHouse, form: str) -> None:
    with_rule(house, form)
    house.pass_time(hours=4)
    finish_days(house)
    for hour in HOURS:
        house.succeed(hour)
    assert house.state("load", DAY) == "READY"
    house.center.run_again("days", DAY)
    house.settle()
    assert house.state("load", DAY) == "WAITING"
    house.claimed()
    house.succeed(f"job=days && biz={DAY}", 2)
    assert house.state("load", DAY) == "READY"


@pytest.mark.parametrize("form", ["jobs", "nodes", "own"])
def test_a_finer_job_waits_for_the_time_that_holds_its_own(house: CenterHouse, form: str) -> None:
    house.save(RAW[1], project="raw")
    house.save({"name": "each", "period": "hour"}, after=["raw"], form=form)
    house.pass_time(hours=4)
    assert house.state("each", f"{DAY}T02") == "WAITING"
    finish_days(house)
    assert house.state("each", f"{DAY}T02") == "READY"


@pytest.mark.parametrize("form", ["jobs", "nodes", "own"])
def test_a_job_that_is_added_to_the_project_before_is_waited_for(house: CenterHouse, form: str) -> None:
    """Also by what had succeeded without it."""
    held = {**LOAD, "needs": [{"asset": "a"}]}
    with_rule(house, form, held)
    house.pass_time(hours=4)
    finish_days(house)
    for hour in HOURS:
        house.succeed(hour)
    assert house.state("load", DAY) == "WAITING"
    house.save(*RAW, {"name": "more", "period": "day", "since": DAY}, project="raw")
    house.succeed(f"asset=a && window={DAY}T00:00Z/2026-01-03T00:00Z")
    assert house.state("load", DAY) == "WAITING"
    house.claimed()
    house.succeed(f"job=more && biz={DAY}", 1)
    assert house.state("load", DAY) == "READY"
    assert house.store.recount() == 0


def test_the_form_is_kept_and_changes_back_and_forth_with_the_same_moments(house: CenterHouse) -> None:
    with_rule(house, "jobs")
    house.pass_time(hours=4)
    house.save(LOAD, after=["raw"], form="nodes")
    finish_days(house)
    house.save(LOAD, after=["raw"])
    assert house.center.projects()[-1].file["form"] == "nodes"
    for hour in HOURS[:-1]:
        house.succeed(hour)
    house.save(LOAD, after=["raw"], form="jobs")
    assert house.state("load", DAY) == "WAITING"
    house.settle()
    # What nobody waits for any more waits for nothing.
    assert {one.state.value for one in house.store.instances(InstanceQuery()) if ":" in one.job} == {"SUCCEEDED"}
    house.save(LOAD, after=["raw"], form="nodes")
    house.settle()
    assert house.state("load", DAY) == "WAITING"
    house.succeed(HOURS[-1])
    assert house.state("load", DAY) == "READY"
    house.save(LOAD)
    house.settle()
    assert "form" not in house.center.projects()[-1].file
    assert house.store.recount() == 0


@pytest.mark.parametrize("form", ["jobs", "nodes", "own"])
def test_in_a_backfill_runs_of_the_same_backfill_are_waited_for(house: CenterHouse, form: str) -> None:
    with_rule(house, form)
    for hour in HOURS:
        house.succeed(hour)
    assert house.center.backfill("fix", ["days", "load"], DAY, DAY) == 2
    house.pass_time(hours=4)
    assert house.state("load", DAY, "fix") == "WAITING"
    keys = house.claimed()
    for key in keys:
        job, biz, origin, _ = key.split("/")
        house.succeed(f"job={job} && biz={biz}" + (f" && backfill={origin}" if origin != "scheduled" else ""), 1)
    assert house.state("load", DAY, "fix") == "READY"


@pytest.mark.parametrize("form", ["nodes", "own"])
def test_a_run_again_waits_for_nodes_that_nobody_had_needed(house: CenterHouse, form: str) -> None:
    with_rule(house, "jobs")
    house.pass_time(hours=4)
    finish_days(house)
    for hour in HOURS:
        house.succeed(hour)
    house.claimed()
    house.succeed(f"job=load && biz={DAY}", 1)
    house.save(LOAD, after=["raw"], form=form)
    house.center.run_again("load", DAY)
    house.settle()
    assert house.state("load", DAY) == "READY"


@pytest.mark.parametrize(
    ("rule", "says"),
    [
        ({"after": "raw"}, "'after' is 'raw' but must be a list of projects"),
        ({"after": ["sales"]}, "must name other projects, each once"),
        ({"after": ["raw", "raw"]}, "must name other projects, each once"),
        ({"after": ["nobody"]}, "comes after nobody, which has no jobs"),
        ({"after": ["raw"], "form": "quick"}, "'form' is 'quick' but must be one of jobs, nodes, own"),
        ({"after": ["raw"], "shadow": {"since": "soon"}}, "must have 'since' and 'until'"),
    ],
)
def test_a_bad_rule_is_refused_in_words(house: CenterHouse, rule: Mapping[str, Any], says: str) -> None:
    house.save(*RAW, project="raw")
    with pytest.raises(ConfigError, match=says):
        house.save(LOAD, **rule)


def test_weeks_and_months_and_ways_round_are_refused(house: CenterHouse) -> None:
    house.save({"name": "weeks", "period": "week"}, project="raw")
    with pytest.raises(ConfigError, match="the project 'sales' comes after 'raw': a WEEK cannot depend on a MONTH"):
        house.save({"name": "months", "period": "month"}, after=["raw"])
    for form in ("jobs", "nodes", "own"):
        house.save(LOAD, after=["raw"], form=form)
        with pytest.raises(ConfigError, match="an instance could wait for itself"):
            house.save({"name": "weeks", "period": "week"}, {"name": "d", "period": "day"}, project="raw", after=["sales"])
    with pytest.raises(ConfigError, match="comes after raw, which has no jobs"):
        house.save(project="raw")
    house.save({"name": "weeks", "period": "week"}, {"name": "d", "period": "day"}, project="raw")
    with pytest.raises(ConfigError, match="a WEEK cannot depend on a MONTH"):
        house.save(LOAD, {"name": "months", "period": "month"}, after=["raw"])


def test_jobs_are_listed_as_files_have_them(house: CenterHouse) -> None:
    with_rule(house, "nodes", LOAD, {"name": "told", "period": "day", "virtual": True})
    listed = {one.name: one.needs for one in house.center.jobs()}
    assert listed == {"days": (), "hours": (), "load": ("project=raw",), "told": ()}


@pytest.mark.parametrize("form", ["jobs", "nodes", "own"])
def test_why_looks_through_nodes(house: CenterHouse, form: str) -> None:
    with_rule(house, form)
    house.pass_time(hours=4)
    finish_days(house)
    for hour in HOURS[:-2]:
        house.succeed(hour)
    assert [one.subject for one in house.center.why("load", DAY).waits_for] == HOURS[-2:]


@pytest.mark.parametrize("form", ["jobs", "nodes", "own"])
def test_a_repair_leads_through_nodes_and_its_backfill_waits_by_them(house: CenterHouse, form: str) -> None:
    with_rule(house, form)
    for hour in HOURS:
        house.succeed(hour)
    house.pass_time(hours=4)
    repairs = RepairJobs(house.center, Definitions(house.store), lambda: house.now)
    found = repairs.repair("days", DAY, DAY, launch="fix")
    assert [[(one.job, one.times) for one in layer] for layer in found.layers] == [[("days", (DAY,))], [("load", (DAY,))]]
    assert found.launched == 2
    house.settle()
    assert house.state("load", DAY, "fix") == "WAITING"
    finish_days(house)
    house.settle()
    house.claimed()
    house.succeed(f"job=days && biz={DAY} && backfill=fix", 1)
    assert house.state("load", DAY) == "READY"
    house.claimed()
    house.succeed(f"job=load && biz={DAY}", 1)
    assert house.state("load", DAY, "fix") == "READY"


def ready_by_all(house: CenterHouse, form: str, *jobs: Mapping[str, Any]) -> None:
    with_rule(house, form, *jobs)
    house.pass_time(hours=4)
    finish_days(house)
    for hour in HOURS:
        house.succeed(hour)


@pytest.mark.parametrize("form", ["jobs", "nodes", "own"])
def test_what_was_taken_back_is_not_claimed_before_anybody_is_told(house: CenterHouse, form: str) -> None:
    """Also when it was there through two nodes."""
    ready_by_all(house, form)
    assert house.state("load", DAY) == "READY"
    house.center.report(HOURS[3], house.one("load", DAY).state.RUNNING, "test")
    # A leader dies when it has applied that, and told nobody.
    owner = house.leases.new_owner()
    house.leader.resign()
    assert house.leases.lead(LEADER, owner, LEASE)
    assert house.store.take_in(Leader(owner, house.now), 10) == 1
    assert house.claimed() == []
    house.leases.release(LEADER, owner)
    house.settle()
    assert house.state("load", DAY) == "WAITING"
    house.succeed(HOURS[3])
    assert house.claimed() == [f"load/{DAY}/scheduled/1"]
    assert house.store.recount() == 0


@pytest.mark.parametrize("form", ["jobs", "nodes", "own"])
def test_what_comes_while_something_is_taken_back_starts_nothing(house: CenterHouse, form: str) -> None:
    ready_by_all(house, form, {**LOAD, "needs": [{"asset": "a"}]})
    assert house.state("load", DAY) == "WAITING"
    running = house.one("load", DAY).state.RUNNING
    house.center.report(HOURS[3], running, "test")
    house.center.report(f"asset=a && window={DAY}T00:00Z/2026-01-03T00:00Z", running.SUCCEEDED, "test")
    house.leader.once()
    assert house.state("load", DAY) == "WAITING"
    house.succeed(HOURS[3])
    assert house.state("load", DAY) == "READY"


@pytest.mark.parametrize("form", ["jobs", "nodes", "own"])
def test_what_fell_and_came_back_lets_a_job_go_on(house: CenterHouse, form: str) -> None:
    ready_by_all(house, form)
    running = house.one("load", DAY).state.RUNNING
    house.center.report(HOURS[3], running, "test")
    house.center.report(HOURS[3], running.SUCCEEDED, "test")
    house.settle()
    assert house.state("load", DAY) == "READY"
    assert house.claimed() == [f"load/{DAY}/scheduled/1"]
    assert house.store.recount() == 0


class Passing:
    """A store, on which a leader does a pass just before a project is saved."""

    def __init__(self, house: CenterHouse) -> None:
        self.house = house

    def __getattr__(self, name: str) -> Any:
        if name == "save_project":
            self.house.pass_time(minutes=2)
        return getattr(self.house.store, name)


@pytest.mark.parametrize("form", ["jobs", "nodes"])
def test_an_instance_that_is_made_while_a_project_before_is_saved_waits_by_what_was_saved(house: CenterHouse, form: str) -> None:
    with_rule(house, form)
    house.pass_time(hours=2, minutes=29)
    passing: CenterStore = Passing(house)  # type: ignore[assignment]
    center = DependencyCenter(passing, Definitions(house.store), lambda: house.now)
    more = {"name": "more", "period": "day", "since": DAY}
    with pytest.raises(ChangedMeanwhile, match="save it again"):
        center.save_project({"project": "raw", "receiver": "x", "jobs": [*RAW, more]})
    assert house.state("load", DAY) == "WAITING"
    center.save_project({"project": "raw", "receiver": "x", "jobs": [*RAW, more]})
    assert "job=more && biz=2026-01-02" in [one.subject for one in house.center.why("load", DAY).waits_for]


@pytest.mark.parametrize("form", ["nodes", "own"])
def test_a_node_that_is_made_and_succeeds_while_a_project_before_is_saved_does_not_stay_so(house: CenterHouse, form: str) -> None:
    with_rule(house, form)
    house.pass_time(hours=1)
    finish_days(house)
    for hour in HOURS:
        house.succeed(hour)
    # All that the node needs is there before anything needs the node.
    house.pass_time(hours=1, minutes=29)
    passing: CenterStore = Passing(house)  # type: ignore[assignment]
    center = DependencyCenter(passing, Definitions(house.store), lambda: house.now)
    more = {"name": "more", "period": "day", "since": DAY}
    with pytest.raises(ChangedMeanwhile, match="save it again"):
        center.save_project({"project": "raw", "receiver": "x", "jobs": [*RAW, more]})
    assert house.state("load", DAY) == "READY"
    center.save_project({"project": "raw", "receiver": "x", "jobs": [*RAW, more]})
    house.settle()
    assert house.state("load", DAY) == "WAITING"
    assert house.store.recount() == 0


@pytest.mark.parametrize("form", ["jobs", "nodes", "own"])
def test_what_came_back_starts_nothing_before_all_that_fell_is_told(house: CenterHouse, form: str) -> None:
    """More changes than one transaction tells: of two hours that a node stands on, the newer one fell and came back."""
    ready_by_all(house, form)
    running = house.one("load", DAY).state.RUNNING
    owner = house.leases.new_owner()
    house.leader.resign()
    assert house.leases.lead(LEADER, owner, LEASE)
    house.center.report(HOURS[3], running, "test")
    assert house.store.take_in(Leader(owner, house.now), 10) == 1
    house.now += timedelta(seconds=1)
    house.center.report(HOURS[4], running, "test")
    house.center.report(HOURS[4], running.SUCCEEDED, "test")
    assert house.store.take_in(Leader(owner, house.now), 10) == 2
    while house.store.spread(Leader(owner, house.now), 1).changes:
        assert house.claimed() == []
    house.leases.release(LEADER, owner)
    house.settle()
    assert house.state("load", DAY) == "WAITING"
    house.succeed(HOURS[3])
    assert house.claimed() == [f"load/{DAY}/scheduled/1"]
    assert house.store.recount() == 0
