"""Each rule of the commit, on real tables. A commit that breaks one of these rules loses, doubles or revives rows."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pytest
from pyiceberg.manifest import ManifestEntryStatus
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.snapshots import Operation
from pyiceberg.transforms import BucketTransform, IdentityTransform, VoidTransform
from pyiceberg.typedef import Record
from pyiceberg.types import IntegerType, LongType, NestedField, StringType

from compaction_pipeline.core.commit.ports import CommitState
from compaction_pipeline.core.commit.record import RECORD_ID_PROPERTY
from compaction_pipeline.core.tables.data_file import FileContent
from compaction_pipeline.demo.row_delta import row_delta
from compaction_pipeline.formats.avro.frames import read_frame
from compaction_pipeline.iceberg.commit.committer import IcebergCommitter
from compaction_pipeline.iceberg.rewrite_files import SnapshotChange, Transaction
from compaction_pipeline_tests.iceberg.lake import Lake

BY_NAME = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "name"), spec_id=0)


def test_a_merged_file_gets_the_sequence_number_of_its_plan(lake: Lake) -> None:
    t = lake.table()
    t.ids(1, 2)
    three = t.data_file([{"id": 3, "name": "new"}])
    old = t.data_file([{"id": 3, "name": "old"}])
    # Commit 2 inserts 3, updates it and deletes 2. A row of the same commit is deleted by position, as Flink does.
    row_delta(
        t.table,
        [old, three],
        [t.position_file([(old.path, 0)])],
        [(t.equality_file({"id": pa.array([2, 3], pa.int64())}), [1])],
    )
    assert t.live_ids() == [1, 3]
    merge = t.merge()
    t.delete_ids(3)
    outcome = t.commit(merge)
    assert outcome.state is CommitState.COMMITTED
    assert t.live_ids() == [1]
    merged = next(file for file in t.files() if file.is_data)
    assert merged.data_sequence_number == 2
    entry = next(entry for entry in t.entries() if entry.data_file.file_path == merged.path)
    assert (entry.sequence_number, entry.file_sequence_number) == (2, 4)


def test_a_merge_that_was_planned_at_a_sequence_number_above_the_table_s_last_one_is_refused(lake: Lake) -> None:
    """A catalog's database was restored. With the number of its plan, the merged file would be newer than the next deletes."""
    t = lake.table()
    for one in range(3):
        t.ids(one)
    restored = t.table.refresh().metadata_location
    for _ in range(3):
        transaction = Transaction(t.table.refresh())
        transaction.stage(SnapshotChange(Operation.REPLACE, [], []))
        transaction.commit()
    merge = t.merge()
    lake.catalog.drop_table(t.table.name())
    t.table = lake.catalog.register_table(t.table.name(), restored)
    outcome = t.commit(merge)
    assert outcome.state is CommitState.NOTHING
    assert "snapshots were rolled back since" in outcome.conflicts[merge.task_id]
    t.delete_ids(1)
    assert t.live_ids() == [0, 2]


def test_a_merge_is_one_replace_snapshot_that_carries_the_record(lake: Lake) -> None:
    t = lake.table()
    t.ids(1, 2)
    t.ids(3)
    t.delete_ids(2)
    outcome = t.commit(t.merge())
    t.table.refresh()
    snapshot = t.table.current_snapshot()
    assert snapshot is not None
    assert snapshot.summary is not None
    assert snapshot.summary.operation is Operation.REPLACE
    assert snapshot.summary[RECORD_ID_PROPERTY] == "record-1"
    assert (outcome.snapshot_before, outcome.snapshot_after) == (snapshot.parent_snapshot_id, snapshot.snapshot_id)
    totals = {key: snapshot.summary[key] for key in ("total-data-files", "total-delete-files", "total-records", "total-equality-deletes")}
    assert totals == {"total-data-files": "1", "total-delete-files": "0", "total-records": "2", "total-equality-deletes": "0"}
    assert snapshot.summary["removed-delete-files"] == "1"
    figures = outcome.figures
    assert (figures.files_before, figures.files_after, figures.delete_files_before, figures.delete_files_after) == (2, 1, 1, 0)
    assert (figures.input_files, figures.output_files, figures.delete_files_dropped) == (2, 1, 1)
    assert t.live_ids() == [1, 3]


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize(("said", "avro"), [("uncompressed", "null"), ("UNCOMPRESSED", "null"), ("gzip", "deflate")])
def test_manifests_of_a_commit_have_the_codec_of_the_table(lake: Lake, version: int, said: str, avro: str) -> None:
    t = lake.table(version=version, properties={"write.avro.compression-codec": said})
    t.ids(1)
    t.ids(2)
    assert t.commit(t.merge()).state is CommitState.COMMITTED
    snapshot = t.table.refresh().current_snapshot()
    assert snapshot is not None
    for path in (snapshot.manifest_list, *(manifest.manifest_path for manifest in snapshot.manifests(t.table.io))):
        with t.table.io.new_input(path).open() as stream:
            assert read_frame(stream.read()).meta["avro.codec"] == avro.encode()
    assert t.live_ids() == [1, 2]


