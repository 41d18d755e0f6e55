"""Runs SQL on a Flink in a JVM of its own, which streams known changes into Iceberg tables.

The changes are numbered n = 1, 2, 3 …. Change n upserts the row with the key `n · 7919 mod KEYS`, or deletes it when n is a
multiple of 5.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway
from py4j.protocol import Py4JJavaError

from compaction_pipeline_tests.interop.peers import SPARK_JARS, flink_jars
from compaction_pipeline_tests.reference_reader import Row

KEYS = 97
_STEP = 7919
_DELETES = 5
_PARTITIONS = 3
_ENDLESS = 200_000
"""More changes than any test waits for. Each checkpoint holds the changes that are left in the source, 5 MB."""

_OPENED = "io lang lang.reflect net nio text time util util.concurrent util.concurrent.atomic util.concurrent.locks"

# When a row is deleted, the inner query only retracts its old value, which an upsert ignores. The outer query turns that into a
# delete. Its MOD changes no value, but without it Flink's planner would remove the outer query.
CHANGES = f"""
SELECT id, CAST(MOD(id, {_PARTITIONS}) AS INT), v, CONCAT('n', CAST(v AS STRING)), NULLIF(MOD(v, 7), 0) FROM (
  SELECT MOD(id, {KEYS}) AS id, MAX(v) AS v FROM (
    SELECT MOD(n * {_STEP}, {KEYS}) AS id, MAX(n) AS v FROM numbers GROUP BY MOD(n * {_STEP}, {KEYS}) HAVING MOD(MAX(n), {_DELETES}) <> 0
  ) GROUP BY MOD(id, {KEYS})
)"""

COLUMNS = "id BIGINT NOT NULL, part INT NOT NULL, v BIGINT, name STRING, maybe BIGINT"

SHAPES = {
    "upserts": f"({COLUMNS}, PRIMARY KEY (id) NOT ENFORCED) WITH ('format-version'='2', 'write.upsert.enabled'='true')",
    "partitioned": f"({COLUMNS}, PRIMARY KEY (id, part) NOT ENFORCED) PARTITIONED BY (part) "
    "WITH ('format-version'='2', 'write.upsert.enabled'='true')",
    "retractions": f"({COLUMNS}, PRIMARY KEY (id) NOT ENFORCED) WITH ('format-version'='2')",
}
"""Tables by the way Flink writes to them: with upserts it deletes before each insert, with retractions only what it replaces."""


def expected_rows(*streams: int) -> list[Row]:
    """The rows that a reader must see after these streams, one after the other. Each number is the last change of a stream."""
    rows: dict[int, Row] = {}
    for last in streams:
        here: set[int] = set()
        for number in range(1, last + 1):
            key = number * _STEP % KEYS
            if number % _DELETES:
                rows[key] = {"id": key, "part": key % _PARTITIONS, "v": number, "name": f"n{number}", "maybe": number % 7 or None}
                here.add(key)
            elif key in here:
                # A stream deletes only what it inserted itself.
                del rows[key]
                here.remove(key)
    return list(rows.values())


class Job:
    """A streaming job that ends by itself."""

    def __init__(self, result: Any) -> None:
        # The result is requested now, because the cluster ends with the job and then answers no request.
        self._end = result.getJobClient().get().getJobExecutionResult()

    @property
    def running(self) -> bool:
        return not self._end.isDone()

    def wait(self) -> None:
        """Wait for the end of the job. Raises the error that it failed with."""
        self._end.get()


class Stream(Job):
    """A streaming job that runs until it is stopped, so that a slow machine has enough time."""

    def __init__(self, result: Any, savepoints: Path, form: Any) -> None:
        super().__init__(result)
        self._client = result.getJobClient().get()
        self._savepoints = savepoints
        self._form = form

    def stop(self) -> None:
        """Stop reading changes, commit those that were read, and end. On a busy machine a part of the job may have to begin first."""
        while self.running:
            try:
                self._client.stopWithSavepoint(True, str(self._savepoints), self._form).get()
                break
            except Py4JJavaError as error:
                if "Not all required tasks are currently running" not in str(error):
                    raise
                time.sleep(0.2)
        # A stream that ended by itself has failed, and `wait` raises its error.
        self.wait()


class Flink:
    """SQL on a local Flink. Each job gets a cluster within the JVM."""

    def __init__(
        self, jvm: Any, catalog: str, properties: Mapping[str, str], restored_from: str | None = None, checkpoints: Path | None = None
    ) -> None:
        """Jobs begin from the savepoint or checkpoint in the folder `restored_from`, and keep those that they make in `checkpoints`."""
        self._catalog = catalog
        settings = {
            "execution.target": "local",
            "parallelism.default": "1",
            "execution.checkpointing.interval": "500 ms",
            "taskmanager.memory.network.min": "16 mb",
            "taskmanager.memory.network.max": "16 mb",
            # A job that fails must report that, and not start again.
            "restart-strategy.type": "disable",
            **({"execution.state-recovery.path": restored_from} if restored_from is not None else {}),
            **(_kept_in(checkpoints) if checkpoints is not None else {}),
        }
        api = jvm.org.apache.flink.table.api
        self._savepoint_form = jvm.org.apache.flink.core.execution.SavepointFormatType.CANONICAL
        configuration = jvm.org.apache.flink.configuration.Configuration.fromMap(settings)
        self._tables = api.TableEnvironment.create(
            api.EnvironmentSettings.newInstance().inStreamingMode().withConfiguration(configuration).build()
        )
        properties = {"type": "iceberg", "cache-enabled": "false", **properties}
        self.sql(f"CREATE CATALOG {catalog} WITH ({', '.join(f'{_quoted(key)} = {_quoted(value)}' for key, value in properties.items())})")

    def sql(self, text: str) -> Any:
        return self._tables.executeSql(text)

    def create(self, table: str, shape: str) -> None:
        """Make a table of one of `SHAPES`."""
        self.sql(f"CREATE TABLE {self._catalog}.db.{table} {SHAPES[shape]}")

    def write(self, tables: Sequence[str], last: int, per_second: int) -> Job:
        """Start a job that writes the changes 1 to `last` into each of the tables, `per_second` changes a second."""
        return Job(self._written(tables, last, per_second).execute())

    def stream(self, tables: Sequence[str], per_second: int, savepoints: Path) -> Stream:
        """Start a job that writes the changes from 1 on into each table, until it is stopped. The table `taken` gets their numbers."""
        self.sql(f"CREATE TABLE IF NOT EXISTS {self._catalog}.db.taken (n BIGINT)")
        statements = self._written(tables, _ENDLESS, per_second)
        # One source serves all statements.
        statements.addInsertSql(f"INSERT INTO {self._catalog}.db.taken SELECT n FROM numbers")
        return Stream(statements.execute(), savepoints, self._savepoint_form)

    def _written(self, tables: Sequence[str], last: int, per_second: int) -> Any:
        self.sql("DROP TEMPORARY TABLE IF EXISTS numbers")
        options = f"'rows-per-second'='{per_second}', 'fields.n.kind'='sequence', 'fields.n.start'='1', 'fields.n.end'='{last}'"
        self.sql(f"CREATE TEMPORARY TABLE numbers (n BIGINT) WITH ('connector'='datagen', {options})")
        statements = self._tables.createStatementSet()
        for table in tables:
            statements.addInsertSql(f"INSERT INTO {self._catalog}.db.{table} {CHANGES}")
        return statements


def _kept_in(checkpoints: Path) -> Mapping[str, str]:
    """Settings by which checkpoints are files, which outlive a job that fails."""
    return {
        "execution.checkpointing.storage": "filesystem",
        "execution.checkpointing.dir": f"file://{checkpoints}",
        "execution.checkpointing.externalized-checkpoint-retention": "RETAIN_ON_CANCELLATION",
    }


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


@contextmanager
def flink_jvm() -> Iterator[Any]:
    """A JVM with Flink on its classpath. It ends with the block, or with this process."""
    with gateway(flink_jars()) as to_java:
        yield to_java.jvm


@contextmanager
def gateway(jars: Path) -> Iterator[JavaGateway]:
    """A JVM with these jars and those of Hadoop on its classpath. It ends with the block, or with this process."""
    hadoop = [str(jar) for jar in SPARK_JARS.glob("hadoop-client-*.jar")]
    opened = [f"--add-opens=java.base/java.{name}=ALL-UNNAMED" for name in _OPENED.split()]
    port, process = launch_gateway(
        jarpath=str(next(SPARK_JARS.glob("py4j-*.jar"))),
        classpath=os.pathsep.join([f"{jars}{os.sep}*", *hadoop]),
        javaopts=[*opened, "-Xmx1g", "-XX:TieredStopAtLevel=1"],
        die_on_exit=True,
        redirect_stdout=None,
        redirect_stderr=sys.stderr,
        return_proc=True,
    )
    to_java = JavaGateway(gateway_parameters=GatewayParameters(port=port, auto_convert=True))
    try:
        yield to_java
    finally:
        to_java.shutdown()
        process.stdin.close()
        process.wait(30)
