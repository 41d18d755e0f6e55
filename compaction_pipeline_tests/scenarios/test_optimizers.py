"""A server and optimizers as real processes, without Dagster. Writers go on, optimizers are killed, and every row stays."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections import Counter
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from random import Random

import pytest

from compaction_pipeline.core.leases.timeouts import LEASE
from compaction_pipeline.core.queue.task import TaskStatus
from compaction_pipeline.settings import Settings
from compaction_pipeline_tests.iceberg.lake import Lake
from compaction_pipeline_tests.opened import OpenedServices
from compaction_pipeline_tests.ports import free_port
from compaction_pipeline_tests.postgres import postgres_server, postgres_url
from compaction_pipeline_tests.scenarios.deployed import (
    COMMAND,
    PATIENCE_SECONDS,
    Processes,
    committed,
    small_table,
    wait_until,
    write,
)

__all__ = ["postgres_server", "postgres_url"]

pytestmark = pytest.mark.scenario


@pytest.fixture
def processes(tmp_path: Path) -> Iterator[Processes]:
    deployed = Processes(tmp_path / "home")
    yield deployed
    deployed.kill_all()


@pytest.fixture
def services(tmp_path: Path, processes: Processes) -> Iterator[OpenedServices]:
    """The test's own look at the state database, with a lake whose tables the deployment compacts."""
    opened = OpenedServices(Settings(home=processes.home, merge_engine="in-process"))
    yield opened
    opened.close()


def test_a_server_and_an_optimizer_need_no_dagster(tmp_path: Path, processes: Processes, services: OpenedServices) -> None:
    table = small_table(Lake(tmp_path), services)
    truth: Counter[int] = Counter()
    rng = Random(1)
    processes.serve()
    optimizer = processes.optimizer()
    write(table, rng, truth, 14)
    wait_until(lambda: committed(services) >= 1, "the first commit")
    write(table, rng, truth, 14)
    wait_until(lambda: committed(services) >= 2, "the second commit")
    wait_until(lambda: services.read_tasks.queue_counts().open == 0, "an empty queue")
    assert Counter(table.live_ids()) == truth
    optimizer.send_signal(signal.SIGTERM)
    assert optimizer.wait(60) == 0
    assert processes.live() == []
    assert "merged" in (tmp_path / "optimizer-1.log").read_text()


def test_killed_optimizers_and_a_killed_server_lose_nothing(tmp_path: Path, processes: Processes, services: OpenedServices) -> None:
    table = small_table(Lake(tmp_path), services)
    truth: Counter[int] = Counter()
    rng = Random(2)
    server = processes.serve()
    optimizers = [processes.optimizer(), processes.optimizer()]
    wait_until(lambda: len(processes.live()) == 2, "two optimizers")
    for victim in range(4):
        write(table, rng, truth, 14)
        wait_until(lambda: services.read_tasks.queue_counts().executing > 0 or committed(services) > 0, "work")
        if victim == 2:
            server.kill()
            server.wait()
            server = processes.serve()
        optimizers[victim % 2].kill()
        optimizers[victim % 2].wait()
        optimizers[victim % 2] = processes.optimizer()
    write(table, rng, truth, 14)
    wait_until(lambda: len(processes.live()) >= 2, "two optimizers again")
    wait_until(lambda: committed(services) > 0 and services.read_tasks.queue_counts().open == 0, "an empty queue")
    assert Counter(table.live_ids()) == truth
    tasks = services.stores.tasks.tasks()
    assert {task.status for task in tasks} <= {TaskStatus.COMMITTED, TaskStatus.CANCELED, TaskStatus.FAILED}
    assert all(task.reason for task in tasks if task.status is TaskStatus.FAILED)


