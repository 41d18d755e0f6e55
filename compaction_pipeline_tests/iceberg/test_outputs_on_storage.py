"""Merged files that are not what they are called, files that cannot be opened, and the deletion of paths that open another file."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from dataclasses import replace
from decimal import InvalidOperation
from pathlib import Path
from typing import Any
from unittest import mock

import pyarrow as pa
import pytest
from pyiceberg.schema import Schema
from pyiceberg.typedef import Record
from pyiceberg.types import (
    BinaryType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    IntegerType,
    LongType,
    NestedField,
    StringType,
    StructType,
    UUIDType,
)

from compaction_pipeline.core.commit.ports import CommitState, Look
from compaction_pipeline.core.errors import OutputUnusable, StorageUnavailable, TableRefused
from compaction_pipeline.core.queue.task import CompactionTask
from compaction_pipeline.core.tables.data_file import OutputFile
from compaction_pipeline.core.tables.node import PartitionValue
from compaction_pipeline.formats.file_io.object_io import ObjectFileIO
from compaction_pipeline.iceberg.commit import outputs as task_outputs
from compaction_pipeline.iceberg.opened_paths import check_no_link, opened_name, opens_elsewhere
from compaction_pipeline_tests.iceberg.lake import Lake, LakeTable


def local(path: str) -> Path:
    return Path(path.removeprefix("file://"))


def two_merges(lake: Lake) -> tuple[LakeTable, CompactionTask, CompactionTask]:
    """A table of four files, and two merges of two each. The first one is the one that lies."""
    t = lake.table()
    paths = [t.ids(number).path for number in range(4)]
    return t, t.merge(paths[:2], "bad"), t.merge(paths[2:], "good")


def as_symlink(output: Path, live: Path) -> None:
    output.unlink()
    output.symlink_to(live)


def as_hard_link(output: Path, live: Path) -> None:
    output.unlink()
    os.link(live, output)


def as_folder(output: Path, live: Path) -> None:
    output.unlink()
    output.mkdir()


def as_fifo(output: Path, live: Path) -> None:
    output.unlink()
    os.mkfifo(output)


def as_link_to_itself(output: Path, live: Path) -> None:
    output.unlink()
    output.symlink_to(output)


def as_nothing(output: Path, live: Path) -> None:
    output.unlink()


@pytest.mark.parametrize("change", [as_symlink, as_hard_link, as_folder, as_fifo, as_link_to_itself, as_nothing])
def test_an_output_that_is_no_file_of_its_own_ends_its_task_alone(lake: Lake, change: Callable[[Path, Path], None]) -> None:
    t, bad, good = two_merges(lake)
    assert bad.result is not None
    output, live = local(bad.result.outputs[0].path), local(bad.work.inputs[0].path)
    change(output, live)
    # The lie tells the size of what it opens.
    bad = replace(bad, result=replace(bad.result, outputs=(replace(bad.result.outputs[0], file_size_bytes=max(live.stat().st_size, 1)),)))
    outcome = t.commit(bad, good)
    assert (outcome.state, outcome.committed) == (CommitState.COMMITTED, ("good",))
    assert list(outcome.conflicts) == ["bad"]
    assert outcome.unusable == {"bad"}
    assert t.live_ids() == [0, 1, 2, 3]


def test_an_output_behind_a_linked_folder_is_refused_but_a_linked_table_is_not(lake: Lake, tmp_path: Path) -> None:
    t, bad, good = two_merges(lake)
    assert bad.result is not None
    output = bad.result.outputs[0]
    folder = local(output.path).parent
    inner = folder / "inner"
    (tmp_path / "outside").mkdir()
    inner.symlink_to(tmp_path / "outside")
    moved = local(output.path).rename(inner / local(output.path).name)
    bad = replace(bad, result=replace(bad.result, outputs=(replace(output, path=f"file://{moved}"),)))
    outcome = t.commit(bad, good)
    assert "lies behind a link" in outcome.conflicts["bad"]
    # A partition may lie on another disk, with the inputs of the task.
    files = [f"file://{inner}/in.parquet"]
    with pytest.raises(OutputUnusable, match="lies behind a link"):
        check_no_link(f"file://{moved}", f"file://{folder}", ())
    check_no_link(f"file://{moved}", f"file://{folder}", files)
    # The folder of all data files may lie elsewhere.
    folder.rename(tmp_path / "data")
    folder.symlink_to(tmp_path / "data")
    merge = t.merge(None, "all")
    assert t.commit(merge, record="record-2").state is CommitState.COMMITTED
    assert t.live_ids() == [0, 1, 2, 3]


FAILURES = [
    PermissionError(errno.EACCES, "Permission denied"),
    OSError(errno.ENAMETOOLONG, "File name too long"),
    IsADirectoryError(errno.EISDIR, "Is a directory"),
    NotADirectoryError(errno.ENOTDIR, "Not a directory"),
    OSError("AWS Error [code 99]: unknown"),
    ValueError("embedded null byte"),
    pa.ArrowInvalid("cannot parse URI"),
    UnicodeEncodeError("utf-8", "\ud800", 0, 1, "surrogates not allowed"),
    OverflowError("too large"),
]


@pytest.mark.parametrize("failure", FAILURES, ids=lambda each: type(each).__name__)
def test_an_output_that_cannot_be_opened_ends_its_task_and_the_commit_goes_on(lake: Lake, failure: Exception) -> None:
    t, bad, good = two_merges(lake)
    with failing(bad, failure):
        outcome = t.commit(bad, good)
    assert (outcome.state, outcome.committed, list(outcome.conflicts)) == (CommitState.COMMITTED, ("good",), ["bad"])
    assert t.live_ids() == [0, 1, 2, 3]


@pytest.mark.parametrize("failure", [ConnectionResetError(errno.ECONNRESET, "reset"), OSError("AWS Error SLOW_DOWN during HeadObject")])
def test_a_busy_storage_ends_no_task(lake: Lake, failure: Exception) -> None:
    t, bad, good = two_merges(lake)
    with failing(bad, failure), pytest.raises(StorageUnavailable):
        t.commit(bad, good)
    assert t.commit(bad, good).committed == ("bad", "good")


def test_a_storage_that_answers_for_no_file_ends_no_task(lake: Lake) -> None:
    t, bad, good = two_merges(lake)
    real = ObjectFileIO.new_input

    def denied(io: ObjectFileIO, location: str) -> Any:
        if location.endswith(".parquet"):
            raise PermissionError(errno.EACCES, "Permission denied")
        return real(io, location)

    with mock.patch.object(ObjectFileIO, "new_input", denied), pytest.raises(StorageUnavailable):
        t.commit(bad, good)
    assert t.commit(bad, good).committed == ("bad", "good")


def failing(task: CompactionTask, failure: Exception) -> Any:
    """Let the storage answer with this failure when the output of the task is looked at."""
    real = ObjectFileIO.new_input
    assert task.result is not None
    path = task.result.outputs[0].path

    def opened(io: ObjectFileIO, location: str) -> Any:
        if location == path:
            raise failure
        return real(io, location)

    return mock.patch.object(ObjectFileIO, "new_input", opened)


@pytest.mark.parametrize(
    "other",
    ["{path}?x=1", "{path}#y", "{path}?x=1#y", "{path}?/own.parquet", "{path}#/a/b.parquet", "{path}/", "{path}//", "{path}\n", "{path}\t"],
)
def test_no_path_that_opens_a_live_file_is_deleted(lake: Lake, other: str) -> None:
    t, bad, good = two_merges(lake)
    t.commit(good)
    assert good.result is not None
    live = [good.result.outputs[0].path, bad.work.inputs[0].path]
    paths = [other.format(path=path) for path in live]
    assert lake.committer.delete_orphans(t.identifier, good.table_uuid, paths) == ()
    assert all(local(path).exists() for path in live)
    # Metadata files too.
    t.table.refresh()
    snapshot = t.table.current_snapshot()
    assert snapshot is not None
    named = [snapshot.manifest_list, *(manifest.manifest_path for manifest in snapshot.manifests(t.table.io))]
    assert lake.committer.delete_orphans(t.identifier, good.table_uuid, [other.format(path=path) for path in named]) == ()
    assert t.live_ids() == [0, 1, 2, 3]


def test_the_name_that_is_opened() -> None:
    for path in ("file:///a/X.parquet", "file:///a/x.parquet?b/c", "s3://a/x.parquet#d", "/a/x.parquet", "/a/x.parquet/"):
        assert opened_name(path) == "x.parquet"
    assert opened_name("file:///a/x.par\nqu\tet") == "x.parquet"
    assert opened_name("s3://[/x.parquet") == "x.parquet"
    # Without a scheme, nothing is cut off.
    assert opened_name("/a/x?y#z.parquet") == "x?y#z.parquet"


def test_a_table_whose_location_opens_another_place_is_refused(lake: Lake) -> None:
    t = lake.table()
    t.ids(1)
    for place in ("s3://b/a#b", "file:///a?b", "s3://b/a%20b//c", "/a#b", "file:/a b", "s3://b"):
        with t.table.transaction() as change:
            change.set_properties({"write.data.path": place})
        refusal = t.head().refusal
        assert (refusal is not None) is opens_elsewhere(place) is (place in ("s3://b/a#b", "file:///a?b"))
        if refusal is not None:
            assert place in refusal
            with pytest.raises(TableRefused, match="programs cut such a path off"):
                t.commit()


def test_the_storage_is_asked_what_a_worker_says_of_it(lake: Lake) -> None:
    t, bad, good = two_merges(lake)
    paths = [file.path for file in bad.work.inputs]
    assert lake.committer.look(t.identifier, paths) == Look()
    with failing(good, PermissionError(errno.EACCES, "Permission denied")):
        assert good.result is not None
        assert lake.committer.look(t.identifier, [*paths, good.result.outputs[0].path]) == Look(denied=True)
    with failing(good, ConnectionResetError(errno.ECONNRESET, "reset")), pytest.raises(StorageUnavailable):
        lake.committer.look(t.identifier, [*paths, good.result.outputs[0].path])
    local(paths[0]).unlink()
    assert lake.committer.look(t.identifier, paths) == Look(absent=True)


def test_an_output_that_no_manifest_can_hold_ends_its_task_and_the_commit_goes_on(lake: Lake) -> None:
    t, bad, good = two_merges(lake)
    assert bad.result is not None
    real, path = task_outputs.data_file_of, bad.result.outputs[0].path

    def described(output: OutputFile, struct: StructType) -> Any:
        if output.path == path:
            raise InvalidOperation("abc is no decimal")
        return real(output, struct)

    with mock.patch.object(task_outputs, "data_file_of", described):
        outcome = t.commit(bad, good)
    assert (outcome.committed, outcome.unusable) == (("good",), {"bad"})
    assert "abc is no decimal" in outcome.conflicts["bad"]
    assert t.live_ids() == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (IntegerType(), 2**40),
        (IntegerType(), "x"),
        (LongType(), 2**70),
        (StringType(), 5),
        (DecimalType(3, 1), "abc"),
        (DecimalType(3, 1), "12345678901234567890"),
        (DateType(), "yesterday"),
        (DateType(), 2**40),
        (UUIDType(), "x"),
        (BinaryType(), "zz"),
        (DoubleType(), "many"),
        (FixedType(2), "00"),
    ],
)
def test_a_partition_value_that_does_not_fit_its_type_ends_its_task_alone(lake: Lake, kind: Any, value: Any) -> None:
    schema = Schema(NestedField(1, "id", LongType()), NestedField(2, "name", StringType()))
    t = lake.table(schema=schema)
    paths = [t.ids(number).path for number in range(4)]
    with t.table.update_schema() as schema_update:
        schema_update.add_column("k", kind)
    with t.table.update_spec() as spec_update:
        spec_update.add_identity("k")
    t.new_partition = Record(None)
    bad, good = t.merge(paths[:2], "bad", output_spec_id=1), t.merge(paths[2:], "good", output_spec_id=1)
    assert bad.result is not None
    false = replace(bad.result.outputs[0], partition=(PartitionValue("k", str(kind), value),))
    outcome = t.commit(replace(bad, result=replace(bad.result, outputs=(false,))), good)
    assert (outcome.committed, outcome.unusable) == (("good",), {"bad"})
    assert "described wrongly" in outcome.conflicts["bad"]
    assert t.live_ids() == [0, 1, 2, 3]
