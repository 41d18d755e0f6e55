"""Weak edges of the dependency center: any, newest, until, and what an instance is started without."""

from __future__ import annotations

from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest

from compaction_pipeline.core.dependencies.center.instances import InstanceState
from compaction_pipeline.core.errors import ConfigError
from compaction_pipeline.services.dependencies import lead_center
from compaction_pipeline_tests.services.dependencies.center_house import CenterHouse
from compaction_pipeline_tests.state import sqlite_stores

RAW = {"name": "raw", "period": "day", "trigger": "01:00", "since": "2025-12-01", "receiver": "spark"}
DAY, BEFORE = "2026-01-02", "2026-01-01"
KEY = f"load/{DAY}/scheduled/1"


@pytest.fixture
def house(tmp_path: Path) -> CenterHouse:
    return CenterHouse(sqlite_stores(tmp_path), datetime(2026, 1, 1, 23, 30, tzinfo=timezone.utc))


def load(*needs: dict[str, Any], trigger: str = "00:00") -> dict[str, Any]:
    return {"name": "load", "period": "day", "trigger": trigger, "since": DAY, "needs": list(needs)}


def at(house: CenterHouse, hour: int, minute: int = 0) -> None:
    """Let it be this time of the day, and do what is due then."""
    house.now = datetime(2026, 1, 2, hour, minute, tzinfo=timezone.utc)
    house.settle()


def test_any_of_several_times_is_enough_and_the_last_one_that_is_taken_back_is_missed(house: CenterHouse) -> None:
    house.save(RAW, load({"job": "raw", "times": "[-2,0]", "strength": "any"}))
    at(house, 0)
    assert house.one("load", DAY).missing == 1
    house.succeed("job=raw && biz=2025-12-31", 1)
    house.succeed("job=raw && biz=2026-01-01", 1)
    assert (house.state("load", DAY), house.one("load", DAY).note) == ("READY", None)
    house.succeed("job=raw && biz=2025-12-31", 1, InstanceState.FAILED)
    assert house.state("load", DAY) == "READY"
    house.succeed("job=raw && biz=2026-01-01", 1, InstanceState.FAILED)
    assert house.state("load", DAY) == "WAITING"
    assert house.claimed() == []
    assert {one.rule for one in house.center.why("load", DAY).waits_for} == {"one of these is enough"}
    house.succeed("job=raw && biz=2026-01-01", 1)
    assert house.claimed() == [KEY]


def test_newest_is_chosen_anew_at_each_trigger_until_the_instance_is_ready(house: CenterHouse) -> None:
    house.save(RAW, load({"job": "raw", "times": "{0,-1}", "strength": "newest"}))
    at(house, 0, 30)
    assert [one.subject for one in house.center.why("load", DAY).waits_for] == [f"job=raw && biz={BEFORE}"]
    at(house, 1)
    house.succeed(f"job=raw && biz={BEFORE}", 1)
    assert house.state("load", DAY) == "WAITING"
    assert [one.subject for one in house.center.why("load", DAY).waits_for] == [f"job=raw && biz={DAY}"]
    house.succeed(f"job=raw && biz={DAY}", 1)
    assert house.claimed() == [KEY]


def test_what_is_ready_keeps_the_newest_that_it_was_made_ready_with(house: CenterHouse) -> None:
    house.save(RAW, load({"job": "raw", "times": "{0,-1}", "strength": "newest"}))
    at(house, 0, 30)
    house.succeed(f"job=raw && biz={BEFORE}", 1)
    at(house, 2)
    assert house.state("load", DAY) == "READY"
    house.succeed(f"job=raw && biz={BEFORE}", 1, InstanceState.FAILED)
    assert house.state("load", DAY) == "WAITING"
    house.succeed(f"job=raw && biz={BEFORE}", 1)
    assert house.state("load", DAY) == "WAITING"
    house.succeed(f"job=raw && biz={DAY}", 1)
    assert house.claimed() == [KEY]


def test_newest_of_a_table_is_the_last_period_that_is_over(house: CenterHouse) -> None:
    house.save(load({"table": "lake.a.b", "times": "[-1,0]", "period": "hour", "strength": "newest"}))
    at(house, 0)
    house.tell("table=lake.a.b && window=2026-01-01T22:00Z/2026-01-01T23:00Z")
    assert house.claimed() == []
    house.tell("table=lake.a.b && window=2026-01-01T23:00Z/2026-01-02T00:00Z")
    assert house.claimed() == [KEY]


