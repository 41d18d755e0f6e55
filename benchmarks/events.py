"""Measures how soon a table is looked at after a commit of a writer that knows nothing of this program, when its catalog tells of commits.

    python benchmarks/events.py                            # 120 commits with events, and 20 whose events are lost
    python benchmarks/events.py --at-once 8 --others 0     # eight tables commit at a time, and nothing else is in the server's way
    python benchmarks/events.py --kafka                    # the events go through a broker of Kafka and `forward-events`

The catalog is Iceberg's own for REST, on an S3 (s3proxy). It tells nobody, so this script does: after each commit it sends what Lakekeeper
would send, by the SDK of CloudEvents, to a real `serve` with SQLite. A second catalog of many quiet tables keeps the sweeps of that server
busy. A table was *asked for* when the catalog got the first question for it after its commit, and *read* when the server has stored what it
read. Both count from the moment at which the writer's commit was done. Commits whose events are lost are found by the sweeps.

The last line is `ratio <the slowest look with an event / 2 s>`.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import requests
from cloudevents.core.bindings.http import to_structured_event
from cloudevents.core.bindings.kafka import to_binary_event
from cloudevents.core.v1.event import CloudEvent
from measure import load_average, positive
from opened_services import OpenedServices
from real_services import KafkaBroker, fault_proxy, kafka_broker, light_rest, rest_catalog_server, s3_server

from compaction_pipeline.core.tables.index import Complete
from compaction_pipeline.core.tables.table import CatalogEntry
from compaction_pipeline.demo.processes import Processes, stop_on_signals
from compaction_pipeline.iceberg.catalogs.rest_catalog import RequestLimits
from compaction_pipeline.settings import Settings
from compaction_pipeline_tests.iceberg.lake import Lake, LakeTable

GOAL_SECONDS = 2.0
PATIENCE_SECONDS = 300
_COMMAND = str(Path(sys.executable).with_name("compaction-pipeline"))
Tell = Callable[[CloudEvent], None]
"""Tells of a commit, as a catalog does."""
_TABLE = re.compile(r"/v1/namespaces/db/tables/(t\d+)(?:\?|$)")


@dataclass(frozen=True)
class Look:
    """What followed a commit, in seconds after it: the answer to its event, the question to the catalog, and the end of the read."""

    answered: float
    asked: float
    read: float


class Asked:
    """When the catalog was asked for each table, by the server alone: writers do not go through the proxy."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._times: list[tuple[str, float]] = []

    def __call__(self, method: str, path: str, headers: Mapping[str, str], body: bytes) -> None:
        found = _TABLE.search(path)
        if method == "GET" and found is not None:
            with self._lock:
                self._times.append((found[1], time.time()))

    def first(self, table: str, since: float) -> float | None:
        """When the table was asked for first after this moment."""
        with self._lock:
            return next((at for name, at in self._times if name == table and at >= since), None)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--commits", type=positive, default=120, help="commits that events tell of")
    parser.add_argument("--lost", type=int, default=20, help="commits whose events are lost")
    parser.add_argument("--tables", type=positive, default=40, help="tables that are written")
    parser.add_argument("--others", type=int, default=2_000, help="quiet tables of a second catalog")
    parser.add_argument("--at-once", type=positive, default=1, help="tables that commit at the same time")
    parser.add_argument("--kafka", action="store_true", help="send the events through Kafka")
    arguments = parser.parse_args()
    stop_on_signals()
    with tempfile.TemporaryDirectory(prefix="events-benchmark-") as name:
        slowest = _measured(Path(name), arguments)
    print(f"ratio {slowest / GOAL_SECONDS:.2f}")


