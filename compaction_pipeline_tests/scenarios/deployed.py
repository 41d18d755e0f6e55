"""A server and optimizers as real processes on one state database, and a table that they compact."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import requests

from compaction_pipeline.core.commit.record import RecordStatus
from compaction_pipeline.core.tables.table import CatalogEntry
from compaction_pipeline_tests.iceberg.lake import Lake, LakeTable
from compaction_pipeline_tests.opened import OpenedServices
from compaction_pipeline_tests.ports import free_port

PATIENCE_SECONDS = 200
COMMAND = str(Path(sys.executable).with_name("compaction-pipeline"))


class Processes:
    """The processes of a deployment on one state database. All of them are killed at the end."""

    def __init__(self, home: Path, **settings: str) -> None:
        """`settings` are variables of every process's environment."""
        self.home = home
        self._settings = settings
        self._started: list[subprocess.Popen[bytes]] = []
        self._logs: dict[int, Path] = {}
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"

    def start(self, *arguments: str, **settings: str) -> subprocess.Popen[bytes]:
        """Start a command. `settings` are variables of its environment; without them it merges in its own process."""
        own = {"COMPACTION_HOME": str(self.home), "COMPACTION_MERGE_ENGINE": "in-process", **self._settings, **settings}
        log = self.home.parent / f"{arguments[0]}-{len(self._started)}.log"
        with log.open("wb") as output:
            process = subprocess.Popen([COMMAND, *arguments], env={**os.environ, **own}, stdout=output, stderr=subprocess.STDOUT)
        self._started.append(process)
        self._logs[process.pid] = log
        return process

    def end(self, process: subprocess.Popen[bytes]) -> None:
        """Tell a process to end, as a supervisor does, and see that it ends in order."""
        process.send_signal(signal.SIGTERM)
        code = process.wait(PATIENCE_SECONDS)
        assert code == 0, f"it ended with {code}:\n{self._logs[process.pid].read_text(errors='replace')[-20_000:]}"

    def serve(self, **settings: str) -> subprocess.Popen[bytes]:
        server = self.start("serve", "--port", str(self.port), **settings)

        def ready() -> bool:
            assert server.poll() is None, "the server has ended; see its log"
            return self.ready()

        wait_until(ready, "the server is ready")
        return server

    def optimizer(self, *options: str, **settings: str) -> subprocess.Popen[bytes]:
        return self.start("optimizer", "--server", self.url, *options, **settings)

    def ready(self) -> bool:
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


def wait_until(done: Callable[[], bool], what: str, seconds: float = PATIENCE_SECONDS) -> None:
    """Look again and again, because other processes do the work. The limit only ends a test that hangs."""
    until = time.monotonic() + seconds
    while not done():
        assert time.monotonic() < until, f"not within {seconds:g} s: {what}"
        time.sleep(0.2)


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
