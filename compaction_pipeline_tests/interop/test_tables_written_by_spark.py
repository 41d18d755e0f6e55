"""Tables that Spark writes in several ways keep their rows under every type of compaction. Spark writes again between compactions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow.parquet as pq
import pytest

from compaction_pipeline.core.work.kinds import CompactionType
from compaction_pipeline.spark.engine import SparkMergeEngine
from compaction_pipeline.spark.session import SparkSessions, SparkSettings
from compaction_pipeline_tests.interop.warehouse import Compactions, Warehouse, live_files
from compaction_pipeline_tests.interop.written_by_spark import made
from compaction_pipeline_tests.reference_reader import bag_difference, local_path, reference_rows

pytestmark = pytest.mark.interop

POSITION_DELETES = 1


def numbers(first: int, last: int, columns: str) -> str:
    """A statement that inserts rows with the ids `first` to `last - 1`, as one file for each partition."""
    return f"INSERT INTO {{t}} SELECT /*+ COALESCE(1) */ {columns} FROM range({first}, {last})"


@dataclass(frozen=True)
class Written:
    """The statements by which Spark makes a table, and those that it runs after each of three compactions (`{round}` is 1, 2, 3)."""

    made: Sequence[str]
    goes_on: Sequence[str]
    has_position_deletes: bool = True


PLAIN = "id, CONCAT('n', id) AS name"
MERGED = """MERGE INTO {t} USING (SELECT id * 3 AS id, 'merged' AS name FROM range(5, 12)) AS s ON {t}.id = s.id
    WHEN MATCHED AND s.id % 2 = 0 THEN DELETE WHEN MATCHED THEN UPDATE SET name = s.name
    WHEN NOT MATCHED THEN INSERT (id, name) VALUES (s.id, s.name)"""

WRITTEN = {
    "append-only": Written(
        [made("id BIGINT, name STRING", properties="'format-version'='2'"), *(numbers(at, at + 7, PLAIN) for at in (0, 7, 14))],
        [numbers(100, 104, PLAIN)],
        has_position_deletes=False,
    ),
    "merge-on-read": Written(
        [
            made("id BIGINT, name STRING"),
            *(numbers(at, at + 10, PLAIN) for at in (0, 10, 20)),
            "DELETE FROM {t} WHERE id % 7 = 3",
            "UPDATE {t} SET name = 'updated' WHERE id % 5 = 1",
            MERGED,
        ],
        ["DELETE FROM {t} WHERE id % 11 = 4", numbers(40, 44, PLAIN), "UPDATE {t} SET name = CONCAT(name, '+') WHERE id BETWEEN 5 AND 8"],
    ),
    "partitions evolve": Written(
        [
            made("id BIGINT, name STRING, day DATE", "PARTITIONED BY (days(day))"),
            *(numbers(at, at + 12, f"{PLAIN}, DATE '2026-01-01' + CAST(id % 2 AS INT) AS day") for at in (0, 12)),
            "DELETE FROM {t} WHERE id % 7 = 3",
            "ALTER TABLE {t} ADD PARTITION FIELD bucket(2, id)",
            *(numbers(at, at + 12, f"{PLAIN}, DATE '2026-01-01' + CAST(id % 2 AS INT) AS day") for at in (24, 36)),
            "UPDATE {t} SET name = 'updated' WHERE id % 5 = 1",
            "ALTER TABLE {t} DROP PARTITION FIELD days(day)",
            "DELETE FROM {t} WHERE id % 9 = 5",
        ],
        [
            numbers(60, 66, f"{PLAIN}, CAST(NULL AS DATE) AS day"),
            "UPDATE {t} SET day = DATE '2026-01-02' WHERE id % 6 = 1",
            "ALTER TABLE {t} ADD PARTITION FIELD truncate(name, {round})",
            numbers(70, 74, f"{PLAIN}, DATE '2026-02-01' AS day"),
        ],
    ),
    "schema evolves": Written(
        [
            made("id INT, name STRING, small FLOAT, amount DECIMAL(6,2), s STRUCT<a: INT, b: STRING>, l ARRAY<INT>, m MAP<STRING, INT>"),
            *(
                numbers(
                    at,
                    at + 10,
                    "CAST(id AS INT), CONCAT('n', id), CAST(id AS FLOAT) / 3, CAST(id AS DECIMAL(6,2)) / 4, "
                    "named_struct('a', CAST(id AS INT), 'b', 'x'), array(CAST(id AS INT), NULL), map('k', CAST(id AS INT))",
                )
                for at in (0, 10)
            ),
            "DELETE FROM {t} WHERE id % 7 = 3",
            "ALTER TABLE {t} ALTER COLUMN id TYPE BIGINT",
            "ALTER TABLE {t} ALTER COLUMN small TYPE DOUBLE",
            "ALTER TABLE {t} ALTER COLUMN amount TYPE DECIMAL(12,2)",
            "ALTER TABLE {t} ADD COLUMN s.c BIGINT",
            "ALTER TABLE {t} RENAME COLUMN name TO label",
            "ALTER TABLE {t} ADD COLUMN name STRING AFTER id",
            "ALTER TABLE {t} DROP COLUMN m",
            "UPDATE {t} SET name = 'new', s = named_struct('a', 1, 'b', 'y', 'c', 5000000000L) WHERE id % 5 = 1",
            "DELETE FROM {t} WHERE s.a = 16 OR label = 'n4'",
        ],
        [
            "UPDATE {t} SET small = 1e300 WHERE id % 6 = 2",
            "ALTER TABLE {t} ALTER COLUMN s.a TYPE BIGINT",
            "DELETE FROM {t} WHERE id = 15",
        ],
    ),
    "sorted": Written(
        [
            made("id BIGINT, name STRING"),
            "ALTER TABLE {t} WRITE ORDERED BY name DESC NULLS LAST, id",
            *(numbers(at, at + 10, "id, IF(id % 4 = 0, NULL, CONCAT('n', id)) AS name") for at in (0, 10, 20)),
            "DELETE FROM {t} WHERE id % 7 = 3",
        ],
        ["UPDATE {t} SET name = 'z' WHERE id % 6 = 1", numbers(40, 44, PLAIN)],
    ),
    "copy-on-write": Written(
        [
            made("id BIGINT, name STRING, part INT", "PARTITIONED BY (part)", "'format-version'='2'"),
            *(numbers(at, at + 10, f"{PLAIN}, CAST(id % 2 AS INT)") for at in (0, 10, 20)),
            "DELETE FROM {t} WHERE id % 7 = 3",
        ],
        ["UPDATE {t} SET name = 'z', part = 1 WHERE id % 6 = 2", numbers(40, 44, f"{PLAIN}, CAST(NULL AS INT)")],
        has_position_deletes=False,
    ),
}


@pytest.mark.parametrize("how", WRITTEN)
def test_every_type_keeps_the_rows_of_a_table_that_spark_wrote(how: str, warehouse: Warehouse, compactions: Compactions) -> None:
    written = WRITTEN[how]
    for statement in written.made:
        warehouse.sql(statement)
    if written.has_position_deletes:
        assert any(file["content"] == POSITION_DELETES for file in live_files(warehouse.table()))
    for number, kind in enumerate(CompactionType, 1):
        expected = warehouse.java_rows()
        before = live_files(warehouse.table())
        outcome = compactions.compact(kind)
        assert outcome.records, outcome.reason
        assert not outcome.failed
        assert not outcome.conflicts
        warehouse.check(expected, when=f"after {kind.value}")
        assert len(live_files(warehouse.table())) < len(before)
        for statement in written.goes_on:
            warehouse.sql(statement.replace("{round}", str(number)))
        assert bag_difference(warehouse.java_rows(), reference_rows(warehouse.table())) == ""


def test_our_merges_run_on_the_spark_that_wrote_the_table(warehouse: Warehouse, iceberg_spark: Any) -> None:
    """Iceberg's library and our workers share one session, as in a cluster that a team shares."""
    for statement in WRITTEN["merge-on-read"].made:
        warehouse.sql(statement)
    sessions = SparkSessions(SparkSettings(master="local[2]", home=str(warehouse.folder)))
    product = Compactions(warehouse, SparkMergeEngine(sessions))
    expected = warehouse.java_rows()
    outcome = product.compact(CompactionType.FULL)
    product.close()
    assert outcome.committed
    assert not outcome.failed
    assert sessions.session().sparkContext is iceberg_spark.sparkContext
    warehouse.check(expected)
    assert len(live_files(warehouse.table())) == 1


