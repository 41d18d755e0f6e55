"""How an attempt to commit ends (committed, certainly not committed, or unknown), and which files may be deleted then."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import pytest
from pyiceberg.exceptions import CommitFailedException, CommitStateUnknownException

from compaction_pipeline.core.commit.ports import CommitState
from compaction_pipeline.core.errors import NotFoundError, StorageUnavailable, TableRefused
from compaction_pipeline.file_io.object_io import OBJECT_FILE_IO
from compaction_pipeline.formats.file_io.s3_stores import DEFAULT_LIMITS
from compaction_pipeline.iceberg.commit.committer import IcebergCommitter
from compaction_pipeline.iceberg.rewrite_files import CommitStep
from compaction_pipeline_tests.iceberg.faulty_catalog import Faulty, metadata_files, refused_after_success, silence_after, silence_before
from compaction_pipeline_tests.iceberg.lake import Lake, LakeTable


def filled(lake: Lake) -> LakeTable:
    t = lake.table(properties={"commit.retry.num-retries": "2"})
    t.ids(1)
    t.ids(2)
    return t


def test_a_lost_race_is_tried_again_from_a_fresh_load(lake: Lake) -> None:
    t = filled(lake)
    merge = t.merge()
    raced = []

    def another_writer_first(step: str) -> None:
        if step == "before-swap" and not raced:
            raced.append(step)
            t.ids(3)

    committer = IcebergCommitter(lake.catalogs, on_step=another_writer_first, sleep=lambda seconds: None)
    outcome = committer.commit(t.identifier, "record-1", [merge])
    assert (outcome.state, outcome.attempts) == (CommitState.COMMITTED, 2)
    assert t.live_ids() == [1, 2, 3]
    listed = {path.rsplit("/", 1)[-1] for snapshot in t.table.metadata.snapshots for path in [snapshot.manifest_list]}
    listed |= {one.manifest_path.rsplit("/", 1)[-1] for s in t.table.metadata.snapshots for one in s.manifests(t.table.io)}
    assert metadata_files(lake) == listed, "the lost attempt left manifests behind"


def test_a_lost_race_validates_again(lake: Lake) -> None:
    t = filled(lake)
    file = next(iter(t.files()))
    merge = t.merge()
    raced = []

    def a_delete_comes_first(step: str) -> None:
        if step == "before-swap" and not raced:
            raced.append(step)
            t.delete_positions((file.path, 0))

    committer = IcebergCommitter(lake.catalogs, on_step=a_delete_comes_first, sleep=lambda seconds: None)
    outcome = committer.commit(t.identifier, "record-1", [merge])
    assert outcome.state is CommitState.NOTHING
    assert "it did not apply delete file" in outcome.conflicts["m1"]
    assert len(t.live_ids()) == 1


def test_losing_every_race_commits_nothing_and_may_be_tried_later(lake: Lake) -> None:
    t = filled(lake)

    def lost(swap: Callable[[], Any]) -> Any:
        raise CommitFailedException("too late")

    merge = t.merge()
    before = metadata_files(lake)
    faulty = Faulty(lake.catalog, lost, lost, lost)
    with pytest.raises(StorageUnavailable, match=r"'commit.retry.num-retries' is 2"):
        t.commit(merge)
    assert faulty.calls == 3
    assert metadata_files(lake) == before
    assert t.commit(merge).state is CommitState.COMMITTED


@pytest.mark.parametrize("fault", [silence_after, refused_after_success])
def test_a_lost_answer_is_settled_by_fresh_metadata(lake: Lake, fault: Any) -> None:
    t = filled(lake)
    merge = t.merge()
    Faulty(lake.catalog, fault)
    outcome = t.commit(merge)
    assert outcome.state is CommitState.COMMITTED
    assert outcome.committed == ("m1",)
    assert t.live_ids() == [1, 2]


def test_silence_with_the_head_unmoved_is_unknown_and_deletes_nothing(lake: Lake) -> None:
    t = filled(lake)
    merge = t.merge()
    before = metadata_files(lake)
    Faulty(lake.catalog, silence_before)
    outcome = t.commit(merge)
    assert outcome.state is CommitState.UNKNOWN
    assert metadata_files(lake) > before
    settled = lake.committer.settle(t.identifier, "record-1", [merge])
    assert settled.state is CommitState.UNKNOWN
    # Another commit moves `main`, so the attempt can land only after a rollback.
    t.ids(3)
    assert lake.committer.settle(t.identifier, "record-1", [merge]).state is CommitState.NOTHING


def test_silence_with_the_head_moved_on_is_a_lost_race(lake: Lake) -> None:
    t = filled(lake)
    merge = t.merge()
    Faulty(lake.catalog, lambda swap: (t.ids(3), silence_before(swap)))
    outcome = t.commit(merge)
    assert (outcome.state, outcome.attempts) == (CommitState.COMMITTED, 2)
    assert t.live_ids() == [1, 2, 3]


def test_committing_an_unknown_record_again_ends_it(lake: Lake) -> None:
    t = filled(lake)
    merge = t.merge()
    late: list[Callable[[], Any]] = []

    def swallowed(swap: Callable[[], Any]) -> Any:
        late.append(swap)
        raise CommitStateUnknownException("gateway timeout")

    Faulty(lake.catalog, swallowed)
    assert t.commit(merge).state is CommitState.UNKNOWN
    # The delayed request reaches the catalog now.
    late[0]()
    outcome = t.commit(merge)
    assert outcome.state is CommitState.COMMITTED
    assert outcome.committed == ("m1",)
    assert t.live_ids() == [1, 2]
    assert sum("replace" in str(one.summary) for one in t.table.refresh().metadata.snapshots if one.summary) <= 1


def test_committing_twice_is_impossible(lake: Lake) -> None:
    t = filled(lake)
    merge = t.merge()
    first = t.commit(merge)
    again = t.commit(merge)
    assert (again.state, again.committed, again.snapshot_after) == (CommitState.COMMITTED, ("m1",), first.snapshot_after)
    assert (again.snapshot_before, again.figures) == (first.snapshot_before, first.figures)
    other = t.commit(merge, record="another")
    assert other.state is CommitState.COMMITTED
    assert len(t.table.refresh().metadata.snapshots) == 3
    assert t.live_ids() == [1, 2]


def test_settle_finds_a_commit_by_its_record(lake: Lake) -> None:
    t = filled(lake)
    file = t.ids(3)
    merge, lost = t.merge([one.path for one in t.files()][1:], "m1"), t.merge([file.path], "lost")
    done = t.commit(merge)
    t.ids(4)
    settled = lake.committer.settle(t.identifier, "record-1", [merge, lost])
    assert (settled.state, settled.committed, settled.snapshot_after) == (CommitState.COMMITTED, ("m1",), done.snapshot_after)


def test_settle_finds_a_commit_by_its_outputs_when_its_snapshot_expired(lake: Lake) -> None:
    t = filled(lake)
    merge = t.merge()
    done = t.commit(merge)
    t.ids(3)
    assert done.snapshot_after is not None
    t.table.refresh().maintenance.expire_snapshots().by_id(done.snapshot_after).commit()
    settled = lake.committer.settle(t.identifier, "record-1", [merge])
    assert (settled.state, settled.committed) == (CommitState.COMMITTED, ("m1",))


def test_settle_without_any_trace_says_nothing_was_committed(lake: Lake) -> None:
    t = filled(lake)
    assert lake.committer.settle(t.identifier, "record-1", [t.merge()]).state is CommitState.NOTHING


def test_orphans_are_deleted_only_when_no_snapshot_lists_them(lake: Lake) -> None:
    t = filled(lake)
    merge, orphan = t.merge(None, "m1"), t.merge(None, "orphan")
    assert merge.result is not None
    assert orphan.result is not None
    t.commit(merge)
    paths = [output.path for task in (merge, orphan) for output in task.result.outputs]  # type: ignore[union-attr]
    inputs = [file.path for file in merge.work.inputs]
    # The head no longer lists the inputs, but older snapshots do.
    assert lake.committer.delete_orphans(t.identifier, merge.table_uuid, [*paths, *inputs]) == (orphan.result.outputs[0].path,)
    assert lake.committer.delete_orphans(t.identifier, merge.table_uuid, [*paths, *inputs]) == ()
    assert t.live_ids() == [1, 2]


def test_a_listed_file_is_no_orphan_however_its_path_is_written(lake: Lake) -> None:
    t = filled(lake)
    merge = t.merge()
    assert merge.result is not None
    t.commit(merge)
    # After the table's location was changed to another form of the same folder, a listing of the folder gives paths like this.
    paths = [output.path.replace("file:///", "file:/") for output in merge.result.outputs]
    assert lake.committer.delete_orphans(t.identifier, merge.table_uuid, paths) == ()
    assert t.live_ids() == [1, 2]


def test_leftovers_are_found_by_task_id(lake: Lake) -> None:
    t = filled(lake)
    merge = t.merge(None, "task-abc")
    assert merge.result is not None
    assert list(lake.committer.leftovers(t.identifier, ["task-abc"])) == [merge.result.outputs[0].path]
    assert list(lake.committer.leftovers(t.identifier, ["task-xyz"])) == []


def test_an_output_that_is_missing_or_cut_is_a_conflict(lake: Lake) -> None:
    t = filled(lake)
    merge = t.merge()
    assert merge.result is not None
    output = Path(merge.result.outputs[0].path.removeprefix("file://"))
    content = output.read_bytes()
    output.write_bytes(content[:-1])
    assert "bytes on storage" in t.commit(merge).conflicts["m1"]
    output.unlink()
    assert "missing on storage" in t.commit(merge).conflicts["m1"]
    assert t.live_ids() == [1, 2]


def test_a_table_recreated_under_the_same_name_is_a_conflict(lake: Lake) -> None:
    t = filled(lake)
    merge = t.merge()
    lake.catalog.drop_table(("db", "t"))
    again = lake.table()
    again.ids(9)
    outcome = t.commit(merge)
    assert outcome.state is CommitState.NOTHING
    assert "created again" in outcome.conflicts["m1"]
    assert again.live_ids() == [9]


def test_a_dropped_table_is_not_found(lake: Lake) -> None:
    t = filled(lake)
    merge = t.merge()
    lake.catalog.drop_table(("db", "t"))
    with pytest.raises(NotFoundError, match=r"lake\.db\.t"):
        t.commit(merge)


def test_a_table_that_became_refused_is_not_committed(lake: Lake) -> None:
    t = filled(lake)
    merge = t.merge()
    with t.table.transaction() as transaction:
        transaction.set_properties({"table-format": "MIXED_ICEBERG"})
    with pytest.raises(TableRefused, match="MIXED_ICEBERG"):
        t.commit(merge)


def test_a_full_disk_while_writing_manifests_commits_nothing(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    t = filled(lake)
    merge = t.merge()
    before = metadata_files(lake)

    def full(*args: Any, **kwargs: Any) -> Any:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("compaction_pipeline.iceberg.rewrite_files.write_manifests", full)
        with pytest.raises(StorageUnavailable, match="No space left"):
            t.commit(merge)
    assert metadata_files(lake) == before
    with monkeypatch.context() as patch:
        patch.setattr(type(lake.catalog), "_write_metadata", staticmethod(full))
        with pytest.raises(StorageUnavailable, match="metadata file cannot be written"):
            t.commit(merge)
    assert metadata_files(lake) == before
    assert t.commit(merge).state is CommitState.COMMITTED


def test_a_result_that_does_not_add_up_is_a_conflict(lake: Lake) -> None:
    t = filled(lake)
    merge = t.merge()
    assert merge.result is not None
    wrong = replace(merge, result=replace(merge.result, rows_written=3))
    assert "but its merge wrote 3" in t.commit(wrong).conflicts["m1"]
    assert "was not merged" in t.commit(replace(merge, result=None)).conflicts["m1"]


def test_every_step_is_listed(lake: Lake) -> None:
    t = filled(lake)
    steps: list[str] = []
    committer = IcebergCommitter(lake.catalogs, on_step=steps.append, sleep=lambda seconds: None)
    committer.commit(t.identifier, "record-1", [t.merge()])
    assert set(steps) == set(get_args(CommitStep))
    assert [step for step in get_args(CommitStep) if step in steps] == list(dict.fromkeys(steps))


def test_files_are_opened_without_the_catalogs_secrets(lake: Lake) -> None:
    t = filled(lake)
    lake.properties.update({"s3.access-key-id": "key"})
    assert lake.committer.file_io(t.identifier) == {"s3.access-key-id": "key", "py-io-impl": OBJECT_FILE_IO, **DEFAULT_LIMITS}
