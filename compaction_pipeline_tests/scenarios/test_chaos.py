"""Chaos: servers and optimizers are killed again and again while tables are written, and the state database restarts once.

After that everything becomes quiet. Then every row is as the writers left it, every task is committed or has a reason, nothing was
committed twice, and nothing of dead attempts is left. The tables' catalog is on the same PostgreSQL, so its restart cuts off commits too.

COMPACTION_TEST_CHAOS_SECONDS says how long the kills go on (30 by default), and COMPACTION_TEST_CHAOS_ENGINE where tasks are merged
(`in-process` by default, or `spark`). COMPACTION_SEED repeats the choices of a run, but not the moments at which they meet.
"""

from __future__ import annotations

import logging
import os
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from functools import partial
from pathlib import Path
from random import Random

import pytest

from compaction_pipeline.core.commit.record import RECORD_ID_PROPERTY, RecordStatus
from compaction_pipeline.core.errors import StorageUnavailable
from compaction_pipeline.core.queue.task import TaskStatus
from compaction_pipeline.core.tables.table import CatalogEntry
from compaction_pipeline.settings import Settings
from compaction_pipeline_tests.iceberg.lake import Lake
from compaction_pipeline_tests.opened import OpenedServices
from compaction_pipeline_tests.ports import free_port
from compaction_pipeline_tests.postgres import PrivateServer, new_database, private_server
from compaction_pipeline_tests.reference_reader import bag_difference, local_path, metadata_of, reference_rows
from compaction_pipeline_tests.scenarios.deployed import Processes, wait_until
from compaction_pipeline_tests.scenarios.modelled_table import reachable_files
from compaction_pipeline_tests.scenarios.soundness import faults
from compaction_pipeline_tests.scenarios.written_through import WrittenThrough
from compaction_pipeline_tests.services.serving import serving

pytestmark = pytest.mark.scenario
log = logging.getLogger(__name__)

SECONDS = float(os.environ.get("COMPACTION_TEST_CHAOS_SECONDS", "30"))
ENGINE = os.environ.get("COMPACTION_TEST_CHAOS_ENGINE", "in-process")
SEED = int(os.environ.get("COMPACTION_SEED", "0")) or Random().randrange(1, 10**6)
TABLES, PARTITIONS = 4, 50
LEAST_COMMITTED = 50 if SECONDS >= 120 else 1
"""The kills go on until so many tasks were committed under them. They become rarer then, so a slow machine only needs more time."""
MOST_SECONDS = 10 * SECONDS + 300
BETWEEN_KILLS = (2.0, 6.0) if ENGINE == "in-process" else (8.0, 20.0)
SECONDS_AWAY = 5.0
"""PostgreSQL is away for so long."""
COMPARED_COMMITS = 5
PROPERTIES = {
    "self-optimizing.min-plan-interval": "0",
    "self-optimizing.commit.interval": "0",
    "self-optimizing.minor.trigger.file-count": "3",
    "self-optimizing.fragment-ratio": "2",
}


class Supervised:
    """A process that is started again whenever it has ended, as a supervisor does. `ends` are its exit codes."""

    def __init__(self, start: Callable[[], subprocess.Popen[bytes]]) -> None:
        self._start = start
        self._process = start()
        self.ends: list[int] = []

    def kill(self) -> None:
        self._process.kill()

    def keep(self) -> None:
        """Start the process again when it has ended."""
        code = self._process.poll()
        if code is not None:
            self.ends.append(code)
            self._process = self._start()

    def end(self) -> int:
        """Tell the process to end, and return its exit code."""
        self._process.terminate()
        return self._process.wait(120)


class Deployment:
    """Two servers and three optimizers on one PostgreSQL."""

    def __init__(self, folder: Path, state_url: str) -> None:
        self.settings = Settings(home=folder / "home", state_url=state_url, merge_engine="in-process")
        self.processes = Processes(folder / "home", COMPACTION_STATE_URL=state_url, COMPACTION_RETRY_INTERVAL_SECONDS="5")
        self.supervised: list[Supervised] = []
        self._other_port = free_port()

    def start(self) -> None:
        processes = self.processes
        # The first server writes the tokens, so the others start after it.
        for port in (processes.port, self._other_port):
            self.supervised.append(Supervised(partial(processes.start, "serve", "--port", str(port))))
            wait_until(processes.ready, "the first server is ready")
        for number in range(3):
            url = f"http://127.0.0.1:{(processes.port, self._other_port)[number % 2]}"
            self.supervised.append(Supervised(partial(processes.start, "optimizer", "--server", url, COMPACTION_MERGE_ENGINE=ENGINE)))
        wait_until(lambda: self.keep() is None and len(processes.live()) == 3, "three optimizers")

    def kill_at_random(self, rng: Random, until: Callable[[], bool], slower: float = 1.0) -> int:
        """Kill processes until `until()` is true, and return how many. Each pause is `slower` times longer than the one before."""
        kills, pause = 0, 1.0
        next_kill = time.monotonic()
        while not until():
            if time.monotonic() >= next_kill:
                rng.choice(self.supervised).kill()
                kills += 1
                pause *= slower
                next_kill = time.monotonic() + pause * rng.uniform(*BETWEEN_KILLS)
            time.sleep(0.2)
            self.keep()
        return kills

    def keep(self) -> None:
        for each in self.supervised:
            each.keep()

    def end(self) -> None:
        # The optimizers end first, so that they can give back what they hold.
        assert [each.end() for each in reversed(self.supervised)] == [0] * len(self.supervised)