def test_removed_files_stay_visible_as_deleted_with_their_own_sequences(lake: Lake) -> None:
    t = lake.table()
    first, second = t.ids(1), t.ids(2)
    outcome = t.commit(t.merge())
    gone = {entry.data_file.file_path: entry for entry in t.entries() if entry.status == ManifestEntryStatus.DELETED}
    assert set(gone) == {first.path, second.path}
    assert {entry.snapshot_id for entry in gone.values()} == {outcome.snapshot_after}
    assert (gone[first.path].sequence_number, gone[second.path].sequence_number) == (1, 2)


def test_an_input_that_is_gone_is_a_conflict_and_the_rest_is_committed(lake: Lake) -> None:
    t = lake.table()
    files = [t.ids(number).path for number in range(1, 5)]
    lost, kept = t.merge(files[:2], "lost"), t.merge(files[2:], "kept")
    t.commit(t.merge(files[:2], "foreign"), record="foreign")
    outcome = t.commit(lost, kept)
    assert outcome.state is CommitState.COMMITTED
    assert outcome.committed == ("kept",)
    assert "no longer live" in outcome.conflicts["lost"]
    assert t.live_ids() == [1, 2, 3, 4]


def test_concurrent_appends_are_no_conflict(lake: Lake) -> None:
    t = lake.table()
    t.ids(1)
    t.ids(2)
    merge = t.merge()
    t.ids(3)
    assert t.commit(merge).state is CommitState.COMMITTED
    assert t.live_ids() == [1, 2, 3]


def test_a_new_position_delete_on_an_input_is_a_conflict(lake: Lake) -> None:
    t = lake.table()
    file = t.ids(1, 2)
    merge = t.merge()
    t.delete_positions((file.path, 0))
    outcome = t.commit(merge)
    assert outcome.state is CommitState.NOTHING
    reason = outcome.conflicts["m1"]
    assert reason.startswith("it did not apply delete file")
    assert reason.endswith("by position")
    assert t.live_ids() == [2]


def test_a_partition_scoped_position_delete_conflicts_only_when_it_holds_an_input(lake: Lake) -> None:
    t = lake.table()
    a, b, c = t.ids(1, 2), t.ids(3, 4), t.ids(5, 6)
    middle, outer = t.merge([b.path], "middle"), t.merge([a.path, c.path], "outer")
    # The bounds of this delete file span all three paths.
    t.delete_positions((a.path, 0), (c.path, 0), referenced=False)
    outcome = t.commit(middle, outer)
    assert outcome.committed == ("middle",)
    assert set(outcome.conflicts) == {"outer"}
    assert t.live_ids() == [2, 3, 4, 6]


def test_an_applied_delete_that_is_gone_is_a_conflict(lake: Lake) -> None:
    t = lake.table()
    t.ids(1, 2)
    before = t.head().snapshot_id
    t.delete_ids(2)
    merge = t.merge()
    t.table.manage_snapshots().rollback_to_snapshot(before).commit()
    assert t.live_ids() == [1, 2]
    outcome = t.commit(merge)
    assert "it applied delete file" in outcome.conflicts["m1"]
    assert "which is no longer live" in outcome.conflicts["m1"]
    assert t.live_ids() == [1, 2]


def test_rollback_past_an_input_is_a_conflict(lake: Lake) -> None:
    t = lake.table()
    t.ids(1)
    before = t.head().snapshot_id
    t.ids(2)
    merge = t.merge()
    t.table.manage_snapshots().rollback_to_snapshot(before).commit()
    assert t.commit(merge).state is CommitState.NOTHING
    assert t.live_ids() == [1]


