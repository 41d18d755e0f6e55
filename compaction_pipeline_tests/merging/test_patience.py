"""An attempt waits for a busy store, and looks twice before it calls a file missing or damaged."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from compaction_pipeline.core.errors import FileGone, FileUnreadable, MergeFailed, StoreBusy
from compaction_pipeline.core.work.ends import EndReason
from compaction_pipeline.core.work.result import MergeResult
from compaction_pipeline.merging.reading.file_access import FileAccess
from compaction_pipeline.merging.reading.patience import TRIES, patiently
from compaction_pipeline_tests.merging.files import Table
from compaction_pipeline_tests.object_store import Fault, ObjectStore, object_store
from compaction_pipeline_tests.works import merge_task

_ADVICE = "remove its entry from the table's metadata"


@pytest.fixture
def store() -> Iterator[ObjectStore]:
    with object_store() as running:
        yield running


@pytest.fixture
def task_files(tmp_path: Path) -> FileAccess:
    return FileAccess({}, str(tmp_path))


def test_a_busy_store_is_tried_again_after_pauses_and_written_files_are_deleted_first(task_files: FileAccess, tmp_path: Path) -> None:
    pauses: list[float] = []
    seen: list[bool] = []

    def work() -> str:
        seen.append((tmp_path / "out").exists())
        with task_files.output(str(tmp_path / "out")) as stream:
            stream.write(b"x")
        if len(seen) < 4:
            raise StoreBusy("file x: the store did not answer as it should")
        return "done"

    assert patiently(work, task_files, pauses.append) == "done"
    assert seen == [False] * 4
    assert len(pauses) == 3


def test_patience_ends_and_the_error_never_advises_to_delete_a_file(task_files: FileAccess) -> None:
    tries: list[float] = []

    def work() -> str:
        tries.append(0)
        raise StoreBusy("file x: the store did not answer as it should")

    with pytest.raises(StoreBusy) as raised:
        patiently(work, task_files, lambda seconds: None)
    assert len(tries) == TRIES
    assert _ADVICE not in str(raised.value)


def test_a_file_that_a_second_look_finds_sound_is_read_again(task_files: FileAccess, tmp_path: Path) -> None:
    file = Table(tmp_path).append([{"id": 1, "name": "a"}])
    failures = iter([FileUnreadable(f"file {file.path}: unreadable (once)", file.path, "restore it")])

    def work() -> str:
        for failure in failures:
            raise failure
        return "done"

    assert patiently(work, task_files, lambda seconds: None) == "done"


@pytest.mark.parametrize(("content", "reason"), [(None, "missing on storage; restore it"), (b"PAR1 no", "footer unreadable")])
def test_a_file_that_a_second_look_finds_broken_gets_the_advice(
    task_files: FileAccess, tmp_path: Path, content: bytes | None, reason: str
) -> None:
    path = tmp_path / "x.parquet"
    if content is not None:
        path.write_bytes(content)

    def work() -> str:
        raise FileUnreadable(f"file {path}: unreadable (first look)", str(path), "restore it")

    with pytest.raises(MergeFailed, match=reason) as raised:
        patiently(work, task_files, lambda seconds: None)
    assert _ADVICE in str(raised.value)
    # Another attempt may read damaged bytes correctly, but a file that is missing stays missing for this task.
    assert isinstance(raised.value, FileGone) == (content is None)


# ---- the same with a real store


def _merge(tmp_path: Path, store: ObjectStore, fault: Callable[[str, str], Fault | None]) -> MergeResult:
    table = Table(tmp_path)
    for number in range(3):
        table.append([{"id": number, "name": "a"}])
    task = table.task()
    inputs = []
    for file in task.work.inputs:
        key = f"t/in/{Path(file.path).name}"
        store.objects[key] = Path(file.path).read_bytes()
        inputs.append(replace(file, path=store.url(key)))
    store.fault = fault
    task = replace(task, work=replace(task.work, inputs=tuple(inputs)))
    layout = replace(table.layout(), location=store.url("t"))
    return merge_task(task, layout, store.properties, sleep=lambda seconds: None)


def _once(fault: Fault) -> Callable[[str, str], Fault | None]:
    left = [fault]
    return lambda method, key: left.pop() if left and key.endswith("in-2.parquet") else None


@pytest.mark.parametrize(
    "fault",
    [Fault("status", 404, "NoSuchKey"), Fault("status", 503, "SlowDown"), Fault("close"), Fault("cut"), Fault("status", 500)],
)
def test_one_bad_answer_fails_nothing(tmp_path: Path, store: ObjectStore, fault: Fault) -> None:
    result = _merge(tmp_path, store, _once(fault))
    assert (result.error, result.rows_written) == (None, 3)


def test_a_file_that_is_absent_is_called_missing_after_two_looks(tmp_path: Path, store: ObjectStore) -> None:
    asked: list[str] = []

    def absent(method: str, key: str) -> Fault | None:
        if not key.endswith("in-2.parquet"):
            return None
        asked.append(method)
        return Fault("status", 404, "NoSuchKey")

    result = _merge(tmp_path, store, absent)
    assert result.error is not None
    assert f"missing on storage; restore it, or {_ADVICE}" in result.error
    assert len(asked) == 2
    assert sorted(store.objects) == [f"t/in/in-{number}.parquet" for number in (1, 2, 3)]


@pytest.mark.parametrize(
    ("status", "code", "told"),
    [
        (403, "AccessDenied", "permission denied; the process that merges must be able to read and write"),
        (400, "ExpiredToken", "the store does not accept the key or the token"),
        (403, "SignatureDoesNotMatch", "the store does not accept the key or the token"),
        (301, "PermanentRedirect", "the bucket is in another region; set 's3.region'"),
        (404, "NoSuchBucket", "the store has no such bucket"),
    ],
)
@pytest.mark.parametrize("method", ["GET", "PUT"])
def test_a_refusal_is_reported_and_marked_as_such(
    tmp_path: Path, store: ObjectStore, status: int, code: str, told: str, method: str
) -> None:
    result = _merge(tmp_path, store, lambda asked, key: Fault("status", status, code) if asked == method else None)
    assert result.end_reason is EndReason.NO_ACCESS
    assert result.error is not None
    assert told in result.error
    assert _ADVICE not in result.error
