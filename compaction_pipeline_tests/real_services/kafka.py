"""A real broker of Kafka, which is its own controller, on free loopback ports."""

from __future__ import annotations

import os
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka import KafkaException, Producer

from compaction_pipeline_tests.interop.peers import java, kafka_jars
from compaction_pipeline_tests.ports import free_port

_START_SECONDS = 240
_CLUSTER = "MkU3OEVBNTcwNTJENDM2Qk"
"""Any 16 bytes in base64."""


@dataclass(frozen=True)
class KafkaBroker:
    """A running broker. It makes a topic of one partition when somebody writes to it."""

    port: int

    @property
    def properties(self) -> dict[str, str]:
        """What a client of it needs."""
        return {"bootstrap.servers": f"127.0.0.1:{self.port}"}

    def write(
        self, topic: str, value: bytes | None, headers: Mapping[str, str | bytes | None] | None = None, key: str | None = None
    ) -> None:
        """Write one record, and wait until the broker has it."""
        producer = Producer(self.properties)
        producer.produce(topic, value, key, headers=[(name, text) for name, text in (headers or {}).items()])
        assert producer.flush(30) == 0


@contextmanager
def kafka_broker(folder: Path) -> Iterator[KafkaBroker]:
    """A broker with its files in `folder`, until the block ends. The folder must be empty."""
    port, controller = free_port(), free_port()
    settings = {
        "process.roles": "broker,controller",
        "node.id": "1",
        "controller.quorum.voters": f"1@127.0.0.1:{controller}",
        "listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}",
        "controller.listener.names": "CONTROLLER",
        "log.dirs": str(folder / "logs"),
        "offsets.topic.replication.factor": "1",
        "offsets.topic.num.partitions": "1",
        "group.initial.rebalance.delay.ms": "0",
    }
    configuration, log = folder / "server.properties", folder / "kafka.log"
    configuration.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
    run = [str(java()), "-Xmx256m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-cp", f"{kafka_jars()}{os.sep}*"]
    subprocess.run([*run, "kafka.tools.StorageTool", "format", "-t", _CLUSTER, "-c", str(configuration)], check=True, capture_output=True)
    with log.open("wb") as output:
        process = subprocess.Popen([*run, "kafka.Kafka", str(configuration)], stdout=output, stderr=subprocess.STDOUT)
    broker = KafkaBroker(port)
    try:
        deadline = time.monotonic() + _START_SECONDS
        while not _answers(broker):
            if process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"Kafka did not start: {log.read_text(errors='replace')[-2000:]}")
            threading.Event().wait(0.05)
        yield broker
    finally:
        # Its data is not needed afterwards, so it is killed.
        process.kill()
        process.wait()


def _answers(broker: KafkaBroker) -> bool:
    try:
        # The client writes each refused connection to stderr.
        Producer({**broker.properties, "log_level": 0}).list_topics(timeout=2)
    except KafkaException:
        return False
    return True
