"""The ticks of servers: one leads, another takes over, and tables are planned and committed without Dagster."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

from compaction_pipeline.core.access.token import Role
from compaction_pipeline.core.queue.merge_version import MERGE_VERSION
from compaction_pipeline.core.queue.optimizer import Registration
from compaction_pipeline.services.run_ticks import KEEPER_LEASE
from compaction_pipeline_tests.opened import OpenedServices
from compaction_pipeline_tests.services.house import House


def another(house: House) -> OpenedServices:
    """The services of another server on the same state database."""
    return OpenedServices(house.services.settings, clock=lambda: house.now)


def test_one_server_leads_and_another_takes_over(tmp_path: Path) -> None:
    house = House(tmp_path)
    one, two = house.services.run_ticks, another(house).run_ticks
    assert one.lead()
    assert not two.lead()
    house.now += KEEPER_LEASE - timedelta(microseconds=1)
    assert one.lead()
    house.now += KEEPER_LEASE
    assert two.lead()
    assert not one.lead()
    two.resign()
    assert one.lead()


def test_a_tick_finds_plans_and_commits(tmp_path: Path) -> None:
    house = House(tmp_path)
    services = house.services
    table = house.fragmented()
    services.run_ticks.tick()
    assert services.read_tasks.queue_counts().pending == 1
    services.work_on_queue.drain("worker")
    services.run_ticks.tick()
    assert services.read_tasks.queue_counts().committed == 1
    assert table.live_ids() == list(range(12))


def test_old_optimizers_and_their_tokens_are_forgotten(tmp_path: Path) -> None:
    house = House(tmp_path)
    services = house.services
    gone, there = (
        services.serve_optimizers.register(Registration("default", "host", "1", services.version, MERGE_VERSION, 1)) for _ in range(2)
    )
    for optimizer in (gone, there):
        services.keep_tokens.issue(Role.OPTIMIZER, "its own", optimizer_id=optimizer.optimizer_id)
    services.serve_optimizers.leave(gone.optimizer_id)
    house.pass_time(timedelta(days=31).total_seconds())
    services.serve_optimizers.touch(there.optimizer_id, [])
    services.run_ticks.tick()
    assert [each.optimizer_id for each in services.serve_optimizers.optimizers()] == [there.optimizer_id]
    assert [token.optimizer_id for token in services.stores.tokens.tokens()] == [there.optimizer_id]