def test_a_full_of_a_sorted_table_sorts_as_spark_would(warehouse: Warehouse, compactions: Compactions) -> None:
    for statement in WRITTEN["sorted"].made:
        warehouse.sql(statement)
    compactions.compact(CompactionType.FULL)
    (file,) = live_files(warehouse.table())
    found = [(row["name"], row["id"]) for row in pq.read_table(local_path(file["file_path"]), partitioning=None).to_pylist()]
    wanted = [(row["name"], row["id"]) for row in warehouse.sql("SELECT * FROM {t} ORDER BY name DESC NULLS LAST, id")]
    assert found == wanted


def test_branches_and_tags_of_spark_keep_their_rows_and_go_on(warehouse: Warehouse, compactions: Compactions) -> None:
    for statement in (
        made("id BIGINT, name STRING"),
        numbers(0, 10, PLAIN),
        numbers(10, 20, PLAIN),
        "ALTER TABLE {t} CREATE TAG first",
        "ALTER TABLE {t} CREATE BRANCH audit",
        "DELETE FROM {t} WHERE id % 7 = 3",
        "INSERT INTO {t}.branch_audit VALUES (100, 'audited')",
        "DELETE FROM {t}.branch_audit WHERE id % 5 = 2",
    ):
        warehouse.sql(statement)
    for kind in CompactionType:
        expected = {ref: warehouse.java_rows(ref=ref) for ref in ("main", "audit", "first")}
        assert compactions.compact(kind).records
        for ref, rows in expected.items():
            assert bag_difference(warehouse.java_rows(ref=ref), rows) == "", f"{ref} after {kind.value}"
        warehouse.sql("INSERT INTO {t}.branch_audit VALUES (101, 'again')")
        warehouse.sql("UPDATE {t}.branch_audit SET name = 'later' WHERE id = 9")
        warehouse.sql("DELETE FROM {t} WHERE id IN (1, 12)")
        warehouse.sql("INSERT INTO {t} VALUES (12, 'back'), (1, 'back')")
    audited = warehouse.java_rows(ref="audit")
    warehouse.sql("CALL {c}.system.set_current_snapshot(table => 'db.t', ref => 'audit')")
    warehouse.check(audited)
    compactions.compact(CompactionType.FULL)
    warehouse.check(audited, when="after FULL of what was a branch")
