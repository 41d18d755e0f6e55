from __future__ import annotations

import json
import struct
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.manifest import DataFile, FileFormat
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.table.update import RemoveSchemasUpdate
from pyiceberg.transforms import BucketTransform, IdentityTransform
from pyiceberg.typedef import Record
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    LongType,
    NestedField,
    StringType,
    StructType,
    TimestampType,
    TimestamptzType,
    TimeType,
    UUIDType,
)

from compaction_pipeline.core.commit.ports import CommitState
from compaction_pipeline.core.errors import NotFoundError, StorageUnavailable, TableRefused
from compaction_pipeline.core.tables.data_file import FileContent
from compaction_pipeline.core.tables.table import TableIdentifier
from compaction_pipeline.demo.row_delta import row_delta
from compaction_pipeline.iceberg.commit.committer import IcebergCommitter
from compaction_pipeline.iceberg.manifests.entries import data_file_of
from compaction_pipeline.iceberg.manifests.lists import read_manifests, write_manifests
from compaction_pipeline.iceberg.manifests.partitions import PartitionReader, partition_record
from compaction_pipeline_tests.iceberg.lake import Lake, LakeTable


def test_a_table_without_snapshots_is_empty_and_not_refused(lake: Lake) -> None:
    head = lake.table().head()
    assert (head.snapshot_id, head.sequence_number, head.ancestors, head.refusal) == (None, 0, (), None)


def test_the_sequence_number_is_that_of_the_head_and_not_the_tables_last(lake: Lake) -> None:
    t = lake.table()
    t.ids(1)
    first = t.head().snapshot_id
    t.ids(2)
    t.table.refresh().manage_snapshots().rollback_to_snapshot(first).commit()
    head = t.head()
    assert (head.snapshot_id, head.sequence_number) == (first, 1)
    assert [one.snapshot_id for one in head.ancestors] == [first]


def test_live_files_have_all_that_the_rules_need(lake: Lake) -> None:
    t = lake.table()
    a, b = t.ids(1, 2), t.ids(3)
    t.delete_positions((a.path, 0))
    t.delete_positions((a.path, 1), (b.path, 0), referenced=False)
    bounded = t.delete_positions((b.path, 0), referenced=False)
    t.delete_ids(9)
    files = {file.path: file for file in t.files()}
    assert files[a.path].data_sequence_number == 1
    assert files[a.path].record_count == 2
    positions = sorted(
        (file for file in files.values() if file.content is FileContent.POSITION_DELETES), key=lambda one: one.data_sequence_number
    )
    # The delete files name their data file by field 143, not at all, and by equal path bounds.
    assert [file.referenced_data_file for file in positions] == [a.path, None, b.path]
    assert (positions[1].path_lower, positions[1].path_upper) == (a.path, b.path)
    assert positions[2].path == bounded.path
    (equality,) = [file for file in files.values() if file.content is FileContent.EQUALITY_DELETES]
    assert (equality.equality_ids, equality.data_sequence_number) == ((1,), 6)
    assert {file.manifest_path for file in files.values()} == {
        ref.path for ref in lake.scan.manifests(t.identifier, t.head().snapshot_id or 0)
    }


def test_an_unknown_snapshot_is_not_found(lake: Lake) -> None:
    t = lake.table()
    t.ids(1)
    t.head()
    with pytest.raises(NotFoundError, match="expired or rolled back"):
        lake.scan.manifests(t.identifier, 42)


def test_a_table_that_is_not_there_is_not_found(lake: Lake) -> None:
    with pytest.raises(NotFoundError, match=r"lake\.db\.none"):
        lake.scan.head(TableIdentifier("lake", ("db",), "none"))


@pytest.mark.parametrize(
    ("properties", "reason"),
    [
        ({"table-format": "MIXED_ICEBERG"}, "MIXED_ICEBERG"),
        ({"mixed-format.table-store": "change"}, "keyed"),
        ({"encryption.key-id": "k"}, "encrypted"),
    ],
)
def test_tables_that_are_never_compacted_say_why(lake: Lake, properties: dict[str, str], reason: str) -> None:
    assert reason in (lake.table(properties=properties).head().refusal or "")


def edited(t: LakeTable, **changes: Any) -> None:
    """Change the table's metadata file directly, to what another engine could write."""
    path = Path(t.table.refresh().metadata_location.removeprefix("file://"))
    metadata = json.loads(path.read_text())
    metadata.update({key.replace("_", "-"): value for key, value in changes.items()})
    path.write_text(json.dumps(metadata))


def test_a_current_snapshot_id_that_names_nothing_is_refused(lake: Lake) -> None:
    t = lake.table()
    t.ids(1)
    edited(t, current_snapshot_id=7, refs={"main": {"snapshot-id": 7, "type": "branch"}})
    assert "no such snapshot" in (t.head().refusal or "")


