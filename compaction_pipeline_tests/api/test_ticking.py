"""The threads beside the server: what they do with the tables, and what they do without."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from compaction_pipeline.api.ticking import Telling, ticking
from compaction_pipeline.core.queue.merge_version import MERGE_VERSION
from compaction_pipeline.core.queue.optimizer import SILENCE, Registration
from compaction_pipeline.core.queue.watchers import WatcherKind
from compaction_pipeline.services.run_ticks import Part
from compaction_pipeline_tests.opened import OpenedServices
from compaction_pipeline_tests.services.house import House

PATIENCE_SECONDS = 60


def wait_until(done: Callable[[], bool], what: str) -> None:
    """Look again and again, because threads do the work. The limit only ends a test that hangs."""
    until = time.monotonic() + PATIENCE_SECONDS
    while not done():
        assert time.monotonic() < until, f"not within {PATIENCE_SECONDS} s: {what}"
        time.sleep(0.02)


@pytest.mark.parametrize("tables", [True, False])
def test_a_server_marks_silent_optimizers_as_lost_also_when_it_leaves_the_tables_to_dagster(tmp_path: Path, tables: bool) -> None:
    house = House(tmp_path)
    house.fragmented()
    services = house.services
    services.serve_optimizers.register(Registration("default", "host", "1", services.version, MERGE_VERSION, 1))
    with ticking(services.run_ticks, services.upkeep_tables, tables=tables):
        wait_until(lambda: {each.kind for each in services.stores.watchers.watchers()} == set(WatcherKind), "the server is there")
        for _ in range(3):
            # The server has just started, so it waits for a whole lease. The test notes for it that it has had no break meanwhile.
            house.now += SILENCE / 3
            for watcher in services.stores.watchers.watchers():
                services.stores.watchers.renew(watcher.name, watcher.kind, house.now, SILENCE)
        wait_until(lambda: services.serve_optimizers.optimizers(live=True) == (), "the optimizer is lost")
        if tables:
            wait_until(lambda: services.read_tasks.queue_counts().pending == 1, "the table is planned")
    assert services.read_tasks.queue_counts().pending == (1 if tables else 0)
    for part in Part:
        assert services.stores.leases.holder(part.value, house.now) is None


def test_one_of_the_servers_that_know_the_receiver_tells_whichever_of_them_keeps_the_queue(tmp_path: Path) -> None:
    house = House(tmp_path)
    told: list[str] = []
    keeper = house.services
    first, second = (OpenedServices(keeper.settings, clock=lambda: house.now) for _ in range(2))
    with (
        ticking(keeper.run_ticks, keeper.upkeep_tables, tables=False),
        ticking(
            first.run_ticks, first.upkeep_tables, tables=False, tell=Telling(lambda is_over: told.append("first"), lambda is_over: None)
        ),
        ticking(
            second.run_ticks, second.upkeep_tables, tables=False, tell=Telling(lambda is_over: told.append("second"), lambda is_over: None)
        ),
    ):
        wait_until(lambda: bool(told), "somebody tells")
        time.sleep(0.5)
    assert told == ["first"]


def test_the_first_round_of_upkeep_comes_after_the_first_tick(tmp_path: Path) -> None:
    services = House(tmp_path).services
    done: list[str] = []

    class Ticks:
        def __getattr__(self, name: str) -> object:
            return getattr(services.run_ticks, name)

        def tick(self) -> None:
            time.sleep(0.5)
            done.append("tick")

    class Upkeep:
        def run(self, is_over: Callable[[], bool]) -> None:
            done.append("upkeep")

    with ticking(Ticks(), Upkeep(), tables=True):  # type: ignore[arg-type]
        wait_until(lambda: "upkeep" in done, "upkeep has had a round")
    assert done[:2] == ["tick", "upkeep"]


def test_a_server_that_stops_before_its_first_tick_has_ended_does_no_upkeep(tmp_path: Path) -> None:
    services = House(tmp_path).services
    begun, may_end = threading.Event(), threading.Event()

    class Ticks:
        def __getattr__(self, name: str) -> object:
            return getattr(services.run_ticks, name)

        def tick(self) -> None:
            begun.set()
            may_end.wait(PATIENCE_SECONDS)

    rounds: list[bool] = []

    class Upkeep:
        def run(self, is_over: Callable[[], bool]) -> None:
            rounds.append(is_over())

    with ticking(Ticks(), Upkeep(), tables=True):  # type: ignore[arg-type]
        assert begun.wait(PATIENCE_SECONDS)
        threading.Timer(0.5, may_end.set).start()
    assert False not in rounds
