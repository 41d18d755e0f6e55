"""Events that catalogs write to a real broker of Kafka reach the service, each of them in the form in which its catalog writes it.

The records are built after the senders: Lakekeeper's `crates/lakekeeper-events-kafka` (binary mode, with dashes in names) at commit
90892e9cc1b515826fe07d2e2797a5620ec3e613, and Polaris's `KafkaEventListener` (its JSON alone, with a UUID as the key) at commit
4b42186383089e2083ba857a0211c4ab36965703.
"""

from __future__ import annotations

import json
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread
from typing import Any
from uuid import uuid4

import pytest
from cloudevents.core.bindings.kafka import KafkaMessage, to_binary_event, to_structured_event
from cloudevents.core.v1.event import CloudEvent

from compaction_pipeline.core.access.token import Role
from compaction_pipeline.reports import ReportError
from compaction_pipeline.reports.door import Door
from compaction_pipeline.reports.kafka import EventForwarder, consumer
from compaction_pipeline_tests.optimizer.serving import serving
from compaction_pipeline_tests.ports import free_port
from compaction_pipeline_tests.real_services.kafka import KafkaBroker, kafka_broker
from compaction_pipeline_tests.scenarios.deployed import COMMAND
from compaction_pipeline_tests.services.house import House

pytestmark = pytest.mark.interop

PATIENCE_SECONDS = 120


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaBroker]:
    with kafka_broker(tmp_path_factory.mktemp("kafka")) as running:
        yield running


@pytest.fixture
def house(tmp_path: Path) -> Iterator[House]:
    made = House(tmp_path)
    yield made
    made.services.close()


@pytest.fixture
def topic() -> str:
    return f"events-{uuid4().hex[:8]}"


def wait_until(done: Callable[[], bool], what: str) -> None:
    until = time.monotonic() + PATIENCE_SECONDS
    while not done():
        assert time.monotonic() < until, f"not within {PATIENCE_SECONDS} s: {what}"
        time.sleep(0.05)


def reported(house: House) -> set[str]:
    return {one.table.name for one in house.services.stores.reports.reported()}


class Forwarding:
    """A forwarder in a thread of its own. Its group has read nothing, so it begins with the oldest event."""

    def __init__(self, broker: KafkaBroker, topic: str, door: Door, group: str = "a") -> None:
        self.count: int | None = None
        self._over = Event()
        self._events = consumer([topic], {**broker.properties, "auto.offset.reset": "earliest"}, f"{topic}-{group}")
        self._forwarder = EventForwarder(door, "lake", self._events)
        self._thread = Thread(target=self._run, daemon=True)
        self._thread.start()

    def end(self) -> int:
        """End it in order, and return how many events it has forwarded."""
        self._over.set()
        self._thread.join(PATIENCE_SECONDS)
        assert self.count is not None
        return self.count

    def _run(self) -> None:
        try:
            self.count = self._forwarder.run(self._over.is_set)
        finally:
            self._events.close()


@contextmanager
def door_of(house: House) -> Iterator[Door]:
    with serving(house) as port:
        yield Door(f"http://127.0.0.1:{port}", house.services.keep_tokens.issue(Role.EVENTS, "kafka").text)


def lakekeepers(table: str, data: object = None) -> tuple[bytes, dict[str, str | bytes | None]]:
    """A record of Lakekeeper."""
    attributes = {
        "specversion": "1.0",
        "id": str(uuid4()),
        "type": "updateTable",
        "source": "uri:iceberg-catalog-service:host",
        "tabular-type": "table",
        "tabular-id": str(uuid4()),
        "warehouse-id": str(uuid4()),
        "name": table,
        "namespace": "db",
        "prefix": "",
        "num-events": "1",
        "sequence-number": "0",
        "trace-id": str(uuid4()),
        "actor": '{"type":"anonymous"}',
    }
    headers: dict[str, str | bytes | None] = {f"ce_{name}": text for name, text in attributes.items()}
    body = {"requirements": [], "updates": []} if data is None else data
    return json.dumps(body).encode(), {**headers, "content-type": "application/json"}


def polariss(table: str) -> tuple[bytes, dict[str, str | bytes | None]]:
    """A record of Polaris."""
    event = {"event_type": "AFTER_UPDATE_TABLE", "event_id": str(uuid4()), "table_name": table, "namespace": ["db"], "realm_id": "r"}
    return json.dumps(event).encode(), {}


def by_the_sdk(table: str, binding: Callable[[CloudEvent], KafkaMessage]) -> tuple[bytes, dict[str, str | bytes | None]]:
    """A record of the SDK of CloudEvents, whose names of attributes have no dashes."""
    attributes = {"id": "1", "source": "/lakekeeper", "type": "updateTable", "specversion": "1.0", "datacontenttype": "application/json"}
    message = binding(CloudEvent({**attributes, "tabulartype": "table", "name": table, "namespace": "db"}, {"updates": []}))
    return message.value, dict(message.headers)


