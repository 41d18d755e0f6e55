"""The demo's keyed table: payments, which a PySpark stream writes as inserts and deletes of its change store.

`python -m compaction_pipeline.demo.payments DEMO [BATCHES]` is the stream as a process. It ends as the other writers do: when it is told to
stop, when its parent is gone, or after so many batches. With BATCHES the query is stopped once on the way and goes on from its checkpoint.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import uuid
from collections import Counter
from collections.abc import Callable
from types import FrameType
from typing import Any

from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.types import DecimalType, LongType, NestedField, StringType, TimestamptzType

from compaction_pipeline.bootstrap import Services
from compaction_pipeline.core.errors import ConfigError
from compaction_pipeline.demo.change_log import ChangeLog, row_text
from compaction_pipeline.demo.options import DemoOptions, read_options
from compaction_pipeline.demo.tables import NAMESPACE, PROPERTIES, Change
from compaction_pipeline.demo.warehouse import open_catalog
from compaction_pipeline.iceberg.catalogs import Catalog
from compaction_pipeline.keyed import KeyedTable
from compaction_pipeline.settings import load_settings

NAME, CHANGE_STORE = "payments", "payments_change_"
_BACKLOG_SHARE, _FILES_OF_BATCH = 0.096, 8
"""A batch has a file of inserts and a file of deletes in each of 4 buckets. A backlog of 2,000 files has 24 batches."""
_SINK = "payments"
_LAST_BATCH = f"compaction.sink.{_SINK}.last-batch"
_PAYMENTS, _ROWS_PER_BATCH, _SECONDS = 3_000, 150, 3

# The sensor of upkeep looks every ten minutes. So the change store has the files of half an hour at most.
_UPKEEP = {
    "table-expire.enabled": "true",
    "change.data.ttl.minutes": "10",
    "history.expire.max-snapshot-age-ms": "600000",
    "compaction.expire.grace": "10min",
}
_SCHEMA = Schema(
    NestedField(1, "payment_id", LongType(), required=True),
    NestedField(2, "account", StringType(), required=False),
    NestedField(3, "status", StringType(), required=False),
    NestedField(4, "amount", DecimalType(12, 2), required=False),
    NestedField(5, "paid_at", TimestamptzType(), required=False),
)
_COLUMNS = {
    "payment_id": f"pmod(hash, {_PAYMENTS})",
    "account": "concat('account-', pmod(hash, 97))",
    "status": "element_at(array('open', 'authorized', 'captured', 'refunded'), cast(pmod(shiftright(hash, 8), 4) as int) + 1)",
    "amount": "cast(pmod(shiftright(hash, 4), 90000) / 100 as decimal(12, 2))",
    "paid_at": "timestamp",
    "_change_type": "if(pmod(shiftright(hash, 20), 100) < 8, 'DELETE', 'INSERT')",
    "place": "value",
}
"""Each row of the stream is made from its number, so a batch that is repeated has the same rows."""


def backlog_batches(options: DemoOptions) -> int:
    """How many batches `make demo ONCE=1` writes. It is at least two, because the stream stops once on the way."""
    return max(2, round(options.backlog_files * _BACKLOG_SHARE / _FILES_OF_BATCH))


def make_payments(options: DemoOptions) -> None:
    """Make the table when it is missing."""
    catalog = open_catalog(options)
    if not catalog.table_exists((NAMESPACE, NAME)):
        _drop_half_a_table(catalog)
        properties = {key: value for key, value in PROPERTIES.items() if key.startswith(("self-optimizing.", "write.metadata.previous"))}
        KeyedTable.create(catalog, (NAMESPACE, NAME), _SCHEMA, ["payment_id"], upsert=True, properties={**properties, **_UPKEEP})


def _drop_half_a_table(catalog: Catalog) -> None:
    """A demo that is killed while it makes the table leaves a change store without a base store, to which nobody could write.

    Raises ConfigError for one that has been written to: its base store was lost in another way.
    """
    change = (NAMESPACE, CHANGE_STORE)
    if not catalog.table_exists(change):
        return
    if catalog.load_table(change).current_snapshot() is not None:
        raise ConfigError(
            f"table {NAMESPACE}.{NAME} of the demo is gone, but its change store has rows: run `make demo-clean`, and begin anew"
        )
    catalog.drop_table(change)


def payment_stores(options: DemoOptions) -> tuple[Table, Table]:
    """The base store and the change store."""
    catalog = open_catalog(options)
    base, change = (catalog.load_table((NAMESPACE, name)) for name in (NAME, CHANGE_STORE))
    return base, change


def payment_rows(options: DemoOptions) -> Counter[str]:
    """Every row that a reader of both stores sees, in the form of `row_text`."""
    table = KeyedTable.open(open_catalog(options), (NAMESPACE, NAME))
    return Counter(row_text(row) for row in table.scan().to_arrow().to_pylist())


class PaymentsStream:
    """Writes the batches of the stream, and logs each one before it is written."""

    def __init__(self, options: DemoOptions) -> None:
        self._catalog = open_catalog(options)
        self._table = KeyedTable.open(self._catalog, (NAMESPACE, NAME))
        self._log = ChangeLog(options.changes, NAME)
        self._log.settle(self.files_of_batch)
        self.batches = 0

    def write(self, frame: Any, number: int) -> None:
        """Write one batch of the stream. One that landed before is not written again."""
        rows = sorted((row.asDict() for row in frame.collect()), key=lambda row: row["place"])
        columns = _SCHEMA.column_names
        changes = [
            Change(row["payment_id"], None if row["_change_type"] == "DELETE" else {name: row[name] for name in columns}) for row in rows
        ]
        batch_id = f"{number}-{uuid.uuid4().hex}"
        self._log.begin(batch_id, changes)
        if self._table.write_changes(frame, order_by="place", sink_id=_SINK, batch=number) is None:
            self._log.settle(lambda _: None)
        else:
            self._log.done(batch_id, self.files_of_batch(batch_id) or 0)
        self.batches += 1

    def files_of_batch(self, batch_id: str) -> int | None:
        """How many files the newest batch of the change store has; None when this batch is not in it."""
        change = self._catalog.load_table((NAMESPACE, CHANGE_STORE))
        if int(batch_id.partition("-")[0]) > int(change.properties.get(_LAST_BATCH, -1)):
            return None
        # Upkeep may have taken merged files out since, by a snapshot of its own.
        summaries = (one.summary.additional_properties for one in reversed(change.snapshots()) if one.summary is not None)
        return next((int(each["added-data-files"]) for each in summaries if "added-data-files" in each), 0)

    def close(self) -> None:
        self._log.close()


def _run(options: DemoOptions, goal: int | None, stopped: Callable[[], bool]) -> None:
    stream = PaymentsStream(options)
    spark = _session(options)
    frame = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", _ROWS_PER_BATCH).load()
    frame = frame.selectExpr("xxhash64(value) as hash", "*").selectExpr(*(f"{made} as {name}" for name, made in _COLUMNS.items()))
    writer = (
        frame.writeStream.foreachBatch(stream.write)
        .option("checkpointLocation", (options.changes / "payments_checkpoint").as_uri())
        .trigger(processingTime=f"{_SECONDS if goal is None else 0} seconds")
    )
    try:
        for part in [None] if goal is None else [goal // 2, goal]:
            query = writer.start()
            while query.isActive and not stopped() and (part is None or stream.batches < part):
                query.awaitTermination(0.2)
            query.stop()
            if query.exception() is not None:
                raise query.exception()
    finally:
        spark.stop()
        stream.close()


def _session(options: DemoOptions) -> Any:
    from pyspark.sql import SparkSession

    services = Services(load_settings({"home": options.home}))
    try:
        os.environ["JAVA_HOME"] = str(services.find_java().path)
    finally:
        services.close()
    # Spark's Python workers need the packages of this program.
    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder: Any = SparkSession.builder
    settings = {
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.driver.memory": "512m",
        # The second compiler of Java takes longer to optimize these small batches than they take to run.
        "spark.driver.defaultJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    }
    return builder.master("local[2]").appName("demo payments").config(map=settings).getOrCreate()


def main(arguments: list[str]) -> int:
    """Run the stream until asked to stop, and answer the exit code."""
    if len(arguments) not in (1, 2) or not all(each.isdecimal() for each in arguments):
        print("usage: python -m compaction_pipeline.demo.payments DEMO [BATCHES]", file=sys.stderr)
        return 2
    # The demo may have been killed while this process imported, and then another process is its parent already.
    stop, demo = threading.Event(), int(arguments[0])

    def ask_to_stop(_: int, __: FrameType | None) -> None:
        stop.set()

    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, ask_to_stop)
    if os.getppid() != demo:
        return 0
    try:
        _run(read_options(), int(arguments[1]) if len(arguments) == 2 else None, lambda: stop.is_set() or os.getppid() != demo)
    except ConfigError as error:
        print(error, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