def test_until_starts_an_instance_without_what_is_missing_and_notes_it(house: CenterHouse) -> None:
    house.save(RAW, load({"table": "lake.a.b", "until": "06:00"}, {"job": "raw"}))
    at(house, 5, 59)
    house.succeed(f"job=raw && biz={DAY}", 1)
    assert house.state("load", DAY) == "WAITING"
    (waits,) = house.center.why("load", DAY).waits_for
    assert waits.rule == "all of these, until 2026-01-02 06:00:00 UTC"
    at(house, 6)
    window = "table=lake.a.b && window=2026-01-02T00:00Z/2026-01-03T00:00Z"
    note = f"started without {window}, because it was not there at 2026-01-02 06:00:00 UTC"
    (claimed,) = house.center.claim("airflow")
    assert (claimed.key, claimed.note) == (KEY, note)
    at(house, 7)
    house.tell(window)
    assert (house.one("load", DAY).note, house.one("load", DAY).changed_at) == (note, None)
    why = house.center.why("load", DAY)
    (without,) = why.without
    assert (without.subject, without.there, without.at) == (window, True, house.now)
    assert why.waits_for == ()


def test_what_falls_after_until_is_noted_and_what_comes_after_ready_changes_nothing(house: CenterHouse) -> None:
    house.save(RAW, load({"job": "raw", "times": "{0,-1}", "until": "2h"}))
    at(house, 1)
    house.succeed(f"job=raw && biz={BEFORE}", 1)
    at(house, 2)
    note = house.one("load", DAY).note
    assert note == f"started without job=raw && biz={DAY}, because it was not there at 2026-01-02 02:00:00 UTC"
    house.succeed(f"job=raw && biz={DAY}", 1)
    assert (house.state("load", DAY), house.one("load", DAY).note) == ("READY", note)
    house.succeed(f"job=raw && biz={BEFORE}", 2, InstanceState.RUNNING)
    assert (house.state("load", DAY), house.one("load", DAY).note) == ("READY", note and note.replace(DAY, BEFORE, 1))
    assert house.claimed() == [KEY]


def test_until_holds_for_its_edge_alone(house: CenterHouse) -> None:
    house.save(RAW, load({"table": "lake.a.b", "until": "2h"}, {"job": "raw"}))
    at(house, 3)
    assert (house.state("load", DAY), house.one("load", DAY).missing) == ("WAITING", 1)
    assert [one.subject for one in house.center.why("load", DAY).without] == [
        "table=lake.a.b && window=2026-01-02T00:00Z/2026-01-03T00:00Z"
    ]
    house.succeed(f"job=raw && biz={DAY}", 1)
    assert house.claimed() == [KEY]


@pytest.mark.parametrize(("if_failed", "state"), [("wait", "WAITING"), ("ignore", "READY")])
def test_until_passes_over_a_run_that_failed_only_by_its_word(house: CenterHouse, if_failed: str, state: str) -> None:
    house.save(RAW, load({"job": "raw", "until": "2h", "if-failed": if_failed}))
    at(house, 1)
    house.succeed(f"job=raw && biz={DAY}", 1, InstanceState.FAILED)
    at(house, 2)
    assert house.state("load", DAY) == state
    # A run that failed has failed until it has succeeded.
    house.succeed(f"job=raw && biz={DAY}", 2, InstanceState.RUNNING)
    assert house.state("load", DAY) == state
    house.succeed(f"job=raw && biz={DAY}", 2)
    assert house.claimed() == [KEY]
    assert (house.one("load", DAY).note is None) == (if_failed == "wait")


def test_a_failure_after_until_takes_back_what_nobody_claimed(house: CenterHouse) -> None:
    house.save(RAW, load({"job": "raw", "until": "2h"}))
    at(house, 2)
    assert house.one("load", DAY).note is not None
    house.succeed(f"job=raw && biz={DAY}", 1, InstanceState.FAILED)
    assert (house.state("load", DAY), house.one("load", DAY).note) == ("WAITING", None)
    house.succeed(f"job=raw && biz={DAY}", 1)
    assert house.claimed() == [KEY]
    assert house.one("load", DAY).note is None


def test_a_failed_run_blocks_any_only_when_no_other_can_come(house: CenterHouse) -> None:
    house.save(RAW, load({"job": "raw", "times": "{0,-1}", "strength": "any", "until": "2h"}))
    at(house, 1)
    house.succeed(f"job=raw && biz={BEFORE}", 1, InstanceState.FAILED)
    house.succeed(f"job=raw && biz={DAY}", 1, InstanceState.FAILED)
    at(house, 2)
    assert house.state("load", DAY) == "WAITING"
    house.center.run_again("raw", DAY)
    house.settle()
    assert house.state("load", DAY) == "WAITING"