def test_an_older_equality_delete_that_the_merge_did_not_apply_is_a_conflict(lake: Lake) -> None:
    t = lake.table()
    t.ids(1, 2)
    t.delete_ids(2)
    merge = t.merge()
    outcome = t.commit(replace(merge, work=replace(merge.work, deletes=())))
    assert "existed when the task was planned" in outcome.conflicts["m1"]


def test_an_equality_delete_by_a_column_that_the_output_lost_is_a_conflict(lake: Lake) -> None:
    t = lake.table()
    t.ids(1, 2)
    with t.table.update_schema() as update:
        update.delete_column("name")
    merge = t.merge()
    # A writer that started before the schema change deletes by the dropped column.
    from compaction_pipeline.demo.write_files import write_parquet_file

    delete = write_parquet_file(
        t.table, pa.table({"name": ["n2"]}), content=FileContent.EQUALITY_DELETES, equality_ids=[2], name="late", schema_id=0
    )
    row_delta(t.table, equality_deletes=[(delete, [2])])
    assert t.live_ids() == [1]
    outcome = t.commit(merge)
    assert "column id 2" in outcome.conflicts["m1"]
    assert t.live_ids() == [1]


def test_a_delete_that_reaches_the_inputs_but_not_the_moved_output_is_a_conflict(lake: Lake) -> None:
    t = lake.table()
    t.ids(1, 2)
    with t.table.update_spec() as update:
        update.add_field("name", IdentityTransform(), "by_name")
    t.table.refresh()
    t.new_partition = Record("x")
    moved = t.merge(output_spec_id=1)
    # A global delete reaches both the inputs and the output, so the merge is committed.
    t.delete_ids(1, spec_id=0)
    outcome = t.commit(moved)
    assert outcome.state is CommitState.COMMITTED
    assert t.live_ids() == [2]


def test_a_delete_of_the_new_spec_that_would_reach_moved_rows_is_a_conflict(lake: Lake) -> None:
    t = lake.table()
    t.ids(1, 2)
    with t.table.update_spec() as update:
        update.add_field("name", IdentityTransform(), "by_name")
    t.table.refresh()
    t.new_partition = Record("x")
    moved = t.merge(output_spec_id=1)
    t.delete_ids(1, spec_id=1, partition=Record("x"))
    assert t.live_ids() == [1, 2]
    outcome = t.commit(moved)
    assert "does not reach all the task's inputs" in outcome.conflicts["m1"]
    assert t.live_ids() == [1, 2]


def test_a_delete_of_the_old_spec_that_would_miss_moved_rows_is_a_conflict(lake: Lake) -> None:
    t = lake.table(spec=BY_NAME)
    t.insert({"id": 1, "name": "x"}, {"id": 2, "name": "x"}, partition=Record("x"))
    with t.table.update_spec() as update:
        update.add_field("id", BucketTransform(2), "by_id")
    t.table.refresh()
    t.new_partition = Record("x", 0)
    moved = t.merge(output_spec_id=1)
    t.delete_ids(1, spec_id=0, partition=Record("x"))
    outcome = t.commit(moved)
    assert "would not reach the task's outputs" in outcome.conflicts["m1"]
    assert t.live_ids() == [2]


def test_a_delete_file_stays_while_another_planned_task_still_needs_it(lake: Lake) -> None:
    t = lake.table()
    a = t.ids(1, 2)
    early = t.merge([a.path], "early")
    b = t.ids(3, 4)
    delete = t.delete_ids(2, 4)
    late = t.merge([b.path], "late")
    # The output of `early` has sequence number 1, so it still needs the delete with sequence number 3 that `late` applied.
    outcome = t.commit(early, late)
    assert set(outcome.committed) == {"early", "late"}
    assert t.paths(FileContent.EQUALITY_DELETES) == {delete.path}
    assert t.live_ids() == [1, 3]


def test_a_delete_file_goes_when_the_last_file_that_needs_it_is_merged(lake: Lake) -> None:
    t = lake.table()
    a, b = t.ids(1, 2), t.ids(3, 4)
    delete = t.delete_ids(2, 4)
    t.commit(t.merge([a.path], "one"), record="r1")
    assert t.paths(FileContent.EQUALITY_DELETES) == {delete.path}
    t.commit(t.merge([b.path], "two"), record="r2")
    assert t.paths(FileContent.EQUALITY_DELETES) == set()
    assert t.live_ids() == [1, 3]


