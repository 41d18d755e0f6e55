"""What `compact` answers when an error ends it after it has committed something, or while a commit is under way."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from pyiceberg.expressions import EqualTo

from compaction_pipeline.core.commit.record import CompactionRecord, RecordStatus
from compaction_pipeline.core.errors import CompactionError, StorageUnavailable
from compaction_pipeline.storage.records import SqlRecordStore
from compaction_pipeline_tests.cli.conftest import TABLE, Desk
from compaction_pipeline_tests.services.in_hand import InHand

DOWN = StorageUnavailable("the state database did not answer")


def fails_from(call: int, method: Callable[..., Any]) -> Callable[..., Any]:
    """A method that works, and from this call on raises `DOWN`."""
    calls = 0

    def failing(*arguments: Any, **named: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls >= call:
            raise DOWN
        return method(*arguments, **named)

    return failing


def conflict_in_bucket_0(desk: Desk) -> None:
    """Let a writer delete a file of bucket 0 before the first commit, and let the second plan fail."""
    table = desk.table(files=12)
    desk.add_catalog()
    raced: list[bool] = []

    def take(committer: InHand) -> None:
        def late(*arguments: Any) -> Any:
            if not raced:
                raced.append(True)
                table.refresh().delete(EqualTo("id", 10))
            return committer.real.commit(*arguments)

        committer.instead(commit=late)

    desk.hold("_committer", take)
    desk.hold("plan_tables", lambda tables: tables.instead(plan=fails_from(2, tables.real.plan)))


def test_programs_get_the_figures_of_what_was_committed_before_the_error(desk: Desk) -> None:
    conflict_in_bucket_0(desk)
    answer = desk.json("compact", TABLE, code=3)
    [record] = desk.json("record", "list")
    assert (record["status"], len(record["committed_task_ids"])) == ("COMMITTED", 1)
    assert (answer["records"], answer["committed"], answer["conflicts"], answer["tasks"]) == ([record["record_id"]], 1, 1, 2)
    assert (answer["snapshot_after"], answer["files_after"]) == (record["snapshot_after"], 12)
    assert answer["reason_code"] == "UNAVAILABLE"
    assert answer["error"] == f"{DOWN}; nothing more was committed after {record['record_id']}; run the command again"


def test_people_see_the_record_and_the_error(desk: Desk) -> None:
    conflict_in_bucket_0(desk)
    told = desk.type("compact", TABLE)
    assert told.exit_code == 3
    [record] = desk.json("record", "list")
    assert record["record_id"] in told.stdout
    assert f"error: {DOWN}; nothing more was committed after {record['record_id']}" in told.stderr


def save_unless_committed(self: SqlRecordStore, record: CompactionRecord) -> None:
    """Store a record, unless it says that its commit has landed."""
    if record.status is RecordStatus.COMMITTED:
        raise DOWN
    _SAVE(self, record)


_SAVE, _RECORDS = SqlRecordStore.save, SqlRecordStore.records


def test_a_commit_whose_record_could_not_be_closed_has_an_unknown_outcome(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    table = desk.table(files=12)
    desk.add_catalog()
    with monkeypatch.context() as patch:
        patch.setattr(SqlRecordStore, "save", save_unless_committed)
        answer = desk.json("compact", TABLE, code=5)
    assert (answer["reason_code"], answer["committed"]) == ("OUTCOME_UNKNOWN", 0)
    assert (answer["snapshot_after"], answer["files_after"], answer["bytes_after"]) == (None, None, None)
    assert str(DOWN) in answer["error"]
    assert desk.json("compact", TABLE)["files_after"] == 2
    assert len(desk.ids(table)) == 24


def test_records_that_cannot_be_read_after_a_merge_leave_the_outcome_unknown(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    desk.table(files=12)
    desk.add_catalog()
    landed: list[CompactionRecord] = []

    def save(self: SqlRecordStore, record: CompactionRecord) -> None:
        landed.extend([record] if record.status is RecordStatus.COMMITTED else [])
        save_unless_committed(self, record)

    def records(self: SqlRecordStore, *arguments: Any, **named: Any) -> Any:
        if landed:
            raise DOWN
        return _RECORDS(self, *arguments, **named)

    with monkeypatch.context() as patch:
        patch.setattr(SqlRecordStore, "save", save)
        patch.setattr(SqlRecordStore, "records", records)
        answer = desk.json("compact", TABLE, code=5)
    assert answer["reason_code"] == "OUTCOME_UNKNOWN"


def test_an_error_before_any_commit_keeps_its_code(desk: Desk) -> None:
    desk.table(files=12)
    desk.add_catalog()

    def failing(*arguments: Any, **named: Any) -> CompactionError:
        raise DOWN

    desk.hold("plan_tables", lambda tables: tables.instead(plan=failing))
    answer = desk.json("compact", TABLE, code=1)
    assert (answer["committed"], answer["records"], answer["reason_code"], answer["error"]) == (0, [], "UNAVAILABLE", str(DOWN))
    assert (answer["files_before"], answer["files_after"]) == (24, 24)
