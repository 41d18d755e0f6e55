"""Measures the queue: how fast many workers take and report tasks, from the store alone and over HTTP, and how that grows with the queue.

    python benchmarks/scheduling.py --tasks 5000 --seconds 3                # a first look
    python benchmarks/scheduling.py                                         # the sizes that the goals are about

The tasks belong to real tables, but no file is merged: a worker reports the outputs that a merge would have. Each database has four parts:

- growth: one worker takes tasks one by one in each order of queues, with 1,000 tasks and with all tasks in the queue;
- store: 20 workers take up to 16 tasks at once, and report each. On PostgreSQL they are two processes, as two servers are; SQLite has one;
- http: 20 optimizers do the same at one `serve`;
- waiting: 200 polls wait at that server, while other optimizers send heartbeats.

PostgreSQL and SQLite write each transaction to the disk before they answer. Goals: the medians grow at most 1.5 times; 500 tasks a second
on PostgreSQL and 300 on SQLite, 100 over HTTP; 99 of 100 heartbeats take less than 1 s. The last line is `ratio <the worst growth>`.
"""

from __future__ import annotations

import argparse
import os
import socket
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from datetime import datetime, timedelta, timezone
from itertools import count
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import requests
from measure import cpu_seconds, load_average, positive
from opened_services import OpenedServices
from pydantic import TypeAdapter
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.types import LongType, NestedField
from real_services import lasting_postgres

from compaction_pipeline.core.ids import TaskId
from compaction_pipeline.core.queue.assignment import Assignment
from compaction_pipeline.core.queue.group import CompactionQueue, QueueOrder, ResourceGroup
from compaction_pipeline.core.queue.merge_version import MERGE_VERSION
from compaction_pipeline.core.queue.task import CompactionTask
from compaction_pipeline.core.tables.data_file import FileContent, LiveFile, OutputFile
from compaction_pipeline.core.tables.node import TableNode
from compaction_pipeline.core.tables.table import CatalogEntry, TableIdentifier, data_folder
from compaction_pipeline.core.work.ends import EndReason
from compaction_pipeline.core.work.kinds import CompactionType
from compaction_pipeline.core.work.result import Digest, MergeResult
from compaction_pipeline.core.work.work import Merge
from compaction_pipeline.demo.processes import Processes, stop_on_signals
from compaction_pipeline.iceberg.catalogs import SqlCatalog
from compaction_pipeline.settings import Settings
from compaction_pipeline.storage.stores import open_stores

CATALOG = "queue"
FEW_TASKS = 1_000
POLLS = 200
"""So many polls are measured one by one."""
SLOTS = 16
WAITING = 200
FILE_BYTES, TASK_ROWS = 1_000_000, 1_000
LEASE = timedelta(minutes=10)
PATIENCE_SECONDS = 300
_ASSIGNMENTS: TypeAdapter[Sequence[Assignment]] = TypeAdapter(Sequence[Assignment])
_RESULT: TypeAdapter[MergeResult] = TypeAdapter(MergeResult)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", type=positive, default=100_000, help="tasks in the full queue")
    parser.add_argument("--tables", type=positive, default=50)
    parser.add_argument("--workers", type=positive, default=20)
    parser.add_argument("--seconds", type=positive, default=20, help="how long the workers work in each part")
    parser.add_argument("--databases", nargs="+", choices=("sqlite", "postgresql"), default=["sqlite", "postgresql"])
    arguments = parser.parse_args()
    stop_on_signals()
    with tempfile.TemporaryDirectory(prefix="scheduling-benchmark-") as folder:
        worst = max(_measured(database, Path(folder) / database, arguments) for database in arguments.databases)
    print(f"ratio {worst:.2f}")