@pytest.fixture
def postgres() -> Iterator[PrivateServer]:
    with private_server() as server:
        yield server


@pytest.fixture
def deployment(tmp_path: Path, postgres: PrivateServer) -> Iterator[Deployment]:
    with new_database(postgres.url) as state_url:
        made = Deployment(tmp_path, state_url)
        yield made
        made.processes.kill_all()


@pytest.fixture
def services(deployment: Deployment) -> Iterator[OpenedServices]:
    """The test's own look at the state database. Its clean-up waits for nothing."""
    opened = OpenedServices(deployment.settings, late=timedelta(0))
    yield opened
    opened.close()


@pytest.fixture
def lake(tmp_path: Path, postgres: PrivateServer, services: OpenedServices) -> Iterator[Lake]:
    with new_database(postgres.url) as url:
        properties = {"type": "sql", "uri": url, "warehouse": f"file://{tmp_path}/wh", "init_catalog_tables": "true"}
        made = Lake(tmp_path, properties=properties)
        services.stores.catalogs.add(CatalogEntry("lake", made.properties))
        yield made


@contextmanager
def writing(tables: list[WrittenThrough], seed: int) -> Iterator[None]:
    """Write to the tables in turn, in a thread, until the block ends. Raises what the writer raised."""
    stopped, raised = threading.Event(), []

    def write() -> None:
        rng = Random(seed)
        try:
            while not stopped.is_set():
                rng.choice(tables).write(rng)
                stopped.wait(0.1)
        except BaseException as error:
            raised.append(error)

    thread = threading.Thread(target=write)
    thread.start()
    try:
        yield
    finally:
        stopped.set()
        thread.join()
    if raised:
        raise raised[0]


@pytest.mark.timeout(MOST_SECONDS + 900)
def test_whatever_is_killed_every_row_stays_and_all_work_is_done_once(
    postgres: PrivateServer, deployment: Deployment, services: OpenedServices, lake: Lake
) -> None:
    rng, begun = Random(SEED), time.monotonic()
    log.info(f"COMPACTION_SEED={SEED}")
    ends_by = begun + MOST_SECONDS
    tables = [WrittenThrough(lake, f"t{number}", PARTITIONS, PROPERTIES, lambda: time.monotonic() > ends_by) for number in range(TABLES)]
    for table in tables:
        table.fill(3)
    deployment.start()
    before, kills, during = committed(services), 0, 0
    with writing(tables, SEED):
        kills += deployment.kill_at_random(rng, after(SECONDS / 2))
        postgres.stop()
        kills += deployment.kill_at_random(rng, after(SECONDS_AWAY))
        postgres.start()
        kills += deployment.kill_at_random(rng, after(SECONDS / 2))
        in_time = committed(services) - before

        def enough() -> bool:
            nonlocal during
            during = committed(services) - before
            return during >= LEAST_COMMITTED or time.monotonic() > ends_by

        kills += deployment.kill_at_random(rng, enough, slower=1.3)
    log.info(f"{kills} kills; {in_time} tasks committed in {SECONDS:g} s, {during} until the last kill; {described(tables, deployment)}")
    assert during >= LEAST_COMMITTED
    quiet_since = time.monotonic()
    wait_until(lambda: deployment.keep() is None and is_idle(services, tables), "all work is done", 600)
    log.info(f"quiet after {time.monotonic() - quiet_since:.0f} s")
    deployment.end()
    # A plan of the last second may not have been worked off any more. A drain leaves it to killed optimizers while these seem to live.
    wait_until(partial(works_off, services), "the last tasks have ended")
    check_tasks(services)
    for table in tables:
        check_rows(table)
        check_records(services, table)
    check_nothing_left(services, tables)


def after(seconds: float) -> Callable[[], bool]:
    """Whether so many seconds have passed since this call."""
    until = time.monotonic() + seconds
    return lambda: time.monotonic() >= until


def works_off(services: OpenedServices) -> bool:
    """Merge and commit what waits. Return whether nothing is left."""
    services.compact_tables.carry_out({}, serving(until=lambda: False, linger=timedelta(0)))
    return services.read_tasks.queue_counts().open == 0


