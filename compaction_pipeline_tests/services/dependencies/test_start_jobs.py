"""The receiver of callbacks is told each start until it has taken it."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

from compaction_pipeline.core.dependencies.center.instances import Instance
from compaction_pipeline.core.errors import StorageUnavailable
from compaction_pipeline.services.dependencies.start_jobs import StartJobs
from compaction_pipeline_tests.services.dependencies.center_house import CenterHouse
from compaction_pipeline_tests.state import sqlite_stores

JOBS = 20


class Down:
    """A receiver that does not take what it is told of these jobs."""

    def __init__(self, *jobs: str) -> None:
        self.jobs = jobs
        self.told: list[str] = []

    def __call__(self, one: Instance) -> None:
        self.told.append(one.key)
        if one.job in self.jobs:
            raise StorageUnavailable("it is down")


def house_with_starts(folder: Path) -> CenterHouse:
    house = CenterHouse(sqlite_stores(folder))
    jobs = ({"name": f"j{number:02}", "period": "day", "since": "2026-01-01", "receiver": "callback"} for number in range(JOBS))
    house.save(*jobs, {"name": "other", "period": "day", "since": "2026-01-01"})
    house.settle()
    return house


def test_each_start_is_told_once_when_it_is_taken(tmp_path: Path) -> None:
    house = house_with_starts(tmp_path)
    starts, receiver = StartJobs(house.center, lambda: house.now), Down()
    starts.start(receiver)
    starts.start(receiver)
    assert sorted(receiver.told) == [f"j{number:02}/2026-01-01/scheduled/1" for number in range(JOBS)]


def test_what_is_never_taken_keeps_nothing_else_from_its_turn(tmp_path: Path) -> None:
    house = house_with_starts(tmp_path)
    starts, receiver = StartJobs(house.center, lambda: house.now), Down(*(f"j{number:02}" for number in range(8)))
    for _ in range(4):
        starts.start(receiver)
        told = len(receiver.told)
        # The receiver may be down, so the next round comes ten seconds later.
        starts.start(receiver)
        assert len(receiver.told) == told
        house.now += timedelta(seconds=10)
    taken = {key for key in receiver.told if int(key[1:3]) >= 8}
    assert len(taken) == JOBS - 8
    assert all(receiver.told.count(key) == 1 for key in taken)
    receiver.jobs = ()
    starts.start(receiver)
    assert not house.center.claim("callback")


def test_a_process_that_ends_tells_no_more(tmp_path: Path) -> None:
    house = house_with_starts(tmp_path)
    receiver = Down()
    StartJobs(house.center, lambda: house.now).start(receiver, lambda: True)
    assert receiver.told == []
    # Another server goes on with what this one had claimed.
    StartJobs(house.center, lambda: house.now).start(receiver)
    assert len(receiver.told) == JOBS
