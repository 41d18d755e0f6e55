"""Writes keyed tables from Spark DataFrames and from a stream: the rows, the files' nodes, and what is refused."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from compaction_pipeline.core.errors import ConfigError
from compaction_pipeline.core.tables.keyed.file_names import KeyedFileType, base_file, change_file
from compaction_pipeline.spark.session import SparkSessions, SparkSettings
from compaction_pipeline_tests.keyed.written import BY_REGION, Keyed, list_files, row
from compaction_pipeline_tests.reference_reader import Row, live_entries, metadata_of

pytestmark = pytest.mark.spark

_COLUMNS = "id long, region string, v string, day date, score double, ok boolean, tags array<long>, seq long, _change_type string"


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    sessions = SparkSessions(SparkSettings(master="local[2]", home=str(tmp_path_factory.mktemp("spark-home")), extra={}))
    yield sessions.session()
    sessions.stop()


def frame(spark: Any, *changes: tuple[str, Row, int], parts: int = 4) -> Any:
    rows = [(each["id"], each["region"], each["v"], None, None, None, None, seq, kind) for kind, each, seq in changes]
    return spark.createDataFrame(rows, _COLUMNS).repartition(parts)


def test_a_data_frame_is_written_by_node_in_the_order_of_a_column(spark: Any, tmp_path: Path) -> None:
    keyed = Keyed(tmp_path, key=("id", "region"), spec=BY_REGION, upsert=True)
    changes = [("INSERT", row(number, f"v{seq}", region), seq) for seq in range(3) for number in range(20) for region in ("eu", None)]
    changes += [("DELETE", row(number, None, "eu"), 5) for number in range(5)]
    assert keyed.table.write_changes(frame(spark, *changes), order_by="seq", sink_id="s", batch=0) == 1
    assert keyed.table.write_changes(frame(spark, *changes), order_by="seq", sink_id="s", batch=0) is None
    keyed.check([row(number, "v2", region) for number in range(20) for region in ("eu", None) if region is None or number >= 5])
    _, change = keyed.stores()
    writers = defaultdict(set)
    for entry in live_entries(metadata_of(change)):
        named = change_file(entry.path, entry.sequence)
        assert named.type in (KeyedFileType.INSERT, KeyedFileType.EQUALITY_DELETE)
        writers[named.node].add(entry.path.rsplit("/", 1)[1].split("-")[3])
    assert len(writers) == 4
    assert all(len(each) == 1 for each in writers.values()), "each node has one writer"


def test_a_data_frame_replaces_partitions_by_files_of_each_node(spark: Any, tmp_path: Path) -> None:
    keyed = Keyed(tmp_path, key=("id", "region"), spec=BY_REGION, upsert=True, buckets=2)
    keyed.write(*(("INSERT", row(number, "old", region)) for number in range(9) for region in ("eu", "us")))
    rows = [row(number, "new", "eu") for number in range(5, 30)]
    new = frame(spark, *(("", each, 0) for each in rows)).drop("seq", "_change_type")
    assert keyed.table.insert_overwrite(new, sink_id="s", batch=0) == 2
    assert keyed.table.insert_overwrite(new, sink_id="s", batch=0) is None
    keyed.check([*rows, *(row(number, "old", "us") for number in range(9))])
    entries = live_entries(metadata_of(keyed.stores()[0]))
    assert sorted((base_file(entry.path).node.id, base_file(entry.path).transaction_id) for entry in entries) == [(2, 2), (3, 2)]
    with pytest.raises(ConfigError, match="several rows have the key id=7, region='eu'"):
        keyed.table.insert_overwrite(new.union(new.where("id = 7")))
    keyed.check([*rows, *(row(number, "old", "us") for number in range(9))])


def test_two_changes_of_a_key_without_an_order_are_refused_and_leave_nothing(spark: Any, tmp_path: Path) -> None:
    keyed = Keyed(tmp_path)
    changes = [("INSERT", row(number), 0) for number in range(9)]
    assert keyed.table.write_changes(frame(spark, *changes).drop("seq")) == 1
    with pytest.raises(ConfigError, match=r"several changes of the key id=4, .* name a column in order_by"):
        keyed.table.write_changes(frame(spark, *changes, ("DELETE", row(4), 1)).drop("seq"))
    assert len(list_files(keyed)) == len(live_entries(metadata_of(keyed.stores()[1])))
    keyed.check([row(number) for number in range(9)])


def test_rows_that_do_not_fit_are_refused(spark: Any, tmp_path: Path) -> None:
    keyed = Keyed(tmp_path)
    with pytest.raises(ConfigError, match="have a column 'seq', but the table's columns are id"):
        keyed.table.write_changes(frame(spark, ("INSERT", row(1), 1)))
    assert list_files(keyed) == []


def test_an_empty_frame_leaves_only_its_mark(spark: Any, tmp_path: Path) -> None:
    keyed = Keyed(tmp_path)
    empty = frame(spark, ("INSERT", row(1), 1)).where("false")
    assert keyed.table.write_changes(empty, order_by="seq") is None
    assert keyed.table.write_changes(empty, order_by="seq", sink_id="s", batch=3) == 1
    keyed.check([])


def test_a_stream_writes_each_of_its_batches_once_when_it_starts_again(spark: Any, tmp_path: Path) -> None:
    keyed = Keyed(tmp_path / "lake", upsert=True)
    source, checkpoint = tmp_path / "source", tmp_path / "checkpoint"

    def arrive(number: int, *changes: tuple[str, Row, int]) -> None:
        frame(spark, *changes, parts=1).write.json(str(tmp_path / f"new-{number}"))
        source.mkdir(exist_ok=True)
        [written] = (tmp_path / f"new-{number}").glob("part-*.json")
        written.rename(source / f"{number}.json")

    def run() -> None:
        # The crash comes after the commit of the table, and before Spark notes that the batch is done.
        stream = spark.readStream.schema(_COLUMNS).json(str(source)).writeStream
        stream.option("checkpointLocation", str(checkpoint)).foreachBatch(write).trigger(availableNow=True).start().awaitTermination()

    crashes = [True]
    written: list[tuple[int, int | None]] = []

    def write(batch: Any, number: int) -> None:
        written.append((number, keyed.table.write_changes(batch, order_by="seq", sink_id="orders", batch=number)))
        if crashes:
            crashes.pop()
            raise RuntimeError("crashed")

    arrive(0, ("INSERT", row(1, "a"), 1), ("INSERT", row(2, "b"), 2))
    with pytest.raises(Exception, match="crashed"):
        run()
    run()
    arrive(1, ("INSERT", row(1, "c"), 3), ("DELETE", row(2, "b"), 4))
    run()
    assert written == [(0, 1), (0, None), (1, 2)]
    keyed.check([row(1, "c")])


def test_a_stream_merges_its_own_small_files(spark: Any, tmp_path: Path) -> None:
    keyed = Keyed(tmp_path / "lake", upsert=True, delta_rewrite=True)
    source, checkpoint = tmp_path / "source", tmp_path / "checkpoint"
    source.mkdir()
    for number in range(6):
        changes = [("INSERT", row(key, f"v{number}"), key) for key in range(number, number + 9)]
        frame(spark, *changes, parts=1).write.json(str(tmp_path / f"new-{number}"))
        [written] = (tmp_path / f"new-{number}").glob("part-*.json")
        written.rename(source / f"{number}.json")
    crashes, opened = [1], []

    def run() -> None:
        with keyed.table.merging_sink("orders") as sink:

            def write(batch: Any, number: int) -> None:
                sink.write_changes(batch, order_by="seq", batch=number)
                opened.append(len(live_entries(metadata_of(keyed.stores()[1]))))
                if crashes == [number]:
                    crashes.pop()
                    raise RuntimeError("crashed")

            reader = spark.readStream.schema(_COLUMNS).option("maxFilesPerTrigger", 1).json(str(source))
            stream = reader.writeStream.option("checkpointLocation", str(checkpoint)).foreachBatch(write)
            stream.trigger(availableNow=True).start().awaitTermination()

    with pytest.raises(Exception, match="crashed"):
        run()
    run()
    # Each batch left eight files. The last process has merged those of the four batches that it wrote itself.
    assert opened == [8, 16, 16, 24, 32, 40, 48]
    assert len(live_entries(metadata_of(keyed.stores()[1]))) == 16 + 8
    newest = {number + place: f"v{number}" for number in range(6) for place in range(9)}
    keyed.check([row(key, text) for key, text in newest.items()])