def test_a_partition_scoped_position_delete_is_needed_while_one_path_in_it_lives(lake: Lake) -> None:
    t = lake.table()
    a, b = t.ids(1, 2), t.ids(3, 4)
    delete = t.delete_positions((a.path, 0), (b.path, 0), referenced=False)
    t.commit(t.merge([a.path], "one"), record="r1")
    assert t.paths(FileContent.POSITION_DELETES) == {delete.path}
    t.commit(t.merge([b.path], "two"), record="r2")
    assert t.paths(FileContent.POSITION_DELETES) == set()
    assert t.live_ids() == [2, 4]


def test_a_merge_drops_a_delete_that_only_its_inputs_needed_and_a_needed_one_is_not_dropped(lake: Lake) -> None:
    t = lake.table()
    t.ids(1)
    t.delete_ids(7)
    t.commit(t.merge(), record="r1")
    # This delete reaches only the file with row 1, which the next merge rewrites. `kept` is newer than the delete.
    old = t.delete_ids(1)
    kept = t.ids(5)
    t.commit(t.merge([file.path for file in t.files() if file.is_data and file.path != kept.path], "m2"), record="r2")
    assert old.path not in t.paths(FileContent.EQUALITY_DELETES)
    late = t.delete_ids(99)
    outcome = t.commit(t.drop())
    assert outcome.state is CommitState.NOTHING
    assert late.path in t.paths(FileContent.EQUALITY_DELETES)


def test_a_drop_task_drops_only_dangling_delete_files(lake: Lake) -> None:
    t = lake.table()
    dangling = t.delete_ids(1)
    t.ids(1, 2)
    useful = t.delete_ids(2)
    outcome = t.commit(t.drop())
    assert outcome.committed == ("d1",)
    assert t.paths(FileContent.EQUALITY_DELETES) == {useful.path}
    assert dangling.path not in t.paths(FileContent.EQUALITY_DELETES)
    t.table.refresh()
    snapshot = t.table.current_snapshot()
    assert snapshot is not None
    assert snapshot.summary is not None
    assert snapshot.summary.operation is Operation.REPLACE
    assert t.live_ids() == [1]


def test_everything_deleted_leaves_no_file_and_no_empty_manifest(lake: Lake) -> None:
    t = lake.table()
    t.ids(1)
    t.delete_ids(1)
    assert t.commit(t.merge()).state is CommitState.COMMITTED
    assert t.files() == []
    t.ids(2)
    t.ids(3)
    t.commit(t.merge(), record="record-2")
    t.table.refresh()
    snapshot = t.table.current_snapshot()
    assert snapshot is not None
    for manifest in snapshot.manifests(t.table.io):
        assert manifest.added_snapshot_id == snapshot.snapshot_id or manifest.has_added_files() or manifest.has_existing_files()
    assert t.live_ids() == [2, 3]


# ---- conversions -----------------------------------------------------------------------------------------------------


def test_a_conversion_is_an_overwrite_snapshot_and_keeps_the_data_files(lake: Lake) -> None:
    t = lake.table()
    a, b = t.ids(1, 2), t.ids(3, 4)
    delete = t.delete_ids(2, 3)
    outcome = t.commit(t.convert([a.path, b.path], [delete.path]))
    assert outcome.state is CommitState.COMMITTED
    assert t.paths(FileContent.DATA) == {a.path, b.path}
    assert t.paths(FileContent.EQUALITY_DELETES) == set()
    positions = [file for file in t.files() if file.content is FileContent.POSITION_DELETES]
    assert {file.referenced_data_file for file in positions} == {a.path, b.path}
    # The new delete files inherit the sequence number of the new snapshot.
    assert {file.data_sequence_number for file in positions} == {4}
    t.table.refresh()
    snapshot = t.table.current_snapshot()
    assert snapshot is not None
    assert snapshot.summary is not None
    assert snapshot.summary.operation is Operation.OVERWRITE
    assert snapshot.summary[RECORD_ID_PROPERTY] == "record-1"
    assert t.live_ids() == [1, 4]


