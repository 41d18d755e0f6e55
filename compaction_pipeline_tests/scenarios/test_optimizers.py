"""A server and optimizers as real processes, without Dagster. Writers go on, optimizers are killed, and every row stays."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest
import requests

from compaction_pipeline.core.commit.record import RecordStatus
from compaction_pipeline.core.queue.task import TaskStatus
from compaction_pipeline.core.tables.table import CatalogEntry
from compaction_pipeline.settings import Settings
from compaction_pipeline_tests.iceberg.lake import Lake, LakeTable
from compaction_pipeline_tests.opened import OpenedServices

pytestmark = pytest.mark.scenario

PATIENCE_SECONDS = 200
COMMAND = str(Path(sys.executable).with_name("compaction-pipeline"))


class Processes:
    """The processes of a deployment on one state database. All of them are killed at the end."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self._started: list[subprocess.Popen[bytes]] = []
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"

    def start(self, *arguments: str) -> subprocess.Popen[bytes]:
        environment = {**os.environ, "COMPACTION_HOME": str(self.home), "COMPACTION_MERGE_ENGINE": "in-process"}
        log = (self.home.parent / f"{arguments[0]}-{len(self._started)}.log").open("wb")
        process = subprocess.Popen([COMMAND, *arguments], env=environment, stdout=log, stderr=subprocess.STDOUT)
        self._started.append(process)
        return process

    def serve(self) -> subprocess.Popen[bytes]:
        server = self.start("serve", "--port", str(self.port))
        wait_until(lambda: self.ready(server), "the server is ready")
        return server

    def optimizer(self) -> subprocess.Popen[bytes]:
        return self.start("optimizer", "--server", self.url)

    def ready(self, server: subprocess.Popen[bytes]) -> bool:
        assert server.poll() is None, "the server has ended; see its log"
        try:
            return requests.get(f"{self.url}/health/ready", timeout=5).ok
        except requests.RequestException:
            return False

    def ask(self, path: str) -> Any:
        token = (self.home / "admin.token").read_text().strip()
        answer = requests.get(f"{self.url}{path}", headers={"Authorization": f"Bearer {token}"}, timeout=30)
        assert answer.ok, answer.text
        return answer.json()

    def live(self) -> list[str]:
        return [each["optimizer_id"] for each in self.ask("/api/v1/optimizers") if each["state"] == "RUNNING"]

    def kill_all(self) -> None:
        for process in self._started:
            process.kill()
            process.wait()


def wait_until(done: Callable[[], bool], what: str) -> None:
    """Look again and again, because other processes do the work. The limit only ends a test that hangs."""
    until = time.monotonic() + PATIENCE_SECONDS
    while not done():
        assert time.monotonic() < until, f"not within {PATIENCE_SECONDS} s: {what}"
        time.sleep(0.2)


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


def small_table(lake: Lake, services: OpenedServices) -> LakeTable:
    if not services.stores.catalogs.entries():
        services.stores.catalogs.add(CatalogEntry("lake", lake.properties))
    return lake.table("t", properties={"self-optimizing.min-plan-interval": "0", "self-optimizing.commit.interval": "0"})


def committed(services: OpenedServices) -> int:
    return sum(record.status is RecordStatus.COMMITTED for record in services.stores.records.records())


def write(table: LakeTable, rng: Random, truth: Counter[int], files: int) -> None:
    """Append small files, and delete some rows by equality."""
    for _ in range(files):
        ids = [rng.randrange(10**9) for _ in range(3)]
        table.ids(*ids)
        truth.update(ids)
    gone = rng.choice(sorted(truth))
    table.delete_ids(gone)
    del truth[gone]


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
