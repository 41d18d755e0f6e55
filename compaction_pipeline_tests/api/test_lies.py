"""Lies of a worker: what it may report falsely, and what becomes of it.

Each lie goes through both doors: over HTTP with a valid token of an optimizer, and through the queue that Dagster, the command line and
`--state` use. It is refused, or it is harmless: all rows are there by a scan and by a filter on each column, clean-up deletes nothing that
is live, and the next honest merge lands. What only the file itself shows, or only its rows, is believed today. These lies have lists of
their own, which `docs/security.md` explains.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from pydantic import TypeAdapter
from pyiceberg.typedef import Record

from compaction_pipeline.core.access.token import Role
from compaction_pipeline.core.errors import ConfigError, NotFoundError, StaleAttempt
from compaction_pipeline.core.queue.assignment import Assignment
from compaction_pipeline.core.queue.task import TaskStatus
from compaction_pipeline.core.tables.data_file import NOT_TOLD
from compaction_pipeline.core.work.ends import EndReason
from compaction_pipeline.core.work.result import MergeResult
from compaction_pipeline.merging.engine import InProcessMergeEngine
from compaction_pipeline_tests.api.liars import (
    AMOUNT,
    COUNT,
    DAY,
    FLAG,
    HARMLESS,
    ID,
    KEY,
    NAME,
    PRICE,
    REGION,
    ROWS,
    TAG,
    Door,
    Lie,
    OverHttp,
    OwnProcess,
    Report,
    all_deleted,
    at,
    check_rows,
    check_that_nobody_was_harmed,
    clean_up,
    commit,
    fewer,
    in_map,
    lies_table,
    merged,
    of_file,
    plan,
    renamed,
    row,
    said,
    twice,
    with_bounds,
)
from compaction_pipeline_tests.api.served import REGISTRATION, Served
from compaction_pipeline_tests.iceberg.lake import LakeTable
from compaction_pipeline_tests.through_json import through_json
from compaction_pipeline_tests.works import metrics_problem

PATHS: Mapping[str, Lie] = {
    "a query": at(lambda path: f"{path}?x=1"),
    "a query and a fragment": at(lambda path: f"{path}?x=1#y"),
    "a fragment": at(lambda path: f"{path}#y"),
    "two slashes": at(lambda path: path.replace("/data/", "//data/")),
    "two slashes before the name": renamed(lambda name: f"/{name}"),
    "a dot": renamed(lambda name: f"./{name}"),
    "up and down": at(lambda path: path.replace("/data/", "/data/../data/")),
    "out of the table": at(lambda path: path.replace("/data/", "/data/../../other/data/")),
    "another folder": at(lambda path: path.replace("/data/", "/other/")),
    "another table": at(lambda path: path.replace("/t/data/", "/u/data/")),
    "no partition": at(lambda path: path.replace("/" + path.split("/")[-2], "")),
    "another partition": at(lambda path: path.replace("/region=", "/region=x")),
    "the partition unescaped": at(lambda path: path.replace("%25", "%")),
    "another escape": at(lambda path: path.replace("%2F", "%2f")),
    "another scheme": at(lambda path: path.replace("file://", "s3://")),
    "one slash": at(lambda path: path.replace("file://", "file:")),
    "no scheme": at(lambda path: path.removeprefix("file://")),
    "upper case": at(str.upper),
    "a name with NUL": renamed(lambda name: name.replace(".parquet", "\0.parquet")),
    "a name with a line end": renamed(lambda name: f"{name}\n"),
    "a name with ESC": renamed(lambda name: f"\x1b[2J{name}"),
    "a name of 5,000 characters": renamed(lambda name: "x" * 5000 + name),
    "a name with other digits": renamed(lambda name: name.replace("-00000.", "-٠٠٠٠٠.")),
    "a folder": at(lambda path: path.rpartition("/")[0]),
    "a folder with a slash": at(lambda path: path.rpartition("/")[0] + "/"),
    "no path": at(lambda path: ""),
    "not Parquet": renamed(lambda name: name.replace(".parquet", ".avro")),
    "of another attempt": at(lambda path: path.replace(path.rpartition("/")[2][:8], "00000000")),
    "the id of the task alone": renamed(lambda name: name.partition("-")[2]),
    "a name of deletes": renamed(lambda name: name.replace(".parquet", "-deletes.parquet")),
    "one file twice": twice(lambda path: path),
    "one file under two names": twice(lambda path: path.replace("/data/", "/data//")),
}

FIGURES: Mapping[str, Lie] = {
    "more rows read": said(rows_read=ROWS + 1),
    "fewer rows everywhere": fewer,
    "a negative count": said(rows_deleted_by_position=-1),
    "all deleted by position": all_deleted("rows_deleted_by_position"),
    "all deleted by equality": all_deleted("rows_deleted_by_equality"),
    "rows that stay": said(rows_kept=1),
    "no files": said(outputs=[]),
    "a duration of 4,000 digits": said(duration_ms=9 * 10**3999),
    "a duration of a year": said(duration_ms=366 * 24 * 3600 * 1000),
    "a negative duration": said(duration_ms=-1),
    "a memory of 2⁷⁰": said(peak_memory_bytes=2**70),
    "a proof of 2⁷⁰": lambda report: [report[name].update(sum_a=2**70) for name in ("digest_read", "digest_written")],
    "a type of the partition with NUL": lambda report: report["outputs"][0]["partition"][0].update(type="str\0ing"),
    "a type of the partition of 1 MB": lambda report: report["outputs"][0]["partition"][0].update(type="s" * 2**20),
    "another proof": lambda report: report["digest_written"].update(sum_a=0),
    "a proof of more rows": lambda report: report["digest_written"].update(rows=ROWS + 1),
    "a file of fewer rows": of_file(record_count=ROWS - 1),
    "a file without rows": of_file(record_count=0),
    "a file of no bytes": of_file(file_size_bytes=0),
    "a file of 2⁶³ bytes": of_file(file_size_bytes=2**63),
    "another spec": of_file(spec_id=1),
    "a spec of 2⁴⁰": of_file(spec_id=2**40),
    "another sort order": of_file(sort_order_id=7),
    "a sort order of 2⁴⁰": of_file(sort_order_id=2**40),
    "another value of the partition": lambda report: report["outputs"][0]["partition"][0].update(value="x"),
    "NULL in the partition": lambda report: report["outputs"][0]["partition"][0].update(value=None),
    "a number in the partition": lambda report: report["outputs"][0]["partition"][0].update(value=1),
    "another field of the partition": lambda report: report["outputs"][0]["partition"][0].update(name="other"),
    "no partition value": of_file(partition=[]),
    "position deletes": of_file(content="POSITION_DELETES"),
    "equality deletes": of_file(content="EQUALITY_DELETES"),
    "positions of an input": of_file(referenced_data_file="file:///x.parquet"),
    "more NaNs than values": in_map("nan_value_counts", PRICE, ROWS + 1),
    "a negative number of NaNs": in_map("nan_value_counts", PRICE, -1),
    "NaNs of a column that has none": in_map("nan_value_counts", ID, 3),
    "a footer of no byte": of_file(footer_bytes=0),
    "a shorter footer": lambda report: report["outputs"][0].update(footer_bytes=report["outputs"][0]["footer_bytes"] - 1),
    "a longer footer": lambda report: report["outputs"][0].update(footer_bytes=report["outputs"][0]["footer_bytes"] + 1),
    "a footer above 16 MiB": of_file(footer_bytes=16 * 2**20 + 1),
    "a file of fewer bytes": lambda report: report["outputs"][0].update(file_size_bytes=report["outputs"][0]["file_size_bytes"] - 1),
}

METRICS: Mapping[str, Lie] = {
    "a size of column 2⁴⁰": in_map("column_sizes", 2**40, 1),
    "column 2³²+1, which Java takes for column 1": in_map("lower_bounds", 2**32 + 1, "00" * 8),
    "an unknown column": in_map("value_counts", 99, ROWS),
    "a list as a column": in_map("value_counts", 7, ROWS),
    "the id of file_path": in_map("lower_bounds", 2147483546, "61"),
    "a negative size": in_map("column_sizes", ID, -1),
    "a size of 2⁷⁰": in_map("column_sizes", ID, 2**70),
    "columns larger than the file": in_map("column_sizes", ID, 2**40),
    "fewer values than rows": in_map("value_counts", ID, ROWS - 1),
    "more values than rows": in_map("value_counts", ID, ROWS + 1),
    "fewer values of a list than rows": in_map("value_counts", TAG, ROWS - 1),
    "more NULLs than values": in_map("null_value_counts", NAME, ROWS + 1),
    "NaNs of a number without NaN": in_map("nan_value_counts", ID, 0),
    "more NaNs than values": in_map("nan_value_counts", PRICE, ROWS + 1),
    "NaNs beside bounds": in_map("nan_value_counts", PRICE, 1),
    "no count of NaNs beside bounds": lambda report: report["outputs"][0]["nan_value_counts"].clear(),
    "all NULL beside bounds": in_map("null_value_counts", NAME, ROWS),
    "a bound that is not hexadecimal": with_bounds(ID, "zz"),
    "a bound with spaces": with_bounds(ID, "00 00 00 00 00 00 00 00"),
    "a bound in upper case": with_bounds(ID, "FF" * 8),
    "a bound of half a byte": with_bounds(NAME, "6"),
    "a long of 4 bytes": with_bounds(ID, "00" * 4),
    "an int of 8 bytes": with_bounds(COUNT, "00" * 8),
    "a date of 8 bytes": with_bounds(DAY, "00" * 8),
    "a double of 4 bytes": with_bounds(PRICE, "00" * 4),
    "NaN as a bound": with_bounds(PRICE, "000000000000f87f"),
    "a decimal of 17 bytes": with_bounds(AMOUNT, "00" * 17),
    "a decimal of no byte": with_bounds(AMOUNT, ""),
    "a text that is not UTF-8": with_bounds(NAME, "ff"),
    "a boolean of 2": with_bounds(FLAG, "02"),
    "bounds of a UUID": with_bounds(KEY, "00" * 16),
    "bounds in a list": with_bounds(TAG, "78"),
    "a bound above 1 MiB": with_bounds(NAME, "61" * (2**20 + 1)),
    "lower above upper": with_bounds(ID, "05" + "00" * 7, "04" + "00" * 7),
    "a lower text above the upper": with_bounds(NAME, "7a", "61"),
    "offsets that fall": of_file(split_offsets=[4, 3]),
    "an offset twice": of_file(split_offsets=[4, 4]),
    "an offset behind the file": of_file(split_offsets=[4, 2**40]),
    "a first offset in the middle": of_file(split_offsets=[100]),
    "a negative offset": of_file(split_offsets=[-4]),
    "more offsets than rows": lambda report: report["outputs"][0].update(split_offsets=[4, *range(5, 5 + ROWS)]),
}
"""No report tells these. A footer whose statistics are false may hold some of them."""

SHAPES: Mapping[str, Lie] = {
    "another task": said(task_id="another"),
    "another attempt": said(attempt_id="another"),
    "no task": lambda report: report.pop("task_id"),
    "an unknown field": said(more=1),
    "an unknown field of a file": of_file(more=1),
    **{f"an unknown field of a file: {name}": of_file(**{name: {}}) for name in sorted(NOT_TOLD)},
    "an unknown field with ESC": said(**{"\x1b[2J": 1}),
    "a text as a number": said(rows_read="many"),
    "a list as a map": of_file(lower_bounds=[]),
    "a failure that names files": said(error="it failed", end_reason="FAILED"),
    "a success that failed": said(end_reason="FAILED"),
    "an end that only the server knows": said(outputs=[], error="x", end_reason="LOST"),
    "an end of a task": said(outputs=[], error="x", end_reason="CONFLICT"),
    "an end that nobody knows": said(outputs=[], error="x", end_reason="SOMETHING"),
    "a refused report": said(outputs=[], error="x", end_reason="REPORT_REFUSED"),
}

LIES: Mapping[str, Lie] = {**PATHS, **FIGURES, **SHAPES}


ONLY_ROWS_SHOW: Mapping[str, Lie] = {
    "another proof on both sides": lambda report: [report[name].update(sum_a=1) for name in ("digest_read", "digest_written")],
    "the table's own order, by which the file is not sorted": of_file(sort_order_id=0),
}
"""Believed until the rows are read again. Beside these: rows that count as deleted by the equality deletes of the task
(`test_rows_that_count_as_deleted_by_equality_are_believed_today`), false numbers of NaN, rows in a wrong partition or tree node."""


# ---- what becomes of lies ----------------------------------------------------------------------------------------------


def test_there_are_enough_lies() -> None:
    assert len(LIES) + len(METRICS) >= 130


def test_every_lie_is_refused_and_harms_nothing(door: Door, table: LakeTable) -> None:
    believed = []
    # Inside one process a report is a value of Python, which has no unknown field.
    lies = {name: lie for name, lie in LIES.items() if isinstance(door, OverHttp) or "unknown field" not in name}
    for name, lie in lies.items():
        taken = door.take()
        report = merged(taken)
        false = deepcopy(report)
        lie(false)
        assert false != report, name
        if door.tell(taken.attempt_id, false) is TaskStatus.PREPARED:
            believed.append(name)
            break
    assert believed == []
    check_that_nobody_was_harmed(door, table)
    assert len(table.files()) == 1


def test_metrics_that_no_file_can_have_are_refused(served: Served, table: LakeTable) -> None:
    taken = OwnProcess(served).take()
    [result] = InProcessMergeEngine().merge([taken.merge_input], taken.file_io)
    assert metrics_problem(taken.task, result, taken.layout) is None
    adapter = TypeAdapter(MergeResult)
    for name, lie in METRICS.items():
        report = adapter.dump_python(result, mode="json")
        lie(report)
        assert metrics_problem(taken.task, adapter.validate_python(report), taken.layout) is not None, name


def test_what_a_worker_of_this_program_says_of_a_footer_is_not_looked_at(served: Served, table: LakeTable) -> None:
    door = OwnProcess(served)
    taken = door.take()
    [result] = InProcessMergeEngine().merge([taken.merge_input], taken.file_io)
    false = replace(result.outputs[0], column_sizes={}, value_counts={2**40: -1}, lower_bounds={ID: "05" + "00" * 7}, split_offsets=(3, 2))
    served.house.services.serve_tasks.complete(taken.task, replace(result, outputs=(false,)))
    stored = served.house.services.stores.tasks.task(taken.task.task_id).result
    assert stored is not None
    assert replace(stored.outputs[0], version=None) == result.outputs[0]


@pytest.mark.parametrize("name", HARMLESS)
def test_a_lie_that_is_not_refused_is_harmless(door: Door, table: LakeTable, name: str) -> None:
    taken = door.take()
    report = merged(taken)
    HARMLESS[name](report)
    assert door.tell(taken.attempt_id, report) is TaskStatus.PREPARED
    assert commit(door.served) == ["COMMITTED"]
    clean_up(door.served)
    check_rows(table)
    table.insert(row(ROWS), partition=Record(REGION))
    plan(door.served, table)
    taken = door.take()
    assert door.tell(taken.attempt_id, merged(taken)) is TaskStatus.PREPARED
    assert commit(door.served) == ["COMMITTED"]
    assert len(table.files()) == 1


@pytest.mark.parametrize("name", ONLY_ROWS_SHOW)
def test_these_lies_are_believed_today(served: Served, table: LakeTable, name: str) -> None:
    """`docs/security.md` says so. Whoever mends one moves it to `LIES`."""
    door = OverHttp(served)
    taken = door.take()
    report = merged(taken)
    ONLY_ROWS_SHOW[name](report)
    assert door.tell(taken.attempt_id, report) is TaskStatus.PREPARED


def test_rows_that_count_as_deleted_by_equality_are_believed_today(served: Served) -> None:
    """One report empties a table that has an equality delete. `docs/security.md` says so. Only the rows show it."""
    table = lies_table(served)
    table.delete_ids(0, partition=Record(REGION))
    served.house.services.stores.tasks.cancel(
        [task.task_id for task in served.house.services.stores.tasks.tasks()], EndReason.GIVEN_UP, "the table changed", served.house.now
    )
    plan(served, table)
    door = OverHttp(served)
    taken = door.take()
    assert taken.task.work.deletes
    report = merged(taken)
    all_deleted("rows_deleted_by_equality")(report)
    assert door.tell(taken.attempt_id, report) is TaskStatus.PREPARED


@pytest.mark.parametrize("region", [None, "", "null", " ", "/", "%", "%2F", "+", "a=b", "..", "🙂", "é", "x" * 60, "a\nb\tc\x1b"])
def test_the_honest_report_of_a_strange_partition_is_believed(door: Door, region: str | None) -> None:
    table = lies_table(door.served, region)
    taken = door.take()
    assert door.tell(taken.attempt_id, merged(taken)) is TaskStatus.PREPARED
    assert commit(door.served) == ["COMMITTED"]
    assert sorted(one["id"] for one in table.rows()) == list(range(ROWS))
    assert len(table.files()) == 1


# ---- lies about the end of an attempt ----------------------------------------------------------------------------------

HARMFUL_ENDS = ("REFUSED", "FILE_GONE", "NO_ACCESS", "DIGEST_MISMATCH")


def ended(attempt: Any, end_reason: str, error: str = "so it says") -> Report:
    report: Report = TypeAdapter(MergeResult).dump_python(
        MergeResult(attempt.task.task_id, attempt.attempt_id, end_reason=EndReason(end_reason), error=error), mode="json"
    )
    return report


@pytest.mark.parametrize("end_reason", HARMFUL_ENDS)
def test_one_optimizer_alone_cannot_end_a_task_or_deny_a_table(served: Served, table: LakeTable, end_reason: str) -> None:
    worker = served.registered()
    for number in range(3):
        [taken] = worker.poll(f"p{number}")
        assignment = TypeAdapter(Assignment).validate_python(through_json(dict, taken))
        assert worker.complete(assignment.attempt_id, ended(assignment, end_reason)).json() == {"status": "PENDING"}
    stores = served.house.services.stores
    attempts = stores.tasks.attempts(assignment.task.task_id)
    assert [(each.end_reason, each.claimed) for each in attempts] == 3 * [(EndReason.FAILED, EndReason(end_reason))]
    assert "which neither the server nor an optimizer of another token has seen: so it says" in (attempts[0].reason or "")
    reason = stores.tables.state(table.identifier).planning.reason
    assert reason is None or reason.code.value != "NO_ACCESS"


@pytest.mark.parametrize("end_reason", HARMFUL_ENDS)
def test_two_optimizers_of_different_tokens_are_believed(served: Served, table: LakeTable, end_reason: str) -> None:
    first, second = OverHttp(served), OverHttp(served)
    taken = first.take()
    assert first.tell(taken.attempt_id, ended(taken, end_reason)) is TaskStatus.PENDING
    taken = second.take()
    second.tell(taken.attempt_id, ended(taken, end_reason))
    stores = served.house.services.stores
    assert [each.end_reason for each in stores.tasks.attempts(taken.task.task_id)] == [EndReason.FAILED, EndReason(end_reason)]


def test_two_optimizers_of_one_token_are_one_witness(served: Served, table: LakeTable) -> None:
    token = served.token(Role.OPTIMIZER)
    for _ in range(2):
        door = OverHttp(served)
        door.worker = served.registered(token)
        [taken] = door.worker.poll()
        assignment = TypeAdapter(Assignment).validate_python(through_json(dict, taken))
        assert door.tell(assignment.attempt_id, ended(assignment, "REFUSED")) is TaskStatus.PENDING


def test_a_missing_file_that_the_server_misses_too_is_believed_at_once(served: Served, table: LakeTable) -> None:
    door = OverHttp(served)
    taken = door.take()
    Path(taken.task.work.inputs[3].path.removeprefix("file://")).unlink()
    assert door.tell(taken.attempt_id, ended(taken, "FILE_GONE")) is TaskStatus.FAILED
    task = served.house.services.stores.tasks.task(taken.task.task_id)
    assert (task.end_reason, task.is_final) == (EndReason.FILE_GONE, True)


def test_credentials_that_end_too_often_need_a_witness_too(served: Served, table: LakeTable) -> None:
    worker = served.registered()
    for number in range(5):
        [taken] = worker.poll(f"p{number}")
        assignment = TypeAdapter(Assignment).validate_python(through_json(dict, taken))
        assert worker.complete(assignment.attempt_id, ended(assignment, "CREDENTIALS_ENDED")).json() == {"status": "PENDING"}
    attempts = served.house.services.stores.tasks.attempts(assignment.task.task_id)
    assert [each.end_reason for each in attempts] == 3 * [EndReason.CREDENTIALS_ENDED] + 2 * [EndReason.FAILED]


def test_a_task_that_one_token_gives_back_again_and_again_fails_some_day(served: Served, table: LakeTable) -> None:
    worker = served.registered()
    for number in range(5):
        [taken] = worker.poll(f"p{number}")
        assignment = TypeAdapter(Assignment).validate_python(through_json(dict, taken))
        worker.complete(assignment.attempt_id, ended(assignment, "INTERRUPTED"))
    attempts = served.house.services.stores.tasks.attempts(assignment.task.task_id)
    assert [each.end_reason for each in attempts] == 3 * [EndReason.INTERRUPTED] + 2 * [EndReason.FAILED]


def test_a_secret_in_the_text_of_an_optimizer_is_hidden(served: Served, table: LakeTable) -> None:
    door = OverHttp(served)
    taken = door.take()
    door.tell(taken.attempt_id, ended(taken, "FAILED", "no answer of https://u:secret@host"))
    [attempt] = served.house.services.stores.tasks.attempts(taken.task.task_id)
    assert "secret" not in (attempt.reason or "")


def test_a_revoked_token_is_not_allowed_again_and_no_secret_is_shown(served: Served) -> None:
    tokens = served.house.services.keep_tokens
    issued = tokens.issue(Role.OPTIMIZER, "old")
    assert not tokens.allow(issued.text), "a whole token is taken for its id"
    tokens.revoke(issued.token.token_id)
    with pytest.raises(ConfigError, match="is revoked, and stays so"):
        tokens.allow(issued.token.token_id)
    with pytest.raises(NotFoundError) as error:
        tokens.allow("x" + issued.text)
    assert issued.text.partition(".")[2] not in str(error.value)


def test_a_text_is_cut_and_escaped_where_it_enters(door: Door, table: LakeTable) -> None:
    taken = door.take()
    door.tell(taken.attempt_id, ended(taken, "FAILED", "a\x1b[31m\nforged line\0\u202e\x9b" + "x" * 100_000))
    [attempt] = door.served.house.services.stores.tasks.attempts(taken.task.task_id)
    assert "a\\x1b[31m\\nforged line\\x00\\u202e\\x9bxxx" in (attempt.reason or "")
    assert len(attempt.reason or "") < 9_000


def test_what_an_optimizer_says_of_itself_is_escaped(served: Served) -> None:
    worker = served.registered(host="there\x1b[2J\nhere", process="7\x07", resource_id="r\x9b")
    [stored] = [each for each in served.house.services.serve_optimizers.optimizers() if each.optimizer_id == worker.optimizer_id]
    assert (stored.host, stored.process, stored.resource_id) == ("there\\x1b[2J\\nhere", "7\\x07", "r\\x9b")


# ---- what becomes of the liar ------------------------------------------------------------------------------------------


@pytest.fixture
def refused(served: Served, table: LakeTable) -> Callable[[str], Any]:
    """Register with a token, and send a report about a new task that cannot be true."""
    names = iter("abcdefgh")

    def lie(token: str) -> Any:
        stores = served.house.services.stores
        waiting = [task.task_id for task in stores.tasks.tasks(statuses=(TaskStatus.PENDING,))]
        stores.tasks.cancel(waiting, EndReason.GIVEN_UP, "another one is next", served.house.now)
        lies_table(served, name=next(names))
        worker = served.registered(token)
        [taken] = worker.poll()
        report = merged(TypeAdapter(Assignment).validate_python(through_json(dict, taken)))
        report["outputs"][0]["path"] += "#"
        answer = worker.complete(report["attempt_id"], report)
        assert answer.status_code == 422
        assert "gets no more tasks" in answer.json()["detail"]
        return worker

    return lie


def test_a_refused_report_costs_no_retry_and_its_optimizer_gets_no_more_tasks(
    served: Served, table: LakeTable, refused: Callable[[str], Any]
) -> None:
    liar = refused(served.token(Role.OPTIMIZER))
    [task] = served.house.services.stores.tasks.tasks(statuses=(TaskStatus.PENDING,))
    assert (task.status, task.failures, task.losses) == (TaskStatus.PENDING, 0, 0)
    assert liar.poll("p2") == []
    assert liar.touch()["drain"]
    [again] = served.registered().poll()
    assert again["task"]["task_id"] == task.task_id


def test_three_refused_reports_within_an_hour_block_the_token(served: Served, table: LakeTable, refused: Callable[[str], Any]) -> None:
    services = served.house.services
    issued = services.keep_tokens.issue(Role.OPTIMIZER, "a liar")
    refused(issued.text)
    served.house.pass_time(3601)
    for _ in range(2):
        refused(issued.text)
    assert services.keep_tokens.tokens()[0].blocked_at is None
    liar = refused(issued.text)
    assert services.keep_tokens.tokens()[0].blocked_at == served.house.now
    states = {each.optimizer_id: (each.state.value, each.why) for each in services.serve_optimizers.optimizers()}
    assert states[liar.optimizer_id][0] == "ENDED"
    assert "is blocked: 3 reports within an hour cannot be true" in states[liar.optimizer_id][1]
    answer = served.ask("POST", "/api/v1/optimizers", issued.text, json=REGISTRATION)
    assert answer.status_code == 403
    assert f"token allow {issued.token.token_id}" in answer.json()["detail"]
    served.house.pass_time(6)
    figures = served.ask("GET", "/metrics", served.token(Role.READER)).text
    assert 'compaction_refused_reports_total{queue="default"}' in figures
    assert "compaction_blocked_tokens 1.0" in figures
    assert services.read_queues.queues().work("default").refused_reports == 3
    served.registered()
    served.house.pass_time(1)
    assert services.keep_tokens.allow(issued.token.token_id)
    assert not services.keep_tokens.allow(issued.token.token_id)
    served.registered(issued.text)
    # What was refused before does not count again.
    refused(issued.text)
    assert not services.keep_tokens.is_blocked(issued.token.token_id)


def test_a_token_that_is_blocked_during_a_registration_gets_no_optimizer(served: Served) -> None:
    services = served.house.services
    issued = services.keep_tokens.issue(Role.OPTIMIZER, "a liar")
    real = services.serve_optimizers.register

    def blocked_meanwhile(registration: Any) -> Any:
        services.stores.tokens.block(issued.token.token_id, served.house.now)
        return real(registration)

    with mock.patch.object(services.serve_optimizers, "register", blocked_meanwhile):
        assert served.ask("POST", "/api/v1/optimizers", issued.text, json=REGISTRATION).status_code == 403
    assert not services.serve_optimizers.optimizers(live=True)


def test_a_second_refused_report_of_a_task_is_a_failure_and_blames_nobody(served: Served, table: LakeTable) -> None:
    stores = served.house.services.stores
    for number in range(4):
        door = OverHttp(served)
        taken = door.take()
        report = merged(taken)
        report["outputs"][0]["path"] += "#"
        assert door.tell(taken.attempt_id, report) is TaskStatus.PENDING
        drains = door.worker.touch()["drain"]
        assert drains is (number == 0)
    attempts = stores.tasks.attempts(taken.task.task_id)
    assert [each.end_reason for each in attempts] == [EndReason.REPORT_REFUSED, *3 * [EndReason.FAILED]]
    assert stores.tasks.task(taken.task.task_id).failures == 3


def test_a_data_folder_that_changes_during_a_merge_blames_nobody(served: Served, table: LakeTable, tmp_path: Path) -> None:
    door = OverHttp(served)
    taken = door.take()
    report = merged(taken)
    with table.table.transaction() as change:
        change.set_properties({"write.data.path": f"file://{tmp_path}/elsewhere"})
    served.house.services.refresh_files.refresh(table.identifier)
    assert door.worker.complete(taken.attempt_id, report).json() == {"status": "PENDING"}
    [attempt] = served.house.services.stores.tasks.attempts(taken.task.task_id)
    assert attempt.end_reason is EndReason.FAILED
    assert "may have changed meanwhile" in (attempt.reason or "")
    assert not door.worker.touch()["drain"]
    check_rows(table)


def test_a_late_lie_deletes_no_other_file(served: Served, table: LakeTable) -> None:
    """The table lost the plan's schema, and another report of the attempt came first, so the files of this one belong to nobody."""
    door = OwnProcess(served)
    taken = door.take()
    report = merged(taken)
    own = report["outputs"][0]["path"]
    live = [file.path for file in table.files()] + [table.table.metadata_location]
    name = own.rpartition("/")[2]
    result = TypeAdapter(MergeResult).validate_python(report)
    lies = [replace(result.outputs[0], path=f"{path}{way}{name}") for path in live for way in ("?x=/", "#/", "/../", "?/", ";/")]
    serve = served.house.services.serve_tasks
    serve.complete(taken.task, MergeResult(taken.task.task_id, taken.attempt_id, end_reason=EndReason.INTERRUPTED, error="it leaves"))
    with mock.patch.object(serve, "_layout", return_value="the table changed"), pytest.raises(StaleAttempt):
        serve.complete(taken.task, replace(result, outputs=(*lies, *result.outputs)))
    assert all(Path(path.removeprefix("file://")).exists() for path in live)
    assert not Path(own.removeprefix("file://")).exists()
    check_rows(table)