def test_merges_and_conversions_are_two_snapshots_of_one_transaction(lake: Lake) -> None:
    t = lake.table()
    a, b = t.ids(1, 2), t.ids(3, 4)
    delete = t.delete_ids(2, 3)
    outcome = t.commit(t.merge([a.path], "m1"), t.convert([b.path], [delete.path], "c1"))
    assert set(outcome.committed) == {"m1", "c1"}
    t.table.refresh()
    history = t.table.metadata.snapshots[-2:]
    assert [one.summary.operation for one in history if one.summary] == [Operation.REPLACE, Operation.OVERWRITE]
    assert history[1].parent_snapshot_id == history[0].snapshot_id
    assert t.paths(FileContent.EQUALITY_DELETES) == set()
    assert t.live_ids() == [1, 4]
    assert outcome.figures.delete_files_dropped == 1
    assert outcome.figures.delete_files_added == 1
    assert outcome.figures.delete_files_after == 1


def test_a_conversion_whose_delete_is_still_needed_fails(lake: Lake) -> None:
    t = lake.table()
    a, b = t.ids(1, 2), t.ids(3, 4)
    delete = t.delete_ids(2, 3)
    outcome = t.commit(t.convert([a.path], [delete.path]))
    assert outcome.state is CommitState.NOTHING
    assert "cannot be dropped" in outcome.conflicts["c1"]
    assert t.paths(FileContent.EQUALITY_DELETES) == {delete.path}
    assert b.path in t.paths(FileContent.DATA)


def test_a_conversion_that_lost_its_input_does_not_fail_others_of_the_same_deletes(lake: Lake) -> None:
    t = lake.table()
    a, b, c = t.ids(1, 2), t.ids(3, 4), t.ids(5, 6)
    first = t.delete_ids(2, 3)
    second = t.delete_ids(4, 5)
    one = t.convert([a.path], [first.path, second.path], "one")
    two = t.convert([b.path], [first.path, second.path], "two")
    three = t.convert([c.path], [first.path, second.path], "three")
    t.commit(t.merge([c.path], "foreign"), record="foreign")
    # `three` has lost its input, so it no longer needs the deletes, and the other two tasks are committed.
    outcome = t.commit(one, two, three)
    assert set(outcome.committed) == {"one", "two"}
    assert t.live_ids() == [1, 6]


def test_a_failed_merge_fails_the_conversions_of_its_delete(lake: Lake) -> None:
    t = lake.table()
    a, b = t.ids(1, 2), t.ids(3, 4)
    delete = t.delete_ids(2, 3)
    merge, convert = t.merge([a.path], "m1"), t.convert([b.path], [delete.path], "c1")
    t.delete_positions((a.path, 0))
    outcome = t.commit(merge, convert)
    assert outcome.state is CommitState.NOTHING
    assert set(outcome.conflicts) == {"m1", "c1"}
    assert t.live_ids() == [4]


def test_new_position_deletes_on_a_converted_file_are_no_conflict(lake: Lake) -> None:
    t = lake.table()
    a = t.ids(1, 2, 3)
    delete = t.delete_ids(2)
    convert = t.convert([a.path], [delete.path])
    later = t.delete_positions((a.path, 0))
    assert t.commit(convert).state is CommitState.COMMITTED
    assert later.path in t.paths(FileContent.POSITION_DELETES)
    assert t.live_ids() == [3]


def test_several_position_deletes_become_one(lake: Lake) -> None:
    t = lake.table()
    a = t.ids(1, 2, 3)
    deletes = [t.delete_positions((a.path, 0)).path, t.delete_positions((a.path, 1)).path]
    assert t.commit(t.convert([a.path], deletes)).state is CommitState.COMMITTED
    assert len(t.paths(FileContent.POSITION_DELETES)) == 1
    assert t.live_ids() == [3]


# ---- manifests, specs and schemas ------------------------------------------------------------------------------------


def test_referenced_data_file_survives_when_a_delete_manifest_is_carried_over(lake: Lake) -> None:
    t = lake.table()
    a, b = t.ids(1, 2), t.ids(3, 4)
    files = [t.position_file([(a.path, 0)]), t.position_file([(b.path, 0)])]
    row_delta(t.table, position_deletes=files)
    t.commit(t.merge([a.path]))
    entries = [entry["data_file"] for entry in t.judged_entries() if entry["data_file"]["file_path"] == files[1].path]
    assert [entry["referenced_data_file"] for entry in entries] == [b.path]
    assert t.paths(FileContent.POSITION_DELETES) == {files[1].path}
    assert t.live_ids() == [2, 4]