def test_untils_pass_while_no_leader_runs_and_a_new_one_finds_them(house: CenterHouse) -> None:
    house.save(RAW, load({"job": "raw", "until": "2h"}))
    at(house, 0)
    house.leader.resign()
    house.now = datetime(2026, 1, 2, 9, tzinfo=timezone.utc)
    house.leader = house.another_leader()
    house.leader.once()
    assert house.claimed() == [KEY]


def test_in_a_backfill_until_counts_from_its_making(house: CenterHouse) -> None:
    house.save(RAW, load({"job": "raw", "until": "2h"}))
    at(house, 8)
    assert house.center.backfill("fix", ["load"], DAY, DAY) == 1
    house.settle()
    assert house.one("load", DAY, "fix").missing == 1
    house.claimed()
    house.succeed(f"job=load && biz={DAY}", 1)
    at(house, 9, 59)
    assert house.state("load", DAY, "fix") == "WAITING"
    at(house, 10)
    assert house.claimed() == [f"load/{DAY}/fix/1"]


def test_a_saved_project_changes_the_rules_of_what_waits(house: CenterHouse) -> None:
    house.save(RAW, load({"job": "raw", "times": "{0,-1}"}))
    at(house, 3)
    house.succeed(f"job=raw && biz={BEFORE}", 1)
    assert house.one("load", DAY).missing == 1
    change = house.save(RAW, load({"job": "raw", "times": "{0,-1}", "strength": "any", "until": "1d"}))
    assert change.previews == {
        "load": (f"job=raw && biz={BEFORE}, job=raw && biz={DAY} (one of these is enough, until 2026-01-03 00:00:00 UTC)",)
    }
    assert house.center.jobs()[0].needs == ("job=raw {0,-1}, any until 1 d",)
    house.settle()
    assert house.claimed() == [KEY]


def test_weak_edges_count_for_ways_round(house: CenterHouse) -> None:
    with pytest.raises(ConfigError, match="load"):
        house.save(load({"job": "other", "strength": "any", "until": "1h"}), {"name": "other", "period": "day", "needs": [{"job": "load"}]})


def test_a_failure_that_is_over_and_taken_back_at_once_no_longer_holds_up_what_waits(house: CenterHouse) -> None:
    """It had failed, and then it is not there: no requirement tells of that, because it never was there in between."""
    house.save(RAW, load({"job": "raw", "until": "2h"}))
    at(house, 1)
    house.succeed(f"job=raw && biz={DAY}", 1, InstanceState.FAILED)
    at(house, 2)
    assert house.state("load", DAY) == "WAITING"
    for generation, state in ((2, InstanceState.SUCCEEDED), (3, InstanceState.RUNNING)):
        house.center.report(f"job=raw && biz={DAY}", state, "test", generation=generation)
    house.settle()
    assert house.state("load", DAY) == "READY"


@pytest.mark.parametrize("falls", [False, True])
def test_what_starts_by_its_until_before_it_is_told_of_what_came_hears_of_its_fall(
    house: CenterHouse, monkeypatch: pytest.MonkeyPatch, falls: bool
) -> None:
    # The oracle found this (seed 1425174417, world 232): the fan-out of another run goes on when the until is over.
    other = {"name": "other", "period": "day", "since": DAY, "virtual": True}
    many = [{**load({"job": "other"}), "name": f"a{number}"} for number in range(4)]
    house.save(other, RAW, *many, load({"job": "raw", "until": "02:00"}))
    at(house, 1)
    for subject in (f"job=other && biz={DAY}", f"job=raw && biz={DAY}"):
        house.center.report(subject, InstanceState.SUCCEEDED, "test", generation=1)
    monkeypatch.setattr(lead_center, "AT_ONCE", 2)
    house.now = datetime(2026, 1, 2, 2, 0, tzinfo=timezone.utc)
    house.leader.once()
    assert sum(house.state(f"a{number}", DAY) == "READY" for number in range(4)) == 2
    if falls:
        house.center.report(f"job=raw && biz={DAY}", InstanceState.RUNNING, "test", generation=2)
    house.settle()
    assert house.state("load", DAY) == "READY"
    assert (house.one("load", DAY).note is not None) == falls
