"""What the streaming readers of Spark and Flink do with our commits: the `replace` of a merge, and the `overwrite` of a conversion."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from compaction_pipeline.core.tables.data_file import FileContent
from compaction_pipeline.core.work.kinds import CompactionType
from compaction_pipeline.demo.row_delta import row_delta
from compaction_pipeline.demo.write_files import write_parquet_file
from compaction_pipeline_tests.interop.flink import Flink
from compaction_pipeline_tests.interop.warehouse import Compactions, Warehouse

pytestmark = pytest.mark.interop

SKIP_DELETES = {"streaming-skip-delete-snapshots": "true"}
SKIP_OVERWRITES = {"streaming-skip-overwrite-snapshots": "true"}


class Streamed:
    """A table of numbers, and a stream of Spark that reads it into a folder. The stream's checkpoint is kept between runs."""

    def __init__(self, warehouse: Warehouse, folder: Path, *properties: str) -> None:
        self.warehouse = warehouse
        self._folder = folder
        # With this setting a file of 2,000 rows is not small.
        settings = ", ".join(["'format-version'='2'", "'self-optimizing.target-size'='40000'", *properties])
        warehouse.sql(f"CREATE TABLE {{t}} (id BIGINT, name STRING) USING iceberg TBLPROPERTIES ({settings})")

    def append(self, first: int, last: int) -> None:
        """Append the rows `first` to `last - 1` as one file."""
        self.warehouse.sql(f"INSERT INTO {{t}} SELECT /*+ COALESCE(1) */ id, hex(xxhash64(id)) FROM range({first}, {last})")

    def delete(self, *ids: int) -> None:
        """Delete each id by its own equality-delete file, as a stream of changes does."""
        for number in ids:
            table = self.warehouse.table()
            keys = pa.table({"id": pa.array([number], pa.int64())})
            file = write_parquet_file(table, keys, content=FileContent.EQUALITY_DELETES, equality_ids=(1,), name=f"delete-{number}")
            row_delta(table, equality_deletes=[(file, [1])])

    def operations(self) -> list[str]:
        """The operations of the snapshots, oldest first."""
        return [snapshot.summary.operation.value for snapshot in self.warehouse.table().metadata.snapshots]

    def read(self, **options: str) -> list[int]:
        """Let the stream read all that is new. Returns the ids that it has emitted in all its runs, with repetitions."""
        spark, out = self.warehouse.spark, str(self._folder / "emitted")
        frame = spark.readStream.format("iceberg").options(**options).load(f"{self.warehouse.name}.db.t")
        writing = frame.writeStream.format("parquet").option("path", out).option("checkpointLocation", str(self._folder / "checkpoint"))
        writing.trigger(availableNow=True).start().awaitTermination()
        return sorted(row["id"] for row in spark.read.schema("id BIGINT").parquet(out).collect())


def _with_deletes(warehouse: Warehouse, folder: Path, *properties: str) -> Streamed:
    """A table of two small files and a large one, of which two rows are deleted by equality. The stream has read all of it."""
    table = Streamed(warehouse, folder, *properties)
    table.append(0, 3)
    table.append(3, 6)
    table.append(1000, 3000)
    table.delete(1001, 1002)
    assert table.read(**SKIP_DELETES) == [*range(6), *range(1000, 3000)]
    return table


def test_sparks_stream_skips_a_merge_and_reads_each_row_once(warehouse: Warehouse, compactions: Compactions, tmp_path: Path) -> None:
    table = Streamed(warehouse, tmp_path)
    table.append(0, 3)
    table.append(3, 6)
    assert table.read() == list(range(6))
    assert compactions.compact(CompactionType.MINOR).committed
    table.append(6, 9)
    assert table.operations() == ["append", "append", "replace", "append"]
    assert table.read() == list(range(9))


def test_sparks_stream_stops_at_a_conversion_until_it_is_told_to_skip_it(
    warehouse: Warehouse, compactions: Compactions, tmp_path: Path
) -> None:
    table = _with_deletes(warehouse, tmp_path)
    assert compactions.compact(CompactionType.MINOR).committed
    table.append(6, 9)
    assert table.operations()[-3:] == ["replace", "overwrite", "append"]
    with pytest.raises(Exception, match=r"Cannot process overwrite snapshot: \d+, .* set streaming-skip-overwrite-snapshots=true"):
        table.read(**SKIP_DELETES)
    assert table.read(**SKIP_DELETES, **SKIP_OVERWRITES) == [*range(9), *range(1000, 3000)]


def test_sparks_stream_goes_on_where_the_table_wants_no_conversions(warehouse: Warehouse, compactions: Compactions, tmp_path: Path) -> None:
    table = _with_deletes(warehouse, tmp_path, "'compaction.conversions.enabled'='false'")
    assert compactions.compact(CompactionType.MINOR).committed
    table.append(6, 9)
    assert table.operations()[-2:] == ["replace", "append"]
    assert "overwrite" not in table.operations()
    assert table.read(**SKIP_DELETES) == [*range(9), *range(1000, 3000)]


def test_flinks_stream_reads_each_appended_row_once_and_skips_our_commits(
    warehouse: Warehouse, compactions: Compactions, tmp_path: Path, flink_jvm: Any
) -> None:
    table = Streamed(warehouse, tmp_path)
    table.append(0, 3)
    first = warehouse.table().metadata.current_snapshot_id
    flink = Flink(flink_jvm, warehouse.name, warehouse.flink_catalog)
    options = (
        f"'streaming'='true', 'monitor-interval'='1s', 'starting-strategy'='INCREMENTAL_FROM_SNAPSHOT_ID', 'start-snapshot-id'='{first}'"
    )
    stream = flink.sql(f"SELECT id FROM {warehouse.name}.db.t /*+ OPTIONS({options}) */").collect()
    try:
        assert sorted(_next(stream, 3)) == [0, 1, 2]
        table.append(3, 6)
        table.append(1000, 3000)
        table.delete(1001, 1002)
        assert compactions.compact(CompactionType.MINOR).committed
        table.append(6, 9)
        assert table.operations()[-3:] == ["replace", "overwrite", "append"]
        # The stream emits deleted rows too, because it reads the appended files and applies no deletes.
        assert sorted(_next(stream, 2006)) == [*range(3, 9), *range(1000, 3000)]
        table.append(9, 10)
        # If the stream read rows twice, they would come before this row.
        assert list(_next(stream, 1)) == [9]
    finally:
        stream.close()


def _next(stream: Any, count: int) -> Iterator[int]:
    for _ in range(count):
        assert stream.hasNext()
        yield stream.next().getField(0)