def test_manifests_say_int_equality_ids_and_their_content(lake: Lake) -> None:
    import json

    import fastavro

    t = lake.table()
    t.ids(1)
    t.delete_ids(1)
    snapshot = t.table.refresh().current_snapshot()
    assert snapshot is not None
    manifest = next(one for one in snapshot.manifests(t.table.io) if one.content == 1)
    with open(manifest.manifest_path.removeprefix("file://"), "rb") as source:
        reader = fastavro.reader(source)
        fields = {field["name"]: field for field in _data_file(json.loads(reader.metadata["avro.schema"]))}
        assert reader.metadata["content"] == "deletes"
    ids = next(part for part in fields["equality_ids"]["type"] if part != "null")
    assert ids["items"] == "int"
    assert "referenced_data_file" in fields


def _data_file(schema: dict[str, object]) -> list[dict[str, object]]:
    fields = schema["fields"]
    assert isinstance(fields, list)
    return next(field["type"]["fields"] for field in fields if field["name"] == "data_file")


def test_min_sequence_number_is_over_live_entries(lake: Lake) -> None:
    t = lake.table()
    t.ids(1)
    t.ids(2)
    merge = t.merge()
    t.ids(3)
    t.commit(merge)
    snapshot = t.table.refresh().current_snapshot()
    assert snapshot is not None
    ours = next(one for one in snapshot.manifests(t.table.io) if one.added_snapshot_id == snapshot.snapshot_id)
    assert (ours.sequence_number, ours.min_sequence_number) == (4, 2)


def test_one_manifest_per_content_and_spec(lake: Lake) -> None:
    t = lake.table()
    for number in range(5):
        t.ids(number)
    t.delete_ids(1)
    t.delete_ids(2)
    outcome = t.commit(t.merge())
    snapshot = t.table.refresh().current_snapshot()
    assert snapshot is not None
    ours = [one for one in snapshot.manifests(t.table.io) if one.added_snapshot_id == outcome.snapshot_after]
    assert sorted((int(one.content), one.partition_spec_id) for one in ours) == [(0, 0), (1, 0)]
    assert len(snapshot.manifests(t.table.io)) == 2


def test_files_of_an_old_spec_whose_source_column_was_dropped_keep_their_partition(lake: Lake) -> None:
    t = lake.table(spec=BY_NAME)
    t.insert({"id": 1, "name": "x"}, partition=Record("x"))
    t.insert({"id": 2, "name": "x"}, partition=Record("x"))
    other = t.insert({"id": 3, "name": "y"}, partition=Record("y"))
    with t.table.update_spec() as update:
        update.remove_field("name")
    with t.table.update_schema() as update:
        update.delete_column("name")
    t.table.refresh()
    inputs = [file for file in t.files() if file.path != other.path]
    assert [file.partition[0].value for file in inputs] == ["x", "x"]
    assert t.commit(t.merge([file.path for file in inputs])).state is CommitState.COMMITTED
    merged = next(file for file in t.files() if file.path != other.path)
    assert (merged.spec_id, str(merged.partition[0])) == (0, "name=x")
    assert t.live_ids() == [1, 2, 3]


def test_a_spec_of_void_transforms_is_unpartitioned(lake: Lake) -> None:
    void = PartitionSpec(PartitionField(2, 1000, VoidTransform(), "name"), spec_id=0)
    t = lake.table(spec=void)
    t.insert({"id": 1, "name": "x"}, {"id": 2, "name": "x"}, partition=Record(None))
    merge = t.merge()
    t.delete_ids(2, partition=Record(None))
    assert t.head().layout.unpartitioned_spec_ids == {0}
    assert t.commit(merge).state is CommitState.COMMITTED
    assert t.live_ids() == [1]


def test_a_promoted_partition_source_still_fits(lake: Lake) -> None:
    from pyiceberg.types import IntegerType

    schema = Schema(
        NestedField(1, "id", LongType(), required=True), NestedField(2, "name", StringType()), NestedField(3, "k", IntegerType())
    )
    t = lake.table(schema=schema, spec=PartitionSpec(PartitionField(3, 1000, IdentityTransform(), "k"), spec_id=0))
    t.insert({"id": 1, "name": "a", "k": 7}, partition=Record(7))
    t.insert({"id": 2, "name": "b", "k": 7}, partition=Record(7))
    merge = t.merge()
    with t.table.update_schema() as update:
        update.update_column("k", LongType())
    assert t.commit(merge).state is CommitState.COMMITTED
    (merged,) = t.files()
    assert (merged.partition[0].type, merged.partition[0].value) == ("long", 7)
    assert t.live_ids() == [1, 2]


