"""What is made of the records of a topic, and what is done when a request is too large. A real broker has tests of its own."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import pytest
from confluent_kafka import KafkaError, KafkaException
from typer.testing import CliRunner

from compaction_pipeline.cli.main import app
from compaction_pipeline.reports import ReportError
from compaction_pipeline.reports.door import Door
from compaction_pipeline.reports.kafka import EventForwarder, event_of
from compaction_pipeline_tests.planted import found_in, planted

SECRET = planted("Kafka")


@dataclass(frozen=True)
class Record:
    """A record, or an error, as the client gives it."""

    content: bytes | str | None = None
    pairs: Any = None
    problem: KafkaError | None = None

    def value(self) -> bytes | str | None:
        return self.content

    def headers(self) -> Any:
        return self.pairs

    def error(self) -> KafkaError | None:
        return self.problem


def read(content: bytes | str | None, *headers: tuple[str, bytes | str | None]) -> Any:
    text = event_of(cast(Any, Record(content, list(headers))))
    return None if text is None else json.loads(text)


def test_attributes_in_headers_and_beside_the_data_make_the_same_event() -> None:
    expected = {"type": "updateTable", "tabular-type": "table", "name": "ü", "data": {"updates": []}}
    headers = [("CE_type", b"updateTable"), ("ce_tabular-type", "table"), ("ce_name", "ü".encode()), ("content-type", b"application/json")]
    assert read(b'{"updates": []}', *headers) == expected
    assert read(json.dumps(expected).encode(), ("content-type", b"application/cloudevents+json")) == expected
    assert read(b'{"event_type": "AFTER_UPDATE_TABLE"}') == {"event_type": "AFTER_UPDATE_TABLE"}
    # Without data that can be read it still names its table.
    assert read(b"{", *headers) == {**expected, "data": None}
    assert read(None, *headers) == {**expected, "data": None}


@pytest.mark.parametrize("content", [None, b"", b"7", b"[]", b"{", b"\xff", b"[" * 100_000, "text"])
def test_what_is_no_event_is_left_out(content: bytes | str | None) -> None:
    assert read(content) is None


def test_a_large_event_is_sent_without_its_data() -> None:
    assert read(json.dumps({"data": "x" * 5_000}).encode(), ("ce_type", b"updateTable"), ("ce_name", b"t")) == {
        "type": "updateTable",
        "name": "t",
    }


class Small:
    """A service that takes requests of so many bytes, and a consumer that has these records. It is over when they are read."""

    def __init__(self, most: int, *records: Record) -> None:
        self.most, self.records, self.got, self.kept = most, list(records), list[Any](), 0

    def send(self, path: str, body: bytes, content_type: str) -> Any:
        assert (path, content_type) == ("/api/v1/catalogs/a%2Fb/events", "application/cloudevents-batch+json")
        if len(body) > self.most:
            raise ReportError("too large", 413)
        if b"unreadable" in body:
            raise ReportError("it cannot be read", 422)
        self.got += json.loads(body)
        return {"tables": 1, "left_out": 0, "why": []}

    def consume(self, most: int, seconds: float) -> list[Record]:
        records, self.records = self.records, []
        return records

    def store_offsets(self, record: Record) -> None:
        self.kept += 1
        if self.kept == 1:
            raise KafkaException(KafkaError(KafkaError._STATE))

    def forwarded(self) -> int:
        return EventForwarder(cast(Door, self), "a/b", cast(Any, self)).run(lambda: not self.records)


def test_requests_that_are_too_large_are_halved_until_they_fit_or_are_left_out() -> None:
    names = [*map(str, range(50)), "x" * 3_000]
    records = [Record(json.dumps({"name": name}).encode()) for name in names]
    service = Small(100, *records[:20], Record(problem=KafkaError(KafkaError._TRANSPORT)), *records[20:])
    assert service.forwarded() == 51
    assert [event["name"] for event in service.got] == names[:50]
    assert service.kept == 51


def test_an_event_that_the_service_cannot_read_keeps_no_other_one_waiting() -> None:
    topic = Small(10_000, *(Record(json.dumps({"id": name})) for name in ("a", "unreadable", "b")))
    topic.forwarded()
    assert [one["id"] for one in topic.got] == ["a", "b"]
    assert topic.kept == 3


def test_many_large_events_go_in_several_requests() -> None:
    records = [Record(json.dumps({"name": f"{number}{'x' * 4_000}"}).encode()) for number in range(150)]
    service = Small(300_000, *records)
    assert service.forwarded() == len(service.got) == 150


def test_what_brokers_forbid_ends_the_forwarder() -> None:
    with pytest.raises(KafkaException):
        Small(9, Record(problem=KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED))).forwarded()


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (None, "cannot be read: No such file or directory; give --kafka"),
        ("", "bootstrap.servers is missing"),
        (f"bootstrap.servers=b:9092\n{SECRET[:8]}\n", "one of its 2 lines is not"),
        (f"bootstrap.servers=b:9092\nsasl.pasword={SECRET}\n", 'No such configuration property: "sasl.pasword"'),
        (f"bootstrap.servers=b:9092\nsasl.password={SECRET}\nsecurity.protocol=none\n", 'Invalid value "none"'),
        (f"bootstrap.servers=b:9092\nsasl.password={SECRET}\ndebug={SECRET}\n", "correct the file"),
    ],
)
def test_a_wrong_file_of_properties_is_told_without_its_secrets(tmp_path: Path, text: str | None, told: str) -> None:
    file = tmp_path / "kafka.conf"
    if text is not None:
        file.write_text(text)
    (tmp_path / "token").write_text("a.token")
    options = ["--server", "http://127.0.0.1:1", "--topic", "t", "--kafka", str(file), "--token-file", str(tmp_path / "token")]
    answer = CliRunner().invoke(app, ["forward-events", "lake", *options])
    assert answer.exit_code == 2, answer.output
    assert told in answer.output
    assert found_in(answer.output, [SECRET]) == set()