def test_format_version_3_is_refused(lake: Lake) -> None:
    t = lake.table()
    edited(t, format_version=3, next_row_id=0)
    assert "format version is 3" in (t.head().refusal or "")


def test_statistics_of_an_unknown_blob_type_do_not_hide_a_table(lake: Lake) -> None:
    t = lake.table()
    t.ids(1)
    t.ids(2)
    blob = {"type": "optimized-sequence", "snapshot-id": 1, "sequence-number": 1, "fields": []}
    statistics = {
        "snapshot-id": t.head().snapshot_id,
        "statistics-path": "file:///none.puffin",
        "file-size-in-bytes": 1,
        "file-footer-size-in-bytes": 1,
        "blob-metadata": [blob],
    }
    edited(t, statistics=[statistics])
    assert t.head().refusal is None
    t.commit(t.merge())
    written = json.loads(Path(t.table.refresh().metadata_location.removeprefix("file://")).read_text())
    assert written["statistics"][0]["blob-metadata"][0]["type"] == "optimized-sequence"


@pytest.mark.parametrize("kind", [FileFormat.AVRO, FileFormat.ORC])
def test_live_files_of_other_formats_are_refused(lake: Lake, kind: FileFormat, monkeypatch: pytest.MonkeyPatch) -> None:
    t = lake.table()

    def other_format(*args: Any) -> DataFile:
        file = data_file_of(*args)
        file[2] = kind
        return file

    with monkeypatch.context() as patch:
        patch.setattr("compaction_pipeline.demo.row_delta.data_file_of", other_format)
        t.ids(1)
    with pytest.raises(TableRefused, match=kind.value):
        t.files()


def test_a_missing_manifest_is_one_clear_error(lake: Lake) -> None:
    t = lake.table()
    t.ids(1)
    (ref,) = lake.scan.manifests(t.identifier, t.head().snapshot_id or 0)
    Path(ref.path.removeprefix("file://")).unlink()
    with pytest.raises(StorageUnavailable, match="is missing"):
        list(lake.scan.live_files(t.identifier, ref))


def test_a_corrupt_manifest_is_one_clear_error(lake: Lake) -> None:
    t = lake.table()
    t.ids(1)
    (ref,) = lake.scan.manifests(t.identifier, t.head().snapshot_id or 0)
    Path(ref.path.removeprefix("file://")).write_bytes(b"this is no Avro file, whatever its name says")
    with pytest.raises(StorageUnavailable, match="is corrupt"):
        list(lake.scan.live_files(t.identifier, ref))


def test_a_truncated_manifest_is_an_error(lake: Lake) -> None:
    t = lake.table()
    t.ids(1)
    t.ids(2)
    t.commit(t.merge())
    ref = next(ref for ref in lake.scan.manifests(t.identifier, t.head().snapshot_id or 0))
    path = Path(ref.path.removeprefix("file://"))
    path.write_bytes(path.read_bytes()[:-40])
    with pytest.raises(StorageUnavailable, match="is corrupt"):
        list(lake.scan.live_files(t.identifier, ref))


def test_a_manifest_list_truncated_anywhere_is_an_error(lake: Lake) -> None:
    t = lake.table()
    t.ids(1)
    t.ids(2)
    head = t.table.refresh().current_snapshot()
    assert head is not None
    path = Path(head.manifest_list.removeprefix("file://"))
    whole = path.read_bytes()
    header = whole.index(whole[-16:]) + 16
    for length in (*range(0, len(whole), 16), header, header + 1, header + 2, len(whole) - 1):
        path.write_bytes(whole[:length])
        with pytest.raises(StorageUnavailable, match=f"{path} is corrupt: .*roll the table back"):
            lake.scan.manifests(t.identifier, head.snapshot_id)
    path.write_bytes(whole)
    assert len(lake.scan.manifests(t.identifier, t.head().snapshot_id or 0)) == 2


def test_entries_that_were_merged_into_one_manifest_keep_their_sequences(lake: Lake) -> None:
    t = lake.table()
    a, b, c = t.ids(1), t.ids(2), t.ids(3)
    t.commit(t.merge([a.path, c.path]))
    kept = next(file for file in t.files() if file.path == b.path)
    assert kept.data_sequence_number == 2


def test_row_delta_is_one_snapshot_with_flinks_operations(lake: Lake) -> None:
    t = lake.table()
    t.ids(1, 2)
    data = t.data_file([{"id": 3, "name": "x"}])
    row_delta(t.table, [data], [], [(t.equality_file({"id": pa.array([1], pa.int64())}), [1])])
    t.delete_ids(2)
    operations = [one.summary.operation.value for one in t.table.refresh().metadata.snapshots if one.summary]
    assert operations == ["append", "overwrite", "delete"]
    assert t.live_ids() == [3]