RECORDS: dict[str, Callable[[str], Any]] = {
    "lakekeeper": lakekeepers,
    "polaris": polariss,
    "binary": lambda table: by_the_sdk(table, to_binary_event),
    "structured": lambda table: by_the_sdk(table, to_structured_event),
}


def test_each_form_of_an_event_has_its_table_looked_at(broker: KafkaBroker, house: House, topic: str) -> None:
    for number, record in enumerate(RECORDS.values()):
        house.fragmented(f"t{number}", files=2)
        broker.write(topic, *record(f"t{number}"))
    with door_of(house) as door:
        forwarding = Forwarding(broker, topic, door)
        wait_until(lambda: len(reported(house)) == len(RECORDS), "a report for each event")
        assert forwarding.end() == len(RECORDS)
    assert reported(house) == {"t0", "t1", "t2", "t3"}


def test_what_is_no_event_stops_none(broker: KafkaBroker, house: House, topic: str) -> None:
    """Nor does an event with a request of 2 MB, nor one of which even the name is too large for the service."""
    for name in ("t", "large"):
        house.fragmented(name, files=2)
    for value in (None, b"", b"{", b"[]", b"7", b"[" * 100_000, b'{"a": NaN}', b"\xff"):
        broker.write(topic, value)
    broker.write(topic, b'{"a": NaN}', {"ce_type": None, "content-type": b"\xff"})
    broker.write(topic, json.dumps({"event_type": "AFTER_UPDATE_TABLE", "table_name": "x" * 600_000, "namespace": ["db"]}).encode())
    large = lakekeepers("large", {"updates": [{"action": "set-properties", "updates": {"k": "x" * 900_000}}]})
    broker.write(topic, *large)
    broker.write(topic, *polariss("t"))
    with door_of(house) as door:
        forwarding = Forwarding(broker, topic, door)
        wait_until(lambda: reported(house) == {"t", "large"}, "the tables are reported")
        forwarding.end()


def test_events_wait_while_the_server_is_away_and_the_next_process_reads_them_again(broker: KafkaBroker, house: House, topic: str) -> None:
    tables = ("first", "waits", "last")
    for name in tables:
        house.fragmented(name, files=2)
    port, token = free_port(), house.services.keep_tokens.issue(Role.EVENTS, "kafka").text
    paused = Event()

    def pause(seconds: float) -> None:
        paused.set()
        time.sleep(0.05)

    door = Door(f"http://127.0.0.1:{port}", token, tries=2, sleep=pause)
    ended = Forwarding(broker, topic, door)
    with serving(house, port):
        broker.write(topic, *polariss("first"))
        wait_until(lambda: reported(house) == {"first"}, "the first event")
    paused.clear()
    broker.write(topic, *polariss("waits"))
    assert paused.wait(PATIENCE_SECONDS)
    assert ended.end() == 1
    assert reported(house) == {"first"}
    second = Forwarding(broker, topic, door)
    with serving(house, port):
        wait_until(lambda: reported(house) == {"first", "waits"}, "the event that waited")
        assert second.end() == 1
        broker.write(topic, *polariss("last"))
        third = Forwarding(broker, topic, door)
        wait_until(lambda: reported(house) == set(tables), "the last event")
        assert third.end() == 1


@pytest.mark.parametrize(("catalog", "token", "status"), [("lake", "wrong.token", 401), ("nowhere", None, 404), ("lake", "two words", 401)])
def test_what_the_service_refuses_is_told_before_any_event(
    broker: KafkaBroker, house: House, topic: str, catalog: str, token: str | None, status: int
) -> None:
    house.fragmented("t", files=1)
    issued = house.services.keep_tokens.issue(Role.EVENTS, "kafka").text
    events = consumer([topic], broker.properties, topic)
    with serving(house) as port, pytest.raises(ReportError) as refused:
        EventForwarder(Door(f"http://127.0.0.1:{port}", token or issued), catalog, events).run(lambda: False)
    events.close()
    assert refused.value.refused_with == status


def test_the_command_forwards_until_it_is_told_to_end(broker: KafkaBroker, house: House, topic: str, tmp_path: Path) -> None:
    house.fragmented("t", files=2)
    (tmp_path / "token").write_text(house.services.keep_tokens.issue(Role.EVENTS, "kafka").text)
    properties = {**broker.properties, "auto.offset.reset": "earliest"}
    (tmp_path / "k").write_text("# of the test\n\n" + "".join(f"{key} = {value}\n" for key, value in properties.items()))
    broker.write(topic, *lakekeepers("t"))
    with serving(house) as port:
        options = ["--server", f"http://127.0.0.1:{port}", "--topic", topic, "--kafka", str(tmp_path / "k")]
        command = [COMMAND, "forward-events", "lake", *options, "--token-file", str(tmp_path / "token"), "--json"]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        try:
            wait_until(lambda: reported(house) == {"t"} or process.poll() is not None, "the event is forwarded")
            process.send_signal(signal.SIGTERM)
            said, errors = process.communicate(timeout=PATIENCE_SECONDS)
        finally:
            process.kill()
    assert (process.returncode, json.loads(said)) == (0, {"catalog": "lake", "events": 1}), errors