def test_a_v1_table_is_compacted(lake: Lake) -> None:
    t = lake.table(version=1)
    t.ids(1)
    t.ids(2)
    outcome = t.commit(t.merge())
    assert outcome.state is CommitState.COMMITTED
    assert len(t.files()) == 1
    assert t.live_ids() == [1, 2]
    assert sorted(t.table.refresh().scan().to_arrow()["id"].to_pylist()) == [1, 2]


def test_a_table_upgraded_to_v2_between_plan_and_commit_keeps_its_rows(lake: Lake) -> None:
    t = lake.table(version=1)
    t.ids(1, 2)
    t.ids(3)
    merge = t.merge()
    with t.table.transaction() as transaction:
        transaction.upgrade_table_version(2)
    t.delete_ids(2)
    assert t.commit(merge).state is CommitState.COMMITTED
    assert t.live_ids() == [1, 3]


def test_other_branches_and_tags_keep_what_they_see(lake: Lake) -> None:
    t = lake.table()
    t.ids(1)
    t.ids(2)
    snapshot_id = t.head().snapshot_id
    assert snapshot_id is not None
    t.table.refresh()
    t.table.manage_snapshots().create_tag(snapshot_id, "audit").create_branch(snapshot_id, "dev").commit()
    t.commit(t.merge())
    t.table.refresh()
    assert {name: ref.snapshot_id for name, ref in t.table.metadata.refs.items() if name != "main"} == {
        "audit": snapshot_id,
        "dev": snapshot_id,
    }


@pytest.mark.parametrize("count", [1, 2])
def test_two_tasks_with_one_input_are_never_both_committed(lake: Lake, count: int) -> None:
    t = lake.table()
    a, b = t.ids(1), t.ids(2)
    outcome = t.commit(t.merge([a.path, b.path], "one"), *([t.merge([b.path], "two")] * (count - 1)))
    assert outcome.committed == ("one",)
    assert len(outcome.conflicts) == count - 1
    assert t.live_ids() == [1, 2]


def test_a_delete_that_comes_with_a_promotion_between_two_attempts_stays(lake: Lake) -> None:
    by_p = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "p"), spec_id=0)
    t = lake.table(schema=Schema(NestedField(1, "id", LongType()), NestedField(2, "p", IntegerType())), spec=by_p)
    dangling = t.delete_ids(9, partition=Record(5))
    t.insert({"id": 1, "p": 5}, {"id": 2, "p": 5}, partition=Record(5))
    drop = t.drop()
    writers = iter(["one"])

    def write_first(step: str) -> None:
        if step == "before-swap" and next(writers, None):
            with t.table.update_schema() as update:
                update.update_column("p", LongType())
            t.delete_ids(1, partition=Record(5))

    outcome = IcebergCommitter(lake.catalogs, on_step=write_first, sleep=lambda seconds: None).commit(t.identifier, "record-1", [drop])
    assert (outcome.state, outcome.attempts) == (CommitState.COMMITTED, 2)
    assert dangling.path not in t.paths(FileContent.EQUALITY_DELETES)
    assert t.live_ids() == [2]


@pytest.mark.parametrize("together", [True, False], ids=["one manifest", "two manifests"])
def test_a_file_that_is_live_twice_is_never_taken(lake: Lake, together: bool) -> None:
    t = lake.table()
    file = t.data_file([{"id": 1, "name": "x"}])
    # This is what `add_files` does without its check for duplicates.
    for files in [[file, file]] if together else [[file], [file]]:
        row_delta(t.table, files)
    other = t.ids(2)
    outcome = t.commit(t.merge([file.path, other.path], "both"), t.merge([other.path], "other"))
    assert "live more than once" in outcome.conflicts["both"]
    assert outcome.committed == ("other",)
    assert t.live_ids() == [1, 1, 2]


def test_a_delete_of_the_older_copy_of_a_file_that_is_live_twice_stays(lake: Lake) -> None:
    t = lake.table()
    file = t.insert({"id": 1, "name": "x"})
    delete = t.delete_positions((file.path, 0))
    row_delta(t.table, [file])
    other = t.ids(2)
    assert t.live_ids() == [1, 2]
    assert t.commit(t.merge([other.path])).state is CommitState.COMMITTED
    assert t.paths(FileContent.POSITION_DELETES) == {delete.path}
    assert t.live_ids() == [1, 2]


