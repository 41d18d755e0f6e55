"""Old rows of tables that Spark wrote: Iceberg's Java library judges which files go, and reads which rows are left."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timezone
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from compaction_pipeline.core.commit.ports import CommitState
from compaction_pipeline.core.ids import RecordId
from compaction_pipeline.core.tables.data_file import FileContent
from compaction_pipeline.core.tables.table import TableIdentifier
from compaction_pipeline.core.upkeep.works import UpkeepWork
from compaction_pipeline.iceberg.upkeep.commits import IcebergUpkeepCommitter
from compaction_pipeline_tests.iceberg.lake import LakeTable
from compaction_pipeline_tests.interop.java import Java, Register
from compaction_pipeline_tests.reference_reader import bag_difference
from compaction_pipeline_tests.scenarios.java_reader import frame_rows
from compaction_pipeline_tests.scenarios.soundness import faults

pytestmark = pytest.mark.interop

NOW = datetime(2024, 3, 31, 12, tzinfo=timezone.utc)
CUTOFF = datetime(2024, 3, 21, 12, tzinfo=timezone.utc)
MOMENTS = (
    "0002-01-01 00:00:00",
    "1969-12-31 23:59:59.999999",
    "1970-01-01 00:00:00",
    "2024-01-05 10:00:00",
    "2024-02-29 23:59:59.999999",
    "2024-03-20 12:00:00",
    "2024-03-21 00:00:00",
    "2024-03-21 11:59:59.999999",
    "2024-03-21 12:00:00",
    "2024-03-22 00:00:00",
    "9999-12-31 23:59:59.999999",
)


@dataclass(frozen=True)
class Case:
    """A column with the times, as Spark writes them. `literal` is the first value that is not old, in SQL and for Java's expressions."""

    type: str
    value: Callable[[str], str]
    sql: str
    java: Callable[[Any], Any]
    spec: str = ""
    field: str = "at"
    more: str = ""


def _ms(at: str) -> str:
    return str(int(datetime.fromisoformat(at).replace(tzinfo=timezone.utc).timestamp() * 1000))