VALUES: list[tuple[Any, Any, Any]] = [
    (BooleanType(), True, True),
    (LongType(), -5, -5),
    (DateType(), (date(2017, 11, 16) - date(1970, 1, 1)).days, "2017-11-16"),
    (TimeType(), 81068123456, "22:31:08.123456"),
    (TimestampType(), 1510871468123456, "2017-11-16T22:31:08.123456"),
    (TimestamptzType(), 1510871468123456, "2017-11-16T22:31:08.123456+00:00"),
    (DecimalType(9, 2), Decimal("14.20"), "14.20"),
    (DecimalType(38, 10), Decimal("0E-10"), "0.0000000000"),
    (StringType(), "a b/ü", "a b/ü"),
    (UUIDType(), UUID(int=7), str(UUID(int=7))),
    (BinaryType(), b"\x00\xff", "00ff"),
    (FixedType(2), b"\x01\x02", "0102"),
    (DoubleType(), float("inf"), "Infinity"),
    (DoubleType(), 1.5, 1.5),
    (StringType(), None, None),
]


@pytest.mark.parametrize(("kind", "raw", "json_value"), VALUES)
def test_partition_values_are_single_value_json_and_come_back(kind: Any, raw: Any, json_value: Any) -> None:
    struct_type = StructType(NestedField(1000, "p", kind))
    (value,) = PartitionReader(struct_type).read(Record(raw))
    assert (value.type, value.value) == (str(kind), json_value)
    back = partition_record(struct_type, (value,))[0]
    assert back == raw
    assert type(back) is type(raw)


@given(st.floats(width=64))
def test_every_double_comes_back_bit_for_bit(number: float) -> None:
    struct_type = StructType(NestedField(1000, "p", DoubleType()))
    back = partition_record(struct_type, PartitionReader(struct_type).read(Record(number)))[0]
    assert back != back if number != number else struct.pack(">d", back) == struct.pack(">d", number)


def test_partitions_that_python_calls_equal_stay_different(lake: Lake) -> None:
    reader = PartitionReader(StructType(NestedField(1000, "p", DoubleType())))
    assert reader.read(Record(0.0)) != reader.read(Record(-0.0))


def test_a_partition_of_an_old_spec_is_typed_by_its_dropped_column(lake: Lake) -> None:
    t = lake.table(spec=PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "name"), spec_id=0))
    t.insert({"id": 1, "name": "x"}, partition=Record("x"))
    with t.table.update_spec() as update:
        update.remove_field("name")
    with t.table.update_schema() as update:
        update.delete_column("name")
    (file,) = t.files()
    assert (file.partition[0].type, file.partition[0].value) == ("string", "x")


def test_an_equality_delete_that_names_no_column_is_refused(lake: Lake) -> None:
    """A merge that applied such a delete would delete every row that it reaches."""
    t = lake.table()
    t.ids(1, 2)
    delete = t.equality_file({"id": [1]})
    row_delta(t.table, equality_deletes=[(delete, [])])
    with pytest.raises(TableRefused, match=rf"equality delete {delete.path} names no columns"):
        t.files()


def test_partitions_whose_source_column_is_in_no_schema_any_more_are_refused(lake: Lake) -> None:
    t = lake.table(spec=PartitionSpec(PartitionField(2, 1000, BucketTransform(4), "bucket"), spec_id=0))
    t.insert({"id": 1, "name": "x"}, partition=Record(1))
    t.insert({"id": 2, "name": "y"}, partition=Record(2))
    with t.table.update_spec() as update:
        update.remove_field("bucket")
    with t.table.update_schema() as update:
        update.delete_column("name")
    assert len({file.partition for file in t.files()}) == 2
    # Spark's expire_snapshots does this when clean_expired_metadata is set.
    t.table.refresh()._do_commit(updates=(RemoveSchemasUpdate(schema_ids=[0]),), requirements=())
    with pytest.raises(TableRefused, match="cannot be told apart"):
        t.files()


def test_a_sql_catalog_gives_the_locations_of_all_tables_at_once(lake: Lake) -> None:
    one, two = lake.table("one"), lake.table("two")
    before = lake.scan.locations("lake")
    assert before == {table.identifier: table.head().metadata_location for table in (one, two)}
    two.ids(1)
    after = lake.scan.locations("lake")
    assert after[one.identifier] == before[one.identifier]
    assert after[two.identifier] == two.head().metadata_location != before[two.identifier]