def test_a_leader_that_is_stopped_for_a_minute_and_comes_back_harms_nothing(tmp_path: Path, postgres_url: str) -> None:
    home = tmp_path / "home"
    processes = Processes(home, COMPACTION_STATE_URL=postgres_url)
    # Where the server is stopped in a transaction of the catalog, PostgreSQL ends that soon, as it ends those of the state database.
    properties = {"type": "sql", "uri": f"{postgres_url}&options=-cidle_in_transaction_session_timeout%3D20s"}
    lake = Lake(tmp_path, properties={**properties, "warehouse": f"file://{tmp_path}/wh", "init_catalog_tables": "true"})
    services = OpenedServices(Settings(home=home, state_url=postgres_url, merge_engine="in-process"))
    try:
        table, truth, rng = small_table(lake, services), Counter[int](), Random(3)
        first = processes.start("serve", "--port", str(free_port()))
        wait_until(lambda: leader(services) is not None, "the first server leads")
        stopped_one = leader(services)
        processes.serve()
        processes.optimizer()
        write(table, rng, truth, 14)
        wait_until(lambda: committed(services) >= 1, "the first commit")
        write(table, rng, truth, 14)
        first.send_signal(signal.SIGSTOP)
        wait_until(lambda: leader(services) not in (None, stopped_one), "the other server leads")
        before = committed(services)
        write(table, rng, truth, 14)
        wait_until(lambda: committed(services) > before, "a commit without the first server")
        # Every lease of the stopped server has ended by then, those of tables too.
        wait_until(lambda: stopped_for(services, str(stopped_one)) > LEASE, "the server is stopped for a minute")
        write(table, rng, truth, 14)
        first.send_signal(signal.SIGCONT)
        wait_until(lambda: stopped_for(services, str(stopped_one)) < LEASE, "the server is there again")
        assert leader(services) != stopped_one
        write(table, rng, truth, 14)
        wait_until(lambda: services.read_tasks.queue_counts().open == 0 and committed(services) > before + 1, "an empty queue")
        assert Counter(table.live_ids()) == truth
        tasks = Counter(task_id for record in services.stores.records.records() for task_id in record.committed_task_ids)
        assert set(tasks.values()) == {1}
        # Neither the stop nor the return cost the optimizer anything.
        assert [optimizer.state.value for optimizer in services.stores.optimizers.optimizers()] == ["RUNNING"]
        assert first.poll() is None
    finally:
        processes.kill_all()
        services.close()


def leader(services: OpenedServices) -> str | None:
    """The owner of the lease of the tables."""
    held = services.stores.leases.holder("tick", services.clock())
    return held.owner if held is not None else None


def stopped_for(services: OpenedServices, server: str) -> timedelta:
    """How long a server has noted nothing."""
    [watcher] = [each for each in services.stores.watchers.watchers() if each.name == server]
    return services.clock() - watcher.renewed_at


@pytest.mark.parametrize("told", [signal.SIGTERM, signal.SIGINT])
def test_a_server_that_is_told_to_end_ends_well_and_gives_its_leases_up(
    processes: Processes, services: OpenedServices, told: signal.Signals
) -> None:
    server = processes.serve()
    wait_until(lambda: services.stores.leases.holder("keeper", services.clock()) is not None, "the server keeps the queue")
    server.send_signal(told)
    assert server.wait(PATIENCE_SECONDS) == 0
    assert [services.stores.leases.holder(name, services.clock()) for name in ("keeper", "tick")] == [None, None]


def test_a_wrong_token_ends_an_optimizer_with_a_clear_error(tmp_path: Path, processes: Processes, services: OpenedServices) -> None:
    processes.serve()
    (tmp_path / "wrong.token").write_text("not.a-token\n")
    ended = subprocess.run(
        [COMMAND, "optimizer", "--server", processes.url, "--json", "--token-file", str(tmp_path / "wrong.token")],
        env={**os.environ, "COMPACTION_HOME": str(processes.home), "COMPACTION_MERGE_ENGINE": "in-process"},
        capture_output=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )
    assert ended.returncode == 2
    answer = json.loads(ended.stdout)
    assert answer["reason_code"] == "INVALID_INPUT"
    assert "does not accept the token" in answer["error"]