def _measured(folder: Path, arguments: argparse.Namespace) -> float:
    home = _made(folder / "home")
    with (
        ExitStack() as stack,
        s3_server(folder) as s3,
        rest_catalog_server(folder, s3) as rest,
        fault_proxy(rest.port) as proxy,
        light_rest(20, max(1, arguments.others // 20)) as others,
        Processes() as processes,
    ):
        lake = Lake(folder, properties={**rest.properties(), **s3.properties()}, limits=RequestLimits(60, 60, 60))
        tables = [lake.table(f"t{number}") for number in range(arguments.tables)]
        for table in tables:
            table.ids(0)
        services = OpenedServices(Settings(home=home))
        services.stores.catalogs.add(CatalogEntry("lake", {**rest.properties(proxy.port), **s3.properties()}))
        if arguments.others:
            services.stores.catalogs.add(CatalogEntry("quiet", {"type": "rest", "uri": others.uri}))
        asked = Asked()
        proxy.gate = lambda *request: asked(*request)
        port, token = _server(processes, home)
        _wait_until_known(services, tables, arguments.others)
        if arguments.kafka:
            tell = _through_kafka(processes, stack.enter_context(kafka_broker(_made(folder / "kafka"))), folder, port, token)
        else:
            tell = _over_http(f"http://127.0.0.1:{port}/api/v1/catalogs/lake/events", token)
        told = _looks(services, tables, asked, arguments.commits, arguments.at_once, tell)
        _print("with events", told)
        if arguments.lost:
            _print("events lost", _looks(services, tables, asked, arguments.lost, arguments.at_once, None))
        services.close()
    return max(look.read for look in told)


def _server(processes: Processes, home: Path) -> tuple[int, str]:
    """Start `serve`, which also looks at tables. Return its port and a token for events."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    environment = {**os.environ, "COMPACTION_HOME": str(home)}
    processes.start("server", [_COMMAND, "serve", "--port", str(port)], environment, home, home / "log")
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not _is_ready(port):
        processes.check()
        if time.monotonic() > deadline:
            raise SystemExit(f"the server did not answer within {PATIENCE_SECONDS} s")
        time.sleep(0.2)
    command = [_COMMAND, "token", "add", "--role", "events", "--name", "benchmark", "--json"]
    made = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return port, str(json.loads(made.stdout)["token"])


def _is_ready(port: int) -> bool:
    try:
        return requests.get(f"http://127.0.0.1:{port}/health/ready", timeout=5).ok
    except requests.RequestException:
        return False


def _wait_until_known(services: OpenedServices, tables: Sequence[LakeTable], others: int) -> None:
    """Wait until the server has found and read all tables of both catalogs."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        known = [one for one in services.stores.tables.states() if one.whole is not None]
        if len(known) >= len(tables) + others // 20 * 20:
            return
        if time.monotonic() > deadline:
            raise SystemExit(f"only {len(known)} tables were read within {PATIENCE_SECONDS} s")
        time.sleep(1)


def _over_http(url: str, token: str) -> Tell:
    """A catalog that tells of its commits over one connection."""
    session = requests.Session()
    session.headers["Authorization"] = f"Bearer {token}"

    def tell(event: CloudEvent) -> None:
        message = to_structured_event(event)
        answer = session.post(url, data=message.body, headers=dict(message.headers), timeout=30)
        if not answer.ok:
            raise SystemExit(f"the event was answered {answer.status_code}: {answer.text}")

    return tell


def _through_kafka(processes: Processes, broker: KafkaBroker, folder: Path, port: int, token: str) -> Tell:
    """A catalog that tells Kafka of its commits, and a process that forwards them to the server."""
    (folder / "events.token").write_text(token)
    properties = {**broker.properties, "auto.offset.reset": "earliest"}
    (folder / "kafka.conf").write_text("".join(f"{key}={value}\n" for key, value in properties.items()))
    command = [_COMMAND, "forward-events", "lake", "--server", f"http://127.0.0.1:{port}", "--topic", "events"]
    command += ["--kafka", str(folder / "kafka.conf"), "--token-file", str(folder / "events.token")]
    processes.start("forwarder", command, dict(os.environ), folder, folder / "forwarder.log")

    def tell(event: CloudEvent) -> None:
        message = to_binary_event(event)
        broker.write("events", message.value, dict(message.headers))

    # The group of the forwarder is made, and the topic is found, before anything is measured.
    tell(_event("nowhere", 1, 1))
    time.sleep(15)
    return tell


def _made(folder: Path) -> Path:
    folder.mkdir()
    return folder


def _event(table: str, snapshot_id: int, number: int) -> CloudEvent:
    """The event of a commit as Lakekeeper makes it, without the dashes in names of attributes, which the SDK refuses."""
    snapshot = {"snapshot-id": snapshot_id, "sequence-number": number, "summary": {"operation": "append", "added-data-files": "1"}}
    attributes = {
        "id": str(uuid.uuid4()),
        "type": "updateTable",
        "source": "uri:iceberg-catalog-service:here",
        "specversion": "1.0",
        "datacontenttype": "application/json",
        "tabulartype": "table",
        "tabularid": str(uuid.uuid4()),
        "warehouseid": str(uuid.uuid4()),
        "name": table,
        "namespace": "db",
    }
    return CloudEvent(attributes, {"requirements": [], "updates": [{"action": "add-snapshot", "snapshot": snapshot}]})


def _looks(
    services: OpenedServices, tables: Sequence[LakeTable], asked: Asked, commits: int, at_once: int, tell: Tell | None
) -> list[Look]:
    found: list[Look] = []
    while len(found) < commits:
        # A writer commits at any moment of the server's rounds.
        time.sleep(random.uniform(0, 5 if tell is None else 2))
        written = random.sample(tables, at_once)
        ends: list[tuple[LakeTable, Any, float, float]] = []
        for table in written:
            table.ids(random.randrange(10**9))
            snapshot = table.table.refresh().current_snapshot()
            assert snapshot is not None
            at = time.time()
            if tell is not None:
                tell(_event(table.identifier.name, snapshot.snapshot_id, snapshot.sequence_number or 0))
            ends.append((table, snapshot.snapshot_id, at, time.time() - at))
        for table, snapshot_id, at, answered in ends:
            read = _read(services, table, snapshot_id)
            first = asked.first(table.identifier.name, at)
            assert first is not None
            found.append(Look(answered, first - at, read - at))
    return found


def _read(services: OpenedServices, table: LakeTable, snapshot_id: int) -> float:
    """When the server has read this snapshot, by its own clock, which is that of this machine."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < deadline:
        state = services.stores.tables.state(table.identifier).index.state
        if isinstance(state, Complete) and state.snapshot_id == snapshot_id:
            return state.read_at.timestamp()
        time.sleep(0.1)
    raise SystemExit(f"table {table.identifier} was not read within {PATIENCE_SECONDS} s")


def _print(what: str, looks: Sequence[Look]) -> None:
    def spread(values: Sequence[float]) -> str:
        ordered = sorted(values)
        return f"p50 {statistics.median(ordered):.2f}, p99 {ordered[int(len(ordered) * 0.99)]:.2f}, slowest {ordered[-1]:.2f} s"

    late = sum(look.read > GOAL_SECONDS for look in looks)
    print(
        f"{what}: {len(looks)} commits; event answered {spread([look.answered for look in looks])}; table asked for "
        f"{spread([look.asked for look in looks])}; table read {spread([look.read for look in looks])}; {late} after more than "
        f"{GOAL_SECONDS:g} s; {load_average()}",
        flush=True,
    )


if __name__ == "__main__":
    main()