MICROS = int(CUTOFF.timestamp()) * 1_000_000
CASES = {
    "timestamps by day": Case("TIMESTAMP", "TIMESTAMP '{}'".format, "TIMESTAMP '2024-03-21 12:00:00'", lambda jvm: MICROS, "days(at)"),
    "by hour": Case("TIMESTAMP_NTZ", "TIMESTAMP_NTZ '{}'".format, "TIMESTAMP_NTZ '2024-03-21 12:00:00'", lambda jvm: MICROS, "hours(at)"),
    "without partitions": Case("TIMESTAMP_NTZ", "TIMESTAMP_NTZ '{}'".format, "TIMESTAMP_NTZ '2024-03-21 12:00:00'", lambda jvm: MICROS),
    "in a struct": Case(
        "STRUCT<t: TIMESTAMP>",
        "named_struct('t', TIMESTAMP '{}')".format,
        "TIMESTAMP '2024-03-21 12:00:00'",
        lambda jvm: MICROS,
        field="at.t",
    ),
    "dates by month": Case("DATE", lambda at: f"DATE '{at[:10]}'", "DATE '2024-03-21'", lambda jvm: "2024-03-21", "months(at)"),
    "dates by year": Case(
        "DATE", lambda at: f"DATE '{at[:10]}'", "DATE '2024-03-21'", lambda jvm: "2024-03-21", "years(at), bucket(2, id)"
    ),
    "dates": Case("DATE", lambda at: f"DATE '{at[:10]}'", "DATE '2024-03-21'", lambda jvm: "2024-03-21", "at"),
    "milliseconds": Case("BIGINT", lambda at: f"{_ms(at)}L", f"{MICROS // 1000}L", lambda jvm: MICROS // 1000, "truncate(1000000000, at)"),
    "texts": Case("STRING", lambda at: f"'{at[:10]}'", "'2024-03-21'", lambda jvm: "2024-03-21", "at"),
    "long texts": Case(
        "STRING",
        lambda at: f"'{at[:19]}'",
        "'2024-03-21 12:00:00'",
        lambda jvm: "2024-03-21 12:00:00",
        "truncate(10, at)",
        more=", 'data-expire.datetime-string-pattern'='yyyy-MM-dd HH:mm:ss'",
    ),
}


@pytest.fixture
def java(tmp_path: Path, spark_catalog: Register) -> Java:
    return Java(tmp_path, spark_catalog)


def written(java: Java, case: Case) -> None:
    """Files of one moment and of two, with NULLs in some, and with rows that Spark has deleted."""
    partitioned = f"PARTITIONED BY ({case.spec})" if case.spec else ""
    java.sql(
        f"CREATE TABLE {{t}} (id BIGINT, at {case.type}) USING iceberg {partitioned} TBLPROPERTIES ('format-version'='2', "
        f"'write.delete.mode'='merge-on-read', 'data-expire.field'='{case.field}', 'data-expire.retention-time'='10d', "
        f"'data-expire.base-on-rule'='CURRENT_TIME', 'data-expire.level'='FILE'{case.more})"
    )
    values = [case.value(moment) for moment in MOMENTS]
    for number, value in enumerate(values):
        java.sql(f"INSERT INTO {{t}} VALUES ({number * 10}, {value}), ({number * 10 + 1}, {value})")
    for number, (one, other) in enumerate(pairwise(values[4:9])):
        java.sql(f"INSERT INTO {{t}} VALUES ({number * 10 + 200}, {one}), ({number * 10 + 201}, {other})")
    java.sql(f"INSERT INTO {{t}} VALUES (300, {values[3]}), (301, NULL), (302, NULL)")
    java.sql("DELETE FROM {t} WHERE id IN (31, 81, 201)")


def proved_by_java(java: Java, case: Case, t: LakeTable) -> set[str]:
    """The data files of which each row is below the literal: by the bounds, as Java judges them, or by what the partition leaves open."""
    jvm = java.spark._jvm
    table = jvm.org.apache.iceberg.spark.Spark3Util.loadIcebergTable(java.spark._jsparkSession, f"{java.name}.db.t")
    expressions = jvm.org.apache.iceberg.expressions
    below = expressions.Expressions.lessThan(case.field, case.java(jvm))
    metrics = expressions.StrictMetricsEvaluator(table.schema(), below)
    found = set()
    tasks = table.newScan().includeColumnStats().planFiles().iterator()
    while tasks.hasNext():
        file = tasks.next().file()
        residual = expressions.ResidualEvaluator.of(table.specs().get(file.specId()), below, True).residualFor(file.partition())
        if metrics.eval(file) or residual.toString() == "true":
            found.add(str(file.location()))
    return found


@pytest.mark.parametrize("name", list(CASES))
def test_javas_strict_bounds_agree_and_the_rows_of_no_other_file_go(java: Java, name: str) -> None:
    case = CASES[name]
    written(java, case)
    t = LakeTable(java.lake, TableIdentifier("lake", ("db",), "t"), java.lake.catalog.load_table(("db", "t")))
    proved = proved_by_java(java, case, t)
    before = {row["id"]: row for row in java.sql(f"SELECT id, _file, {case.field} < {case.sql} AS is_old FROM {{t}}")}
    files = t.paths(FileContent.DATA)
    committer = IcebergUpkeepCommitter(t.lake.catalogs, lambda: NOW, sleep=lambda seconds: None)
    (target,) = committer.targets(t.identifier, UpkeepWork.OLD_ROWS)
    assert committer.commit(target, RecordId("drop-1"), {}).state is CommitState.COMMITTED
    gone = files - t.paths(FileContent.DATA)
    # Java compares values alone. It does not know that bounds before 1980 prove nothing here, or that bounds were cut.
    doubtful = {row["_file"] for row in before.values() if row["id"] < 30}
    # To what a partition leaves open, NULL is less than every value.
    nulls = {row["_file"] for row in before.values() if row["is_old"] is None}
    # Java's strict metrics do not judge columns in structs.
    if "." not in case.field:
        assert gone <= proved - nulls
        assert proved - gone <= doubtful | nulls, committer.look(target, {}).reason
    assert gone
    after = set(java.ids())
    assert after == {number for number, row in before.items() if row["_file"] not in gone}
    assert all(before[number]["is_old"] for number in before.keys() - after)
    assert faults(t.table.refresh()) == []
    assert not bag_difference(frame_rows(java.spark.sql(f"SELECT * FROM {java.name}.db.t")), t.rows())
    if name == "by hour":
        java.goes_on(t)