def test_a_delete_file_that_is_live_twice_is_never_dropped(lake: Lake) -> None:
    """The older copy applies to no data file any more, but the younger one does. A removal by path cannot tell them apart."""
    t = lake.table(spec=BY_NAME)

    def inserted(*ids: int, name: str = "b") -> str:
        return t.insert(*({"id": one, "name": name} for one in ids), partition=Record(name)).path

    first = inserted(1, name="a")
    again = t.equality_file({"id": pa.array([1], pa.int64())}, partition=Record("a"))
    merged = []
    for ids in ((10, 11), (12, 13)):
        merged.append(inserted(*ids))
        positions = t.position_file([(merged[-1], 0)], partition=Record("b"))
        row_delta(t.table, position_deletes=[positions], equality_deletes=[(again, [1])])
        inserted(1, 2, name="a")
    # When both position deletes are dropped, the two copies come into one manifest.
    assert t.commit(t.merge(merged, "m1"), record="record-1").state is CommitState.COMMITTED
    copies = [file for file in t.files() if file.path == again.path]
    assert (len(copies), len({file.manifest_path for file in copies})) == (2, 1)
    # Somebody removes the data files that only the older copy reached.
    gone = Transaction(t.table.refresh())
    gone.stage(SnapshotChange(Operation.DELETE, removed=[file for file in t.files() if file.path == first]))
    gone.commit()
    rows = t.live_ids()
    assert rows == [1, 2, 2, 11, 13]
    inserted(14)
    kept = [file.path for file in t.files() if file.is_data and file.partition[0].value == "b"]
    assert t.commit(t.merge(kept, "m2"), record="record-2").state is CommitState.COMMITTED
    assert t.live_ids() == [*rows, 14]
    assert len([file for file in t.files() if file.path == again.path]) == 2


@pytest.mark.parametrize("converts", [True, False])
def test_a_task_that_applied_a_delete_file_that_is_live_twice_is_a_conflict(lake: Lake, converts: bool) -> None:
    t = lake.table()
    first = t.ids(1, 2)
    again = t.delete_ids(1)
    second = t.ids(1, 3)
    row_delta(t.table, equality_deletes=[(again, [1])])
    inputs = [first.path, second.path]
    outcome = t.commit(t.convert(inputs, [again.path], "m1") if converts else t.merge(inputs))
    assert outcome.state is CommitState.NOTHING
    assert "live more than once" in outcome.conflicts["m1"]
    assert t.live_ids() == [2, 3]


def test_a_delete_file_that_was_added_once_more_since_the_plan_is_a_conflict(lake: Lake) -> None:
    """The second copy has the old partition spec, so it would not reach rows that a merge moved to the new spec."""
    t = lake.table(spec=BY_NAME)
    t.insert({"id": 1, "name": "a"}, partition=Record("a"))
    again = t.delete_ids(1, partition=Record("a"))
    t.insert({"id": 1, "name": "a"}, {"id": 2, "name": "a"}, partition=Record("a"))
    with t.table.update_spec() as update:
        update.remove_field("name")
    t.new_partition = Record()
    merge = t.merge(output_spec_id=t.table.refresh().spec().spec_id)
    row_delta(t.table, equality_deletes=[(again, [1])])
    assert t.live_ids() == [2]
    outcome = t.commit(merge)
    assert "live more than once" in outcome.conflicts["m1"]
    assert t.live_ids() == [2]


def test_outputs_that_no_manifest_can_hold_concern_their_own_task_only(lake: Lake) -> None:
    t = lake.table()
    paths = [t.ids(one).path for one in range(4)]
    good, bad = t.merge(paths[:2], "good"), t.merge(paths[2:], "bad")
    assert bad.result is not None
    [output] = bad.result.outputs
    bad = replace(bad, result=replace(bad.result, outputs=(replace(output, lower_bounds={1: "zz"}),)))
    outcome = t.commit(good, bad)
    assert outcome.state is CommitState.COMMITTED
    assert list(outcome.conflicts) == ["bad"]
    assert "described wrongly" in outcome.conflicts["bad"]
    assert t.live_ids() == [0, 1, 2, 3]
    assert set(paths[2:]) < t.paths(FileContent.DATA)