def _measured(database: str, home: Path, arguments: argparse.Namespace) -> float:
    """Measure all parts with one database, and return the worst growth."""
    home.mkdir()
    with ExitStack() as stack:
        url = f"sqlite:///{home / 'state.db'}" if database == "sqlite" else stack.enter_context(lasting_postgres())
        services = OpenedServices(Settings(home=home, state_url=url))
        stack.callback(services.close)
        queue = _Queue(services, _tables(services, home, arguments.tables))
        queue.fill(FEW_TASKS)
        few = {order: queue.median_poll(order) for order in QueueOrder}
        started = time.monotonic()
        queue.fill(arguments.tasks)
        print(
            f"{database}: {arguments.tasks:,} tasks of {arguments.tables} tables inserted in {time.monotonic() - started:.0f} s", flush=True
        )
        growths = []
        for order in QueueOrder:
            many = queue.median_poll(order)
            growths.append(many / few[order])
            print(
                f"  growth  {order.value:8} {few[order] * 1000:5.2f} ms a poll with {FEW_TASKS:,} tasks, {many * 1000:5.2f} ms with "
                f"{arguments.tasks:,}: {growths[-1]:.2f} times; {load_average()}",
                flush=True,
            )
        processes = 1 if database == "sqlite" else 2
        _show("store", *_at_the_store(url, queue.folders, processes, arguments.workers, arguments.seconds))
        with Processes() as started_processes:
            server = _Server(started_processes, home, url)
            _show("http", *_over_http(server, queue.folders, arguments.workers, arguments.seconds))
            _waiting(server, arguments.seconds)
    return max(growths)


def _show(part: str, tasks: int, seconds: float, cpu: float) -> None:
    print(f"  {part:7} {tasks / seconds:6.0f} tasks a second, {cpu / tasks * 1000:.2f} CPU-ms a task; {load_average()}", flush=True)


def _tables(services: OpenedServices, home: Path, tables: int) -> dict[TableIdentifier, Table]:
    """Make empty tables, and let the services read them."""
    properties = {"type": "sql", "uri": f"sqlite:///{home / 'catalog.db'}", "warehouse": (home / "warehouse").as_uri()}
    catalog = SqlCatalog(CATALOG, **{key: value for key, value in properties.items() if key != "type"})
    catalog.create_namespace("db")
    services.explore_catalogs.register(CatalogEntry(CATALOG, properties))
    made = {}
    for number in range(tables):
        name = f"t{number:03}"
        table = TableIdentifier(CATALOG, ("db",), name)
        made[table] = catalog.create_table(("db", name), Schema(NestedField(1, "id", LongType(), required=False)))
        services.refresh_files.refresh(table)
    return made


