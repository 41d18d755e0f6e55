"""A project is converted to root and end nodes: in shadow, compared, switched, tightened, and back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

import pytest

from compaction_pipeline.core.dependencies.center.ports import CenterStore, InstanceQuery, SavedProject
from compaction_pipeline.core.errors import ChangedMeanwhile, ConfigError, NotFoundError
from compaction_pipeline.core.stores import Stores
from compaction_pipeline.services.dependencies.convert_project import ConvertProject
from compaction_pipeline.services.dependencies.definitions import Definitions
from compaction_pipeline_tests.services.dependencies.center_house import CenterHouse

RAW: list[Mapping[str, Any]] = [
    {"name": "told", "period": "day", "virtual": True, "since": "2026-01-01"},
    {"name": "slow", "period": "day", "virtual": True, "since": "2026-01-01"},
]
LOAD: Mapping[str, Any] = {"name": "load", "period": "day", "trigger": "02:00", "needs": [{"job": "told"}]}


@pytest.fixture
def house(stores: Stores) -> CenterHouse:
    house = CenterHouse(stores)
    house.save(*RAW, project="raw")
    house.save(LOAD, after=["raw"])
    return house


@pytest.fixture
def convert(house: CenterHouse) -> ConvertProject:
    return ConvertProject(house.store, Definitions(house.store), lambda: house.now)


def a_day(house: CenterHouse, day: str) -> None:
    """The day is over; what is needed by name is there two hours before the rest, and the job is started."""
    house.pass_time(hours=22)
    house.succeed(f"job=told && biz={day}")
    house.pass_time(hours=2)
    house.succeed(f"job=slow && biz={day}")
    house.claimed()


def test_a_shadow_is_compared_before_the_switch_and_one_command_leads_back(house: CenterHouse, convert: ConvertProject) -> None:
    with pytest.raises(ConfigError, match="no shadow of 'sales' has run"):
        convert.switch("sales")
    started = convert.shadow("sales", 2)
    assert (started.form, started.shadow_until) == ("jobs", house.now + timedelta(days=2))
    with pytest.raises(ConfigError, match="a shadow of 'sales' runs since"):
        convert.shadow("sales", 2)
    a_day(house, "2026-01-02")
    found = convert.look("sales")
    assert (found.same, found.different, found.open, found.left_out) == (1, 0, 0, 0)
    with pytest.raises(ConfigError, match="runs until 2026-01-03T23:30:00"):
        convert.switch("sales")
    a_day(house, "2026-01-03")
    assert convert.look("sales").earlier == {"load": timedelta(hours=2)}
    switched = convert.switch("sales")
    assert (switched.form, switched.shadow_since, switched.same) == ("nodes", None, 0)
    with pytest.raises(ConfigError, match="has the form 'nodes' already"):
        convert.shadow("sales", 2)
    with pytest.raises(ConfigError, match="there is nothing to switch"):
        convert.switch("sales", anyway=True)
    a_day(house, "2026-01-04")
    assert house.one("load", "2026-01-04").ready_at == house.now
    # The shadow has ended.
    assert not [one for one in house.store.instances(InstanceQuery()) if one.job == "load:shadow" and one.biz == "2026-01-04"]
    assert convert.back("sales").form == "jobs"
    a_day(house, "2026-01-05")
    assert house.one("load", "2026-01-05").ready_at == house.now
    assert house.store.recount() == 0


def test_the_tightened_form_waits_for_what_is_named(house: CenterHouse, convert: ConvertProject) -> None:
    with pytest.raises(ConfigError, match="switch it to nodes first"):
        convert.tighten("sales")
    convert.switch("sales", anyway=True)
    assert convert.tighten("sales").form == "own"
    house.pass_time(hours=4)
    house.succeed("job=told && biz=2026-01-02")
    assert house.state("load", "2026-01-02") == "READY"


def test_what_ran_again_or_beside_a_backfill_is_left_out(house: CenterHouse, convert: ConvertProject) -> None:
    convert.shadow("sales", 5)
    for day in ("2026-01-02", "2026-01-03", "2026-01-04"):
        a_day(house, day)
    for day in ("2026-01-02", "2026-01-03", "2026-01-04"):
        house.succeed(f"job=load && biz={day}", 1)
    house.center.run_again("load", "2026-01-02")
    house.center.backfill("fix", ["load"], "2026-01-03", "2026-01-03")
    house.settle()
    found = convert.look("sales")
    assert (found.same, found.different, found.left_out) == (1, 0, 2)


def test_a_new_shadow_counts_anew_and_a_saved_file_keeps_it(house: CenterHouse, convert: ConvertProject) -> None:
    convert.shadow("sales", 1)
    a_day(house, "2026-01-02")
    house.save(LOAD, after=["raw"])
    assert convert.look("sales").same == 1
    house.save(LOAD, after=["raw"], form="jobs", shadow=None)
    assert convert.look("sales").shadow_since is None
    convert.shadow("sales", 1)
    assert convert.look("sales").same == 0


def test_other_moments_keep_a_project_from_the_switch(house: CenterHouse, convert: ConvertProject) -> None:
    """Here somebody starts a run that the rule does not let start yet."""
    convert.shadow("sales", 1)
    house.pass_time(hours=10)
    house.succeed("job=load && biz=2026-01-02", 1)
    house.pass_time(hours=20)
    found = convert.look("sales")
    (other,) = found.differences
    assert (other.job, other.biz, other.by_nodes, found.different) == ("load", "2026-01-02", None, 1)
    with pytest.raises(ConfigError, match="1 started at another moment than they would by nodes"):
        convert.switch("sales")
    assert convert.switch("sales", anyway=True).form == "nodes"


def test_what_cannot_be_converted_is_said(convert: ConvertProject) -> None:
    with pytest.raises(NotFoundError, match="there is no project 'nobody'"):
        convert.look("nobody")
    with pytest.raises(ConfigError, match="comes after no other"):
        convert.look("raw")
    with pytest.raises(ConfigError, match="must run for 1 to 100"):
        convert.shadow("sales", 0)


class Between:
    """A store, on which somebody saves the project when its file was just read."""

    def __init__(self, house: CenterHouse) -> None:
        self.house = house

    def __getattr__(self, name: str) -> Any:
        return getattr(self.house.store, name)

    def projects(self, after: int = 0) -> Sequence[SavedProject]:
        found = self.house.store.projects(after)
        self.house.save({**LOAD, "needs": [{"asset": "new"}]}, after=["raw"])
        return found


@pytest.mark.parametrize("verb", ["shadow", "switch", "back"])
def test_what_somebody_saved_meanwhile_is_not_lost(house: CenterHouse, verb: str) -> None:
    between: CenterStore = Between(house)  # type: ignore[assignment]
    convert = ConvertProject(between, Definitions(house.store), lambda: house.now)
    with pytest.raises(ChangedMeanwhile, match="do it again"):
        {
            "shadow": lambda: convert.shadow("sales", 1),
            "switch": lambda: convert.switch("sales", anyway=True),
            "back": lambda: convert.back("sales"),
        }[verb]()
    assert "asset=new 0" in house.needs("load")
