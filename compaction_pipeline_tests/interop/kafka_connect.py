"""The committing part of Iceberg's sink connector for Kafka Connect, on a control topic in memory, without a broker.

Workers of the connector write data files, and tell of them in the control topic. Its coordinator reads the topic and commits the files.
Each commit notes in its snapshot up to which place of the topic it went. A coordinator that starts again reads the topic from where its
group of consumers had come to, which is before the last commit when the process died between the two, and leaves out what a snapshot has
noted.

Iceberg makes its coordinator only with clients that find a broker, so here its fields are set one by one. What it does is its own.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq
from py4j.java_gateway import JavaGateway

from compaction_pipeline_tests.interop.warehouse import Warehouse

_CONNECTOR = "orders"
_TOPIC = "control-iceberg"
_IDS = pa.schema([pa.field("id", pa.int64(), metadata={"PARQUET:field_id": "1"})])


class KafkaConnect:
    """A sink connector that appends to the table `t`, with the control topic of one partition in `events`."""

    def __init__(self, to_java: JavaGateway, warehouse: Warehouse) -> None:
        self._to_java, self._jvm, self._warehouse = to_java, to_java.jvm, warehouse
        self._folder = Path(warehouse.folder / "wh" / "db" / "t" / "data")
        self.events: list[bytes] = []

    def written(self, *ids: int) -> None:
        """Write a data file as a worker does, and tell of it in the topic."""
        self._folder.mkdir(parents=True, exist_ok=True)
        path = self._folder / f"00001-{len(self.events)}-{uuid4()}-00001.parquet"
        pq.write_table(pa.table({"id": list(ids)}, schema=_IDS), path)
        iceberg, events = self._jvm.org.apache.iceberg, self._jvm.org.apache.iceberg.connect.events
        file = iceberg.DataFiles.builder(iceberg.PartitionSpec.unpartitioned()).withPath(f"file://{path}").withFormat("PARQUET")
        file = file.withFileSizeInBytes(path.stat().st_size).withRecordCount(len(ids)).build()
        table = events.TableReference.of("lake", iceberg.catalog.TableIdentifier.parse("db.t"))
        none = self._jvm.java.util.ArrayList()
        files = self._jvm.java.util.ArrayList([file])
        partition = iceberg.types.Types.StructType.of(none)
        payload = events.DataWritten(partition, self._jvm.java.util.UUID.randomUUID(), table, files, none)
        self.events.append(bytes(events.AvroUtil.encode(events.Event(f"connect-{_CONNECTOR}", payload))))

    def start(self) -> None:
        """Start a coordinator whose group of consumers has come nowhere, and let it commit what it reads."""
        coordinator = self._coordinator()
        method = self._class("channel.Coordinator").getDeclaredMethod("process", self._to_java.new_array(self._jvm.Class, 0))
        method.setAccessible(True)
        method.invoke(coordinator, self._to_java.new_array(self._jvm.Object, 0))

    def _coordinator(self) -> Any:
        config = self._jvm.org.apache.iceberg.connect.IcebergSinkConfig(
            {
                "name": _CONNECTOR,
                "task.id": "0",
                "topics": "orders",
                "iceberg.tables": "db.t",
                "iceberg.catalog.type": "jdbc",
                # It begins a commit at once, and waits for no other worker.
                "iceberg.control.commit.interval-ms": "0",
                "iceberg.control.commit.timeout-ms": "0",
            }
        )
        (made,) = self._class("channel.CommitState").getDeclaredConstructors()
        made.setAccessible(True)
        given = self._to_java.new_array(self._jvm.Object, 1)
        given[0] = config
        executors = self._jvm.java.util.concurrent.Executors
        fields = {
            "controlTopic": _TOPIC,
            "connectGroupId": config.connectGroupId(),
            "producer": self._producer(),
            "consumer": self._consumer(),
            "controlTopicOffsets": self._jvm.java.util.HashMap(),
            "producerId": "test",
            "catalog": self._catalog(),
            "config": config,
            "snapshotOffsetsProp": f"kafka.connect.offsets.{_TOPIC}.{config.connectGroupId()}",
            "exec": executors.newFixedThreadPool(1),
            "commitState": made.newInstance(given),
            "taskId": f"{_CONNECTOR}-0",
        }
        kind = self._class("channel.Coordinator")
        unsafe = self._jvm.Class.forName("sun.misc.Unsafe").getDeclaredField("theUnsafe")
        unsafe.setAccessible(True)
        coordinator = unsafe.get(None).allocateInstance(kind)
        declared = {field.getName(): field for one in (kind, kind.getSuperclass()) for field in one.getDeclaredFields()}
        for name, value in fields.items():
            declared[name].setAccessible(True)
            declared[name].set(coordinator, value)
        return coordinator

    def _class(self, name: str) -> Any:
        return self._jvm.Class.forName(f"org.apache.iceberg.connect.{name}")

    def _producer(self) -> Any:
        serializers = self._jvm.org.apache.kafka.common.serialization
        producer = self._jvm.org.apache.kafka.clients.producer.MockProducer(
            True, serializers.StringSerializer(), serializers.ByteArraySerializer()
        )
        producer.initTransactions()
        return producer

    def _consumer(self) -> Any:
        clients = self._jvm.org.apache.kafka.clients.consumer
        consumer = clients.MockConsumer(clients.OffsetResetStrategy.EARLIEST)
        partition = self._jvm.org.apache.kafka.common.TopicPartition(_TOPIC, 0)
        consumer.assign([partition])
        consumer.seek(partition, 0)
        for offset, event in enumerate(self.events):
            consumer.addRecord(clients.ConsumerRecord(_TOPIC, 0, offset, "worker", event))
        return consumer

    def _catalog(self) -> Any:
        catalog = self._jvm.org.apache.iceberg.jdbc.JdbcCatalog()
        catalog.setConf(self._jvm.org.apache.hadoop.conf.Configuration())
        own = {key: value for key, value in self._warehouse.flink_catalog.items() if key != "catalog-impl"}
        catalog.initialize(self._warehouse.name, own)
        return catalog
