"""What must run again after a job did, from the question to the backfill that does it."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest

from compaction_pipeline.core.errors import ConfigError, NotFoundError
from compaction_pipeline.services.dependencies.definitions import Definitions
from compaction_pipeline.services.dependencies.repair import Repair, RepairJobs
from compaction_pipeline_tests.services.dependencies.center_house import CenterHouse
from compaction_pipeline_tests.state import sqlite_stores


def job(name: str, *needs: str | Mapping[str, Any], **more: Any) -> Mapping[str, Any]:
    return {
        "name": name,
        "period": "day",
        "since": "2026-01-01",
        **more,
        "needs": [{"job": one} if isinstance(one, str) else one for one in needs],
    }


OWN = {"job": "own", "times": "-1"}


@pytest.fixture
def house(tmp_path: Path) -> CenterHouse:
    house = CenterHouse(sqlite_stores(tmp_path), datetime(2026, 1, 5, 0, 30, tzinfo=timezone.utc))
    house.save(job("load"), job("own", "load", OWN), job("report", "own"), job("other"))
    return house


def repair(house: CenterHouse, *asked: str, **more: Any) -> Repair:
    return RepairJobs(house.center, Definitions(house.store), lambda: house.now).repair(*asked, **more)


def shown(found: Repair) -> list[list[tuple[str, tuple[str, ...]]]]:
    return [[(one.job, one.times) for one in layer] for layer in found.layers]


def test_a_repair_has_a_layer_for_each_step_away_and_only_what_was_due(house: CenterHouse) -> None:
    found = repair(house, "load", "2026-01-02", "2026-01-03")
    assert shown(found) == [
        [("load", ("2026-01-02..2026-01-03",))],
        [("own", ("2026-01-02..2026-01-05",))],
        [("report", ("2026-01-02..2026-01-05",))],
    ]
    assert (found.count, found.launched) == (10, 0)
    assert shown(repair(house, "load", "2026-01-05", "2026-01-09"))[0] == [("load", ("2026-01-05",))]


def test_only_downstream_leaves_out_what_has_run_and_keeps_what_follows_from_it(house: CenterHouse) -> None:
    assert shown(repair(house, "own", "2026-01-03", "2026-01-03", only_downstream=True)) == [
        [("own", ("2026-01-04..2026-01-05",))],
        [("report", ("2026-01-03..2026-01-05",))],
    ]


def test_a_launched_repair_runs_upstreams_first_and_downstreams_on_their_new_runs(house: CenterHouse) -> None:
    house.settle()
    while claimed := house.claimed():
        for key in claimed:
            name, biz, _, generation = key.split("/")
            house.succeed(f"job={name} && biz={biz}", int(generation))
    found = repair(house, "load", "2026-01-04", "2026-01-04", launch="fix")
    assert (found.count, found.launched) == (5, 5)
    house.settle()
    order = []
    while claimed := house.claimed():
        for key in claimed:
            order.append(key)
            name, biz, origin, _ = key.split("/")
            assert origin == "fix"
            house.succeed(f"job={name} && biz={biz} && backfill=fix", 1)
    assert order[0] == "load/2026-01-04/fix/1"
    assert order.index("own/2026-01-04/fix/1") < order.index("own/2026-01-05/fix/1") < order.index("report/2026-01-05/fix/1")
    assert len(order) == 5
    # A second launch of the same makes nothing twice.
    assert repair(house, "load", "2026-01-04", "2026-01-04", launch="fix").launched == 0


def test_a_virtual_job_is_followed_and_not_started(house: CenterHouse) -> None:
    house.save(
        job("made"),
        {"name": "mirror", "period": "day", "since": "2026-01-01", "made-by": {"job": "made"}},
        job("after", "mirror"),
        project="more",
    )
    found = repair(house, "made", "2026-01-05", "2026-01-05")
    assert shown(found) == [[("made", ("2026-01-05",))], [("mirror", ("2026-01-05",))], [("after", ("2026-01-05",))]]
    assert [one.virtual for layer in found.layers for one in layer] == [False, True, False]
    assert found.count == 2


def test_projects_that_come_after_others_are_followed_and_their_nodes_are_not_shown(house: CenterHouse) -> None:
    house.save(job("behind"), project="marts", after=["sales"])
    assert [name for layer in shown(repair(house, "other", "2026-01-05", "2026-01-05")) for name, _ in layer] == ["other", "behind"]


def test_what_is_only_reported_is_reported_anew_before_its_repair_is_launched(house: CenterHouse) -> None:
    house.save({"name": "raw", "period": "day", "since": "2026-01-01", "virtual": True}, job("on_raw", "raw"), project="more")
    with pytest.raises(ConfigError, match="the job 'raw' is only reported, so nobody runs it again here: report its runs anew"):
        repair(house, "raw", "2026-01-04", "2026-01-04", launch="fix")
    assert repair(house, "raw", "2026-01-04", "2026-01-04", launch="fix", only_downstream=True).launched == 1


def test_wrong_questions_are_refused(house: CenterHouse) -> None:
    with pytest.raises(ConfigError, match="the range from '2026-01-03' to '2026-01-02' is empty"):
        repair(house, "load", "2026-01-03", "2026-01-02")
    with pytest.raises(NotFoundError, match="no job 'loud'"):
        repair(house, "loud", "2026-01-03", "2026-01-03")
    with pytest.raises(ConfigError, match="nothing of 'load' from '2026-02-03' to '2026-02-04' has run or is due"):
        repair(house, "load", "2026-02-03", "2026-02-04", launch="fix")
    with pytest.raises(ConfigError, match="the backfill 'a b' must have a name"):
        repair(house, "load", "2026-01-03", "2026-01-03", launch="a b")


def rounds(house: CenterHouse) -> list[list[str]]:
    """What starts together, and ends, until nothing starts any more."""
    found = []
    house.settle()
    while claimed := house.claimed():
        found.append(sorted(claimed))
        for key in claimed:
            name, biz, origin, generation = key.split("/")
            backfill = "" if origin == "scheduled" else f" && backfill={origin}"
            house.succeed(f"job={name} && biz={biz}{backfill}", int(generation))
    return found


def test_a_launched_repair_waits_through_virtual_jobs(house: CenterHouse) -> None:
    mirror = {"name": "mirror", "period": "day", "since": "2026-01-01", "made-by": {"job": "made"}}
    house.save(job("made"), mirror, job("after", "mirror"), project="more")
    rounds(house)
    assert house.state("after", "2026-01-05") == "SUCCEEDED"
    found = repair(house, "made", "2026-01-05", "2026-01-05", launch="fix")
    assert (found.count, found.launched) == (2, 2)
    assert rounds(house) == [["made/2026-01-05/fix/1"], ["after/2026-01-05/fix/1"]]


TABLE = "table=lake.a.t"


@pytest.mark.parametrize("more", [{}, {"strength": "any"}, {"strength": "all", "until": "1h"}])
def test_a_launched_repair_waits_for_data_until_it_is_made_anew(house: CenterHouse, more: Mapping[str, Any]) -> None:
    hourly = {"name": "hourly", "period": "hour", "since": "2026-01-04T00", "produces": [TABLE]}
    house.save(job("made", produces=[TABLE]), hourly, job("after", {"table": "lake.a.t", **more}), project="more")
    for day in range(1, 6):
        house.tell(f"{TABLE} && window=2026-01-0{day}T00:00Z/2026-01-0{day + 1}T00:00Z")
    rounds(house)
    assert house.state("after", "2026-01-04") == "SUCCEEDED"
    assert repair(house, "hourly", "2026-01-04T23", "2026-01-04T23", launch="fix").launched == 2
    assert rounds(house) == [["hourly/2026-01-04T23/fix/1"], ["after/2026-01-04/fix/1"]]
    assert repair(house, "made", "2026-01-04", "2026-01-04", launch="more").launched == 2
    assert rounds(house) == [["made/2026-01-04/more/1"], ["after/2026-01-04/more/1"]]
    assert house.store.recount() == 0


def test_jobs_that_change_one_table_do_not_wait_for_each_other_in_a_repair(house: CenterHouse) -> None:
    changes = {"produces": [TABLE]}
    house.save(job("one", {"table": "lake.a.t"}, **changes), job("two", {"table": "lake.a.t"}, **changes), project="more")
    house.tell(f"{TABLE} && window=2026-01-04T00:00Z/2026-01-05T00:00Z")
    rounds(house)
    assert repair(house, "one", "2026-01-04", "2026-01-04", launch="fix").launched == 2
    assert rounds(house) == [["one/2026-01-04/fix/1", "two/2026-01-04/fix/1"]]


def test_who_makes_data_in_a_repair_may_be_removed(house: CenterHouse) -> None:
    house.save(job("made", produces=[TABLE]), project="makers")
    house.save(job("after", {"table": "lake.a.t"}), project="more")
    house.tell(f"{TABLE} && window=2026-01-04T00:00Z/2026-01-05T00:00Z")
    rounds(house)
    repair(house, "made", "2026-01-04", "2026-01-04", launch="fix")
    house.settle()
    assert house.state("after", "2026-01-04", "fix") == "WAITING"
    house.save(project="makers")
    house.settle()
    assert house.claimed() == ["after/2026-01-04/fix/1"]
