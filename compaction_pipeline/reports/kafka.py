"""Reads the events of catalogs from topics of Kafka, and sends them to the HTTP service, which knows what they mean.

Lakekeeper and Polaris tell Kafka of commits. An event is a hint: without it the table is looked at a little later. So nothing here depends
on events, and a group that is new begins with the events that come from then on.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any
from urllib.parse import quote

from confluent_kafka import Consumer, KafkaError, KafkaException, Message

from compaction_pipeline.reports.door import Door, ReportError

log = logging.getLogger(__name__)

_BATCH = "application/cloudevents-batch+json"
_ATTRIBUTE = "ce_"
_MOST_EVENTS, _MOST_BYTES = 200, 256 * 1024
_LARGE_BYTES = 4 * 1024
"""A larger event is sent without its data. The service needs no more than the name of the table, and data may be of any size."""
_WAIT_SECONDS = 0.1
_OF_EVENTS = (413, 422)
"""So the service refuses what is too large, or what it cannot read. One such event keeps no other one waiting."""
_DEFAULTS = {"auto.offset.reset": "latest", "allow.auto.create.topics": "false"}


def consumer(topics: Sequence[str], properties: Mapping[str, str], group: str) -> Consumer:
    """A consumer of these topics. `properties` are those of librdkafka; without `group.id` it belongs to `group`.

    Raises KafkaException for a property that is none, or that is missing.
    """
    # What a record says is done before its place is kept.
    made = Consumer({**_DEFAULTS, "group.id": group, **properties, "enable.auto.offset.store": "false"}, logger=log)
    made.subscribe(list(topics))
    return made


class EventForwarder:
    """Sends the events that a consumer reads to the service. It belongs to one thread."""

    def __init__(self, door: Door, catalog: str, events: Consumer) -> None:
        """`catalog` is the registered catalog that the events are about. The token of the door has the role events."""
        self._door = door
        self._path = f"/api/v1/catalogs/{quote(catalog, safe='')}/events"
        self._events = events

    def run(self, is_over: Callable[[], bool]) -> int:
        """Forward events until `is_over()` is true, and return how many there were. While the service does not answer, they wait in Kafka.

        Raises ReportError when the service refuses them, and KafkaException when the brokers do.
        """
        # A wrong token, or a catalog that nobody registered, is told before the first event comes.
        self._send([], is_over)
        count = 0
        while not is_over():
            records = [record for record in self._events.consume(_MOST_EVENTS, _WAIT_SECONDS) if _is_read(record)]
            events = [event for event in map(event_of, records) if event is not None]
            if all(self._send(batch, is_over) for batch in _batches(events)):
                for record in records:
                    self._keep(record)
                count += len(events)
        return count

    def _send(self, events: Sequence[str], is_over: Callable[[], bool]) -> bool:
        """Send events, and wait for the service as long as it does not answer. Return whether it took them before `is_over()`."""
        while True:
            try:
                answer = self._door.send(self._path, f"[{','.join(events)}]".encode(), _BATCH)
            except ReportError as error:
                if error.refused_with in _OF_EVENTS and events:
                    return self._send_parts(events, is_over)
                if error.refused_with is not None:
                    raise
                if is_over():
                    return False
                log.warning("%d events wait: %s", len(events), error)
            else:
                log.debug("%d events: %s", len(events), answer)
                return True

    def _send_parts(self, events: Sequence[str], is_over: Callable[[], bool]) -> bool:
        if len(events) == 1:
            log.warning("an event is too large for the service, or none that it can read, and left out")
            return True
        middle = len(events) // 2
        return self._send(events[:middle], is_over) and self._send(events[middle:], is_over)

    def _keep(self, record: Message) -> None:
        """Let the group go on behind this record."""
        try:
            self._events.store_offsets(record)
        except KafkaException as error:
            # Another consumer of the group has the partition now, and reads the record once more. That costs nothing.
            log.debug("the place of an event was not kept: %s", error)


def event_of(record: Message) -> str | None:
    """Return the event in a record, as JSON of the service; None when it holds none.

    A record is a CloudEvent, whose attributes are headers or stand beside its data, or an event of Polaris.
    """
    value = _bytes(record.value())
    headers = {name.lower(): _bytes(content).decode("utf-8", "replace") for name, content in record.headers() or ()}
    attributes = {name[len(_ATTRIBUTE) :]: text for name, text in headers.items() if name.startswith(_ATTRIBUTE)}
    try:
        content = json.loads(value, parse_constant=lambda _: None) if value else None
    except (ValueError, RecursionError):
        content = None
    event: Any = {**attributes, "data": content} if "type" in attributes else content
    if not isinstance(event, dict):
        log.debug("a record holds no event: %d bytes, headers %s", len(value), sorted(headers))
        return None
    text = json.dumps(event)
    if len(text) > _LARGE_BYTES:
        event.pop("data", None)
        text = json.dumps(event)
    return text


def _bytes(value: object) -> bytes:
    return value if isinstance(value, bytes) else str(value or "").encode()


def _is_read(record: Message) -> bool:
    """Whether this is a record, and no error of the client. Raises KafkaException for an error that no patience helps against."""
    error = record.error()
    if error is None:
        return True
    if error.fatal() or error.code() in (KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.GROUP_AUTHORIZATION_FAILED):
        raise KafkaException(error)
    log.warning("Kafka: %s", error)
    return False


def _batches(events: Iterable[str]) -> Iterable[Sequence[str]]:
    """Split events so that each request is one that the service takes."""
    batch: list[str] = []
    size = 0
    for event in events:
        if batch and size + len(event) > _MOST_BYTES:
            yield batch
            batch, size = [], 0
        batch.append(event)
        size += len(event)
    if batch:
        yield batch