def committed(services: OpenedServices) -> int:
    """How many tasks are committed. The state database may be cut off just now."""
    while True:
        with suppress(StorageUnavailable):
            return services.read_tasks.queue_counts().committed


def described(tables: list[WrittenThrough], deployment: Deployment) -> str:
    commits, cut_off, overtaken = (sum(getattr(table, name) for table in tables) for name in ("commits", "cut_off", "overtaken"))
    ends = Counter(code for each in deployment.supervised for code in each.ends)
    return f"{commits} commits of writers, {cut_off} cut off, {overtaken} overtaken; exit codes {dict(ends)}"


def is_idle(services: OpenedServices, tables: list[WrittenThrough]) -> bool:
    """Whether nothing waits, and the newest snapshot of every table was read."""
    counts = services.read_tasks.queue_counts()
    if counts.open or services.stores.records.records(unsettled=True):
        return False
    seen = services.stores.tables.seen()
    return all(seen.get(table.identifier) == table.reload().metadata_location for table in tables)


def check_tasks(services: OpenedServices) -> None:
    """Check that every task has ended, that those that were not committed say why, and that no attempt is open."""
    tasks = services.stores.tasks.tasks()
    log.info(f"tasks: {dict(Counter(f'{task.status.value} {task.end_reason.value if task.end_reason else None}' for task in tasks))}")
    ended = {TaskStatus.COMMITTED, TaskStatus.CANCELED, TaskStatus.FAILED}
    assert [task.task_id for task in tasks if task.status not in ended or not task.is_final] == []
    assert [task.task_id for task in tasks if task.status is not TaskStatus.COMMITTED and not task.reason] == []
    attempts = [attempt for task in tasks for attempt in services.stores.tasks.attempts(task.task_id)]
    log.info(f"attempts: {dict(Counter(attempt.end_reason.value for attempt in attempts if attempt.end_reason))}")
    assert [attempt.attempt_id for attempt in attempts if attempt.ended_at is None] == []


def check_rows(table: WrittenThrough) -> None:
    """Check that each row is there once, at the head, and that our commits changed no row."""
    loaded = table.reload()
    assert bag_difference(reference_rows(loaded), table.truth.values()) == ""
    assert faults(loaded) == []
    assert [path for path in reachable_files(metadata_of(loaded)) if not Path(local_path(path)).exists()] == []
    replaced = [one for one in loaded.metadata.snapshots if one.summary and one.summary.operation.value == "replace"]
    for snapshot in replaced[-COMPARED_COMMITS:]:
        before, after = (reference_rows(loaded, one) for one in (snapshot.parent_snapshot_id, snapshot.snapshot_id))
        assert bag_difference(after, before) == "", f"snapshot {snapshot.snapshot_id}"


def check_records(services: OpenedServices, table: WrittenThrough) -> None:
    """Check that each record is in the table once, and that each committed task is in one record."""
    records = services.stores.records.records(table.identifier)
    assert {record.status for record in records} <= {RecordStatus.COMMITTED, RecordStatus.FAILED}
    in_table: dict[str, list[str]] = {}
    for snapshot in table.reload().metadata.snapshots:
        record_id = snapshot.summary.additional_properties.get(RECORD_ID_PROPERTY) if snapshot.summary else None
        if record_id is not None:
            in_table.setdefault(record_id, []).append(snapshot.summary.operation.value)
    assert all(operations in (["replace"], ["overwrite"], ["replace", "overwrite"]) for operations in in_table.values()), in_table
    landed = {record.record_id: record for record in records if record.status is RecordStatus.COMMITTED}
    assert set(in_table) == set(landed)
    tasks = Counter(task_id for record in landed.values() for task_id in record.committed_task_ids)
    assert [task_id for task_id, times in tasks.items() if times > 1] == []
    stored = services.stores.tasks.tasks(table.identifier, statuses=(TaskStatus.COMMITTED,))
    assert {task.task_id for task in stored} == set(tasks)


def check_nothing_left(services: OpenedServices, tables: list[WrittenThrough]) -> None:
    """Check that a clean-up leaves no file of an attempt or a commit that no snapshot names."""
    ours = [task.task_id for task in services.stores.tasks.tasks()] + [record.record_id for record in services.stores.records.records()]
    removed = services.maintain_tables.maintain()
    assert removed.skipped == {}
    log.info(f"{removed.files_removed} leftovers removed")
    for table in tables:
        loaded = table.reload()
        named = {local_path(path) for path in reachable_files(metadata_of(loaded))}
        files = [path for path in Path(local_path(loaded.metadata.location)).rglob("*") if path.is_file() and str(path) not in named]
        assert [path.name for path in files if any(one in path.name for one in ours)] == []