class _Queue:
    """The queue of one database, with tasks of all tables in turns."""

    def __init__(self, services: OpenedServices, tables: dict[TableIdentifier, Table]) -> None:
        self._stores = services.stores
        self._uuids = {table: str(loaded.metadata.table_uuid) for table, loaded in tables.items()}
        services.stores.groups.add(ResourceGroup("idle"))
        self._numbers = count()
        self.folders = {str(table): data_folder(loaded.location(), loaded.properties) for table, loaded in tables.items()}

    def fill(self, tasks: int) -> None:
        """Insert tasks until so many are Pending."""
        missing = tasks - sum(work.pending for work in self._stores.queues.works(_now()).values())
        each = -(-missing // len(self._uuids))
        for table, uuid in self._uuids.items():
            planned = [self._task(table, uuid) for _ in range(each)]
            if not self._stores.tasks.insert(planned, [], _now()):
                raise SystemExit(f"the tasks of {table} were not inserted")

    def _task(self, table: TableIdentifier, uuid: str) -> CompactionTask:
        number = next(self._numbers)
        folder = self.folders[str(table)]
        files = tuple(
            LiveFile(f"{folder}/{number}-{each}.parquet", FileContent.DATA, 0, (), FILE_BYTES, TASK_ROWS // 4, 1) for each in range(4)
        )
        work = Merge(
            node=TableNode(0, ()),
            type=CompactionType.MINOR,
            inputs=files,
            deletes=(),
            output_spec_id=0,
            target_size_bytes=128 << 20,
            fragment_size_bytes=16 << 20,
        )
        now = _now()
        task_id = TaskId(f"task-{number:08}")
        return CompactionTask(task_id, "plan", table, uuid, 1, 1, 0, "default", number % 3, 4, 1 << 30, now, work, waiting_since=now)

    def median_poll(self, order: QueueOrder) -> float:
        """The median seconds of a poll of one task. The tasks are handed back, so that the queue stays as full."""
        self._stores.groups.change(ResourceGroup("default", queue=CompactionQueue(order=order)))
        turns = sorted(self._uuids, key=str) if order is QueueOrder.QUOTA else ()
        seconds = []
        for _ in range(POLLS):
            started = time.perf_counter()
            task = self._stores.tasks.poll("default", "one", _now(), LEASE, None, turns)
            seconds.append(time.perf_counter() - started)
            if task is None:
                raise SystemExit("the queue is empty")
            back = MergeResult(task.task_id, task.current_attempt_id, end_reason=EndReason.INTERRUPTED, error="handed back")
            self._stores.tasks.complete(back, _now())
        return statistics.median(seconds)


def _merged(task: CompactionTask, folder: str) -> MergeResult:
    """The report of a merge that deleted no row."""
    output = OutputFile(f"{folder}/{task.task_id}-{task.attempt_id}.parquet", FileContent.DATA, 0, (), 4 * FILE_BYTES, TASK_ROWS)
    digest = Digest(TASK_ROWS, 1, 2)
    return MergeResult(task.task_id, task.current_attempt_id, (output,), TASK_ROWS, 0, 0, TASK_ROWS, digest, digest)


def _now() -> datetime:
    return datetime.now(timezone.utc)


def _at_the_store(url: str, folders: dict[str, str], processes: int, workers: int, seconds: int) -> tuple[int, float, float]:
    """Let workers take and report tasks. Return how many tasks they reported, in how many seconds, and the CPU seconds of the workers."""
    answers: Any = get_context("spawn").Queue()
    start = get_context("spawn").Barrier(processes)
    arguments = (url, folders, workers // processes, seconds, start, answers)
    started = [get_context("spawn").Process(target=_work_at_the_store, args=arguments) for _ in range(processes)]
    for process in started:
        process.start()
    parts = [answers.get(timeout=seconds + PATIENCE_SECONDS) for _ in started]
    for process in started:
        process.join()
    return sum(tasks for tasks, _, _ in parts), max(took for _, took, _ in parts), sum(cpu for _, _, cpu in parts)


def _work_at_the_store(url: str, folders: dict[str, str], threads: int, seconds: int, start: Any, answers: Any) -> None:
    stores = open_stores(url)

    def work(owner: str) -> int:
        done = 0
        while time.monotonic() < deadline:
            tasks = stores.tasks.poll_many("default", owner, _now(), LEASE, SLOTS)
            if not tasks:
                raise SystemExit("the queue is empty: give the benchmark more tasks or fewer seconds")
            for task in tasks:
                stores.tasks.complete(_merged(task, folders[str(task.table)]), _now())
            done += len(tasks)
        return done

    start.wait(PATIENCE_SECONDS)
    began, cpu = time.monotonic(), time.process_time()
    deadline = began + seconds
    with ThreadPoolExecutor(threads) as pool:
        done = sum(pool.map(work, [f"{os.getpid()}-{number}" for number in range(threads)]))
    answers.put((done, time.monotonic() - began, time.process_time() - cpu))


class _Server:
    """A `serve` of its own, and its clients."""

    def __init__(self, processes: Processes, home: Path, url: str) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self.url = f"http://127.0.0.1:{port}"
        environment = {**os.environ, "COMPACTION_HOME": str(home), "COMPACTION_STATE_URL": url}
        command = str(Path(sys.executable).with_name("compaction-pipeline"))
        # Without its ticks the server plans and commits nothing by itself.
        self._process = processes.start("server", [command, "serve", "--port", str(port), "--no-ticks"], environment, home, home / "log")
        self._token = home / "optimizer.token"
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not self._answers():
            processes.check()
            if time.monotonic() > deadline:
                raise SystemExit(f"the server did not answer within {PATIENCE_SECONDS} s")
            time.sleep(0.2)

    def _answers(self) -> bool:
        try:
            return self._token.exists() and requests.get(f"{self.url}/health/ready", timeout=5).ok
        except requests.RequestException:
            return False

    @property
    def cpu_seconds(self) -> float:
        return cpu_seconds(self._process.pid)

    def client(self, name: str, group: str = "default") -> _Client:
        """A registered optimizer."""
        itself = {"group": group, "host": "here", "process": name, "version": "benchmark"}
        client = _Client(self.url, self._token.read_text().strip())
        return client.registered(client.post("/optimizers", {**itself, "merge_version": MERGE_VERSION, "parallelism": SLOTS}))


class _Client:
    """What an optimizer asks its server."""

    def __init__(self, url: str, token: str, optimizer_id: str = "") -> None:
        self._url, self._id = url, optimizer_id
        self._session = requests.Session()
        self._session.headers["Authorization"] = f"Bearer {token}"

    def registered(self, answer: requests.Response) -> _Client:
        return _Client(self._url, answer.json()["token"], answer.json()["optimizer_id"])

    def post(self, path: str, body: Any) -> requests.Response:
        answer = self._session.post(f"{self._url}/api/v1{path}", json=body, timeout=60)
        if not answer.ok:
            raise SystemExit(f"the server answered {answer.status_code} to {path}: {answer.text}")
        return answer

    def poll(self, poll_id: str, wait: float = 0) -> Sequence[Assignment]:
        body = {"poll_id": poll_id, "free_slots": SLOTS, "wait_seconds": wait}
        return _ASSIGNMENTS.validate_json(self.post(f"/optimizers/{self._id}/poll", body).content)

    def complete(self, result: MergeResult) -> None:
        self.post(f"/attempts/{result.attempt_id}/complete", _RESULT.dump_python(result, mode="json"))

    def touch(self) -> None:
        self.post(f"/optimizers/{self._id}/touch", {"running": []})


def _over_http(server: _Server, folders: dict[str, str], workers: int, seconds: int) -> tuple[int, float, float]:
    """Let optimizers take and report tasks. Return how many they reported, in how many seconds, and the CPU seconds of the server."""
    clients = [server.client(f"worker {number}") for number in range(workers)]

    def work(client: _Client) -> int:
        done = 0
        for number in count():
            if time.monotonic() > deadline:
                return done
            for assignment in client.poll(f"poll-{number}"):
                client.complete(_merged(assignment.task, folders[str(assignment.task.table)]))
                done += 1
        return done

    began, cpu = time.monotonic(), server.cpu_seconds
    deadline = began + seconds
    with ThreadPoolExecutor(workers) as pool:
        done = sum(pool.map(work, clients))
    return done, time.monotonic() - began, server.cpu_seconds - cpu


def _waiting(server: _Server, seconds: int) -> None:
    """Let many polls wait in an empty queue, and measure heartbeats meanwhile."""
    waiting = [server.client(f"waits {number}", "idle") for number in range(WAITING)]
    beating = [server.client(f"beats {number}", "idle") for number in range(4)]
    cpu = server.cpu_seconds
    deadline = time.monotonic() + seconds

    def beat(client: _Client) -> list[float]:
        took = []
        while time.monotonic() < deadline:
            started = time.monotonic()
            client.touch()
            took.append(time.monotonic() - started)
        return took

    with ThreadPoolExecutor(WAITING) as pool, ThreadPoolExecutor(len(beating)) as beats:
        polls = [pool.submit(client.poll, "once", min(30.0, seconds)) for client in waiting]
        took = sorted(each for answer in beats.map(beat, beating) for each in answer)
        if any(poll.result() for poll in polls):
            raise SystemExit("a poll of the empty queue got a task")
    median, late = took[len(took) // 2], took[int(len(took) * 0.99)]
    print(
        f"  waiting {WAITING} polls wait; {len(took)} heartbeats, median {median * 1000:.0f} ms, 99 of 100 within {late * 1000:.0f} ms; "
        f"{(server.cpu_seconds - cpu) / seconds:.2f} CPU-s a second; {load_average()}",
        flush=True,
    )


if __name__ == "__main__":
    main()