def test_snapshots_of_v1_that_name_their_manifests_themselves_are_read_and_compacted(lake: Lake) -> None:
    t = lake.table(version=1)
    t.ids(1)
    t.ids(2)
    path = Path(t.table.refresh().metadata_location.removeprefix("file://"))
    metadata = json.loads(path.read_text())
    for snapshot in metadata["snapshots"]:
        one = t.table.snapshot_by_id(snapshot["snapshot-id"])
        assert one is not None
        snapshot["manifests"] = [manifest.manifest_path for manifest in one.manifests(t.table.io)]
        del snapshot["manifest-list"]
    path.write_text(json.dumps(metadata))
    old = {snapshot["snapshot-id"]: snapshot["manifests"] for snapshot in metadata["snapshots"]}
    assert sorted(file.record_count for file in t.files()) == [1, 1]
    assert t.commit(t.merge()).state is CommitState.COMMITTED
    assert t.live_ids() == [1, 2]
    written = json.loads(Path(t.table.refresh().metadata_location.removeprefix("file://")).read_text())
    # Time travel to older snapshots still shows the same rows.
    assert {one["snapshot-id"]: one["manifests"] for one in written["snapshots"] if "manifests" in one} == old


def test_a_commit_that_lost_a_race_reads_the_winner_of_a_table_whose_snapshots_name_their_manifests(lake: Lake) -> None:
    t = lake.table(version=1)
    t.ids(1), t.ids(2)
    merge, races = t.merge(), list[str]()
    with_list = _metadata_file(t)
    listed = with_list.read_text()
    _names_its_manifests(t)

    def another_writer(step: str) -> None:
        if step == "before-swap" and not races:
            races.append(step)
            # The writer of the tests needs the list of manifests that the metadata had.
            with_list.write_text(listed)
            t.ids(3)
            _names_its_manifests(t)

    lake.committer = IcebergCommitter(lake.catalogs, on_step=another_writer, sleep=lambda seconds: None)
    outcome = t.commit(merge)
    assert (outcome.state, outcome.attempts, races) == (CommitState.COMMITTED, 2, ["before-swap"])
    assert t.live_ids() == [1, 2, 3]


def _metadata_file(t: LakeTable) -> Path:
    return Path(t.table.refresh().metadata_location.removeprefix("file://"))


def _names_its_manifests(t: LakeTable) -> None:
    """Let each snapshot name its manifests itself, as early writers of format v1 did."""
    path = _metadata_file(t)
    metadata = json.loads(path.read_text())
    for snapshot in metadata["snapshots"]:
        if "manifest-list" in snapshot:
            one = t.table.snapshot_by_id(snapshot["snapshot-id"])
            assert one is not None
            snapshot["manifests"] = [manifest.manifest_path for manifest in one.manifests(t.table.io)]
            del snapshot["manifest-list"]
    path.write_text(json.dumps(metadata))


@pytest.mark.parametrize("version", [1, 2])
def test_a_snapshot_that_names_no_files_at_all_is_not_an_empty_table(lake: Lake, version: int) -> None:
    t = lake.table(version=version)
    t.ids(1)
    path = Path(t.table.refresh().metadata_location.removeprefix("file://"))
    metadata = json.loads(path.read_text())
    del metadata["snapshots"][-1]["manifest-list"]
    path.write_text(json.dumps(metadata))
    with pytest.raises(TableRefused, match="names neither a manifest list nor manifests"):
        t.files()


def test_a_manifest_that_a_list_names_twice_is_an_error(lake: Lake) -> None:
    t = lake.table()
    t.ids(1)
    snapshot = t.table.refresh().current_snapshot()
    assert snapshot is not None
    (manifest,) = read_manifests(t.table.io, snapshot)
    write_manifests(t.table.io, t.table.metadata, snapshot, [manifest, manifest])
    with pytest.raises(TableRefused, match=f"names the manifest {manifest.manifest_path} more than once"):
        t.files()


def test_the_commits_since_a_time_are_those_of_main(lake: Lake) -> None:
    t = lake.table()
    assert lake.scan.commits_since(t.identifier, datetime(2026, 1, 1, tzinfo=timezone.utc)) == {}
    t.ids(1)
    t.ids(2)
    t.table.refresh()
    first, second = (snapshot.snapshot_id for snapshot in t.table.metadata.snapshots)
    times = {one.snapshot_id: datetime.fromtimestamp(one.timestamp_ms / 1000, timezone.utc) for one in t.table.metadata.snapshots}
    assert lake.scan.commits_since(t.identifier, times[first]) == times
    assert lake.scan.commits_since(t.identifier, times[second] + timedelta(seconds=1)) == {}
    t.table.manage_snapshots().rollback_to_snapshot(first).commit()
    assert lake.scan.commits_since(t.identifier, times[first]) == {first: times[first]}
