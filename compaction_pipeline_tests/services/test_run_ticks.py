"""The ticks of servers: one leads, another takes over, and tables are planned and committed without Dagster."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from unittest import mock

import pytest

from compaction_pipeline.core.access.token import Role
from compaction_pipeline.core.errors import ConfigError, StorageUnavailable
from compaction_pipeline.core.leases.timeouts import LEASE as LEASE_OF_WORK
from compaction_pipeline.core.planning.plan import PlanRequest
from compaction_pipeline.core.queue.group import ResourceGroup
from compaction_pipeline.core.queue.instances import REGISTERS_WITHIN
from compaction_pipeline.core.queue.merge_version import MERGE_VERSION
from compaction_pipeline.core.queue.optimizer import Optimizer, OptimizerState, Registration
from compaction_pipeline.core.queue.watchers import MOST_PATIENCE
from compaction_pipeline.core.tables.node import TableNode
from compaction_pipeline.core.work.ends import EndReason
from compaction_pipeline.services.run_ticks import CLEAN_UP_EVERY, LEASE, Part
from compaction_pipeline_tests.iceberg.lake import LakeTable
from compaction_pipeline_tests.opened import OpenedServices
from compaction_pipeline_tests.reference_reader import local_path
from compaction_pipeline_tests.services.house import House


def another(house: House) -> OpenedServices:
    """The services of another server on the same state database."""
    return OpenedServices(house.services.settings, clock=lambda: house.now)


def test_one_server_leads_and_another_takes_over(tmp_path: Path) -> None:
    house = House(tmp_path)
    one, two = house.services.run_ticks, another(house).run_ticks
    for part in Part:
        assert one.lead(part)
        assert not two.lead(part)
    house.now += LEASE - timedelta(microseconds=1)
    for part in Part:
        assert one.lead(part)
    house.now += LEASE
    for part in Part:
        assert two.lead(part)
        assert not one.lead(part)
    two.resign()
    for part in Part:
        assert one.lead(part)


def test_a_server_that_only_keeps_the_queue_leaves_the_tables_to_another(tmp_path: Path) -> None:
    house = House(tmp_path)
    keeper, ticker = house.services.run_ticks, another(house).run_ticks
    assert keeper.lead(Part.KEEPER)
    assert not ticker.lead(Part.KEEPER)
    assert ticker.lead(Part.TICK)


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
    services.run_ticks.keep()
    assert [each.optimizer_id for each in services.serve_optimizers.optimizers()] == [there.optimizer_id]
    assert [token.optimizer_id for token in services.stores.tokens.tokens()] == [there.optimizer_id]


def test_a_keeper_frees_the_place_of_an_optimizer_that_never_registers(tmp_path: Path) -> None:
    house = House(tmp_path)
    services, now = house.services, house.now
    services.manage_groups.add(ResourceGroup("heavy", "workers"))
    row = Optimizer("o1", "heavy", "here", "", "", 1, now, now, OptimizerState.STARTING, resource_id="r", container="workers")
    services.stores.optimizers.add(row)
    house.now += REGISTERS_WITHIN - timedelta(seconds=1)
    assert services.keep_watch.lose_silent() == ()
    with pytest.raises(ConfigError, match="live optimizers o1"):
        services.manage_groups.delete("heavy")
    house.now += timedelta(seconds=1)
    # A server asks the container first, and so it alone may say that the optimizer will not come.
    services.keep_watch.note_server("s")
    assert services.keep_watch.lose_silent() == ()
    house.now += MOST_PATIENCE
    assert services.keep_watch.lose_silent() == ("o1",)
    [lost] = services.stores.optimizers.optimizers()
    assert (lost.state, lost.why) == (OptimizerState.LOST, "it did not register within 5 min")
    services.manage_groups.delete("heavy")


def leftover(table: LakeTable, services: OpenedServices) -> Path:
    """A file that a killed attempt of a task of the table has left on the storage."""
    [task] = services.one_table.plan_nodes(table.identifier, PlanRequest(nodes=frozenset({TableNode(0)}))).tasks
    services.stores.tasks.cancel([task.task_id], EndReason.OUTDATED, "a test wants this", services.clock())
    path = Path(local_path(table.files()[0].path)).with_name(f"{task.task_id}-a1-0.parquet")
    path.write_bytes(b"left over")
    return path


def test_leftovers_are_removed_once_a_day_without_dagster(tmp_path: Path) -> None:
    house = House(tmp_path)
    table, services = house.fragmented(), house.services
    first = leftover(table, services)
    services.run_ticks.clean_up(lambda: False)
    assert not first.exists()
    second = leftover(table, services)
    for ticks in (services.run_ticks, another(house).run_ticks):
        ticks.clean_up(lambda: False)
        assert second.exists()
    house.now += CLEAN_UP_EVERY
    another(house).run_ticks.clean_up(lambda: False)
    assert not second.exists()
    assert table.live_ids() == list(range(12))


def test_a_clean_up_that_was_stopped_begins_anew_and_expires_nothing(tmp_path: Path) -> None:
    house = House(tmp_path)
    table, services = house.fragmented(), house.services
    left = leftover(table, services)
    house.pass_time(timedelta(days=31).total_seconds())
    services.run_ticks.clean_up(lambda: True)
    assert left.exists()
    assert len(services.stores.tasks.tasks(table.identifier)) == 1
    services.run_ticks.clean_up(lambda: False)
    assert not left.exists()
    assert services.stores.tasks.tasks(table.identifier) == ()


def test_a_clean_up_whose_server_was_killed_is_done_by_another_a_minute_later(tmp_path: Path) -> None:
    house = House(tmp_path)
    table, services = house.fragmented(), house.services
    left = leftover(table, services)
    # A killed process releases nothing.
    services.stores.leases.instead(release=lambda name, owner: None)
    services.stores.catalogs.instead(entries=mock.Mock(side_effect=KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        services.run_ticks.clean_up(lambda: False)
    another(house).run_ticks.clean_up(lambda: False)
    assert left.exists()
    house.now += LEASE_OF_WORK
    another(house).run_ticks.clean_up(lambda: False)
    assert not left.exists()


def test_a_clean_up_that_an_error_ends_begins_anew(tmp_path: Path) -> None:
    house = House(tmp_path)
    table, services = house.fragmented(), house.services
    left = leftover(table, services)
    services.stores.catalogs.instead_once(entries=mock.Mock(side_effect=StorageUnavailable("away")))
    with pytest.raises(StorageUnavailable):
        services.run_ticks.clean_up(lambda: False)
    services.run_ticks.clean_up(lambda: False)
    assert not left.exists()
