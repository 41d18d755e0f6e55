"""Each way in which a compaction can end, with its exit code and its figures."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from typer.main import get_command

from compaction_pipeline.cli.commands.compaction import commands
from compaction_pipeline.cli.compaction_answer import (
    VALUED_OPTIONS,
    TableBefore,
    answer_of,
    asked_table,
    dry_run_answer,
    error_answer,
    exit_code_of_plan,
)
from compaction_pipeline.cli.exit_codes import ExitCode
from compaction_pipeline.core.commit.record import CommitFigures, RecordStatus
from compaction_pipeline.core.errors import CommitStateUnknown, ErrorCode
from compaction_pipeline.core.fragmentation.verdict import PlanReason, PlanReasonCode
from compaction_pipeline.core.insight.compaction import Compaction
from compaction_pipeline.core.planning.plan import CompactionPlan
from compaction_pipeline.core.tables.figures import NodeMetrics
from compaction_pipeline_tests.defs.values import ORDERS, record, task

BEFORE = TableBefore(7, NodeMetrics(data_files=30, position_delete_files=2, equality_delete_files=2, data_bytes=900, delete_bytes=100))
TASKS = (task("t1"), task("t2"))


def plan(code: PlanReasonCode = PlanReasonCode.PLANNED, tasks: bool = True) -> CompactionPlan:
    return CompactionPlan(tuple(item.work for item in TASKS) if tasks else (), PlanReason(code, "why"))


def compaction(**fields: Any) -> Compaction:
    return Compaction(ORDERS, **{"plan": plan(), "tasks": TASKS, **fields})


def test_all_committed_is_done_without_a_reason() -> None:
    done = replace(record("r1", ("t1", "t2")), rows=100, rows_deleted=3)
    answer = answer_of(compaction(records=(done,)), BEFORE)
    assert (answer.exit_code, answer.reason, answer.committed, answer.conflicts) == (ExitCode.DONE, None, 2, 0)
    assert (answer.snapshot_before, answer.snapshot_after, answer.rows, answer.rows_deleted) == (7, 8, 100, 3)
    assert (answer.files_before, answer.files_after, answer.delete_files_before, answer.delete_files_after) == (30, 3, 4, 0)


def test_several_rounds_count_from_the_first_to_the_last() -> None:
    first = replace(record("r1", ("t1", "t2")), committed_task_ids=("t1",), conflicts={"t2": "a delete came"})
    second = replace(record("r2", ("t3",)), snapshot_before=8, snapshot_after=9, figures=CommitFigures(files_before=3, files_after=2))
    answer = answer_of(compaction(records=(first, second), tasks=(*TASKS, task("t3"))), BEFORE)
    assert (answer.exit_code, answer.snapshot_before, answer.snapshot_after) == (ExitCode.DONE, 7, 9)
    assert (answer.files_before, answer.files_after, answer.conflicts) == (30, 2, 1)


def test_a_conflict_that_stays_is_partly_committed_and_named() -> None:
    last = replace(record("r1", ("t1", "t2")), committed_task_ids=("t1",), conflicts={"t2": "a delete came"})
    answer = answer_of(compaction(records=(last,)), BEFORE)
    assert answer.exit_code is ExitCode.PARTLY_COMMITTED
    assert "t2: a delete came" in (answer.reason or "")


def test_a_failed_task_beside_a_committed_one_is_partly_committed() -> None:
    answer = answer_of(compaction(records=(record(),), failed={"t2": "no memory"}), BEFORE)
    assert answer.exit_code is ExitCode.PARTLY_COMMITTED
    assert "no memory" in (answer.reason or "")
    assert answer.error == answer.reason


@pytest.mark.parametrize(
    "ended",
    [
        compaction(failed={"t1": "no memory", "t2": "no memory"}, waiting="nothing is prepared"),
        compaction(waiting="another process is committing"),
        compaction(records=(replace(record(status=RecordStatus.FAILED), conflicts={"t1": "a", "t2": "b"}),)),
    ],
)
def test_nothing_committed_is_failed_and_leaves_the_table_as_it_was(ended: Compaction) -> None:
    answer = answer_of(ended, BEFORE)
    assert answer.exit_code is ExitCode.FAILED
    assert answer.reason
    assert (answer.snapshot_before, answer.snapshot_after) == (7, 7)
    assert (answer.files_after, answer.delete_files_after, answer.bytes_after) == (30, 4, 1000)


def test_an_unknown_outcome_outranks_all_and_gives_no_figures_after_it() -> None:
    lost = replace(record("r2", status=RecordStatus.UNKNOWN), reason="the answer got lost")
    answer = answer_of(compaction(records=(record(), lost), failed={"t2": "no memory"}), BEFORE)
    assert answer.exit_code is ExitCode.OUTCOME_UNKNOWN
    assert (answer.snapshot_after, answer.files_after, answer.bytes_after) == (None, None, None)


@pytest.mark.parametrize(
    ("code", "exit_code"),
    [
        (PlanReasonCode.NOT_FRAGMENTED, 0),
        (PlanReasonCode.NO_GAIN, 0),
        (PlanReasonCode.EMPTY_TABLE, 0),
        (PlanReasonCode.MIN_PLAN_INTERVAL, 0),
        (PlanReasonCode.FILES_IN_USE, 0),
        (PlanReasonCode.DISABLED, 0),
        (PlanReasonCode.REFUSED, 4),
        (PlanReasonCode.OBSERVED, 4),
        (PlanReasonCode.PAUSED, 4),
        (PlanReasonCode.INVALID_PROPERTY, 2),
        (PlanReasonCode.GROUP_MISSING, 2),
        (PlanReasonCode.QUEUE_FULL, 1),
        (PlanReasonCode.NO_ACCESS, 1),
        (PlanReasonCode.BEING_READ, 1),
        (PlanReasonCode.FAILING, 1),
    ],
)
def test_an_empty_plan_ends_by_its_reason(code: PlanReasonCode, exit_code: int) -> None:
    empty = plan(code, tasks=False)
    assert exit_code_of_plan(empty) == exit_code
    answer = answer_of(Compaction(ORDERS, empty), BEFORE)
    assert answer.error == dry_run_answer(str(ORDERS), empty, BEFORE).error == ("why" if exit_code else None)
    assert (answer.exit_code, answer.reason, answer.reason_code, answer.tasks) == (exit_code, "why", code, 0)


def test_another_process_at_the_table_is_the_only_reason_and_has_a_code() -> None:
    who = "another process is compacting this table"
    answer = answer_of(Compaction(ORDERS, plan(PlanReasonCode.NOT_FRAGMENTED, tasks=False), waiting=who), BEFORE)
    assert (answer.exit_code, answer.reason, answer.reason_code) == (0, who, PlanReasonCode.FILES_IN_USE)


def test_a_dry_run_commits_nothing() -> None:
    answer = dry_run_answer(str(ORDERS), plan(), BEFORE)
    assert (answer.dry_run, answer.tasks, answer.committed, answer.files_after) == (True, 2, 0, 30)


def test_an_error_is_an_answer_too() -> None:
    answer = error_answer(str(ORDERS), CommitStateUnknown("lost"), BEFORE)
    assert (answer.error, answer.reason, answer.snapshot_before, answer.snapshot_after) == ("lost", "lost", 7, None)
    assert (answer.exit_code, answer.reason_code) == (ExitCode.OUTCOME_UNKNOWN, ErrorCode.OUTCOME_UNKNOWN)


@pytest.mark.parametrize(
    ("line", "table"),
    [
        ("compact lake.shop.orders --bogus", "lake.shop.orders"),
        ("compact --bogus 5 lake.shop.orders", "lake.shop.orders"),
        ("compact --type full --where region=a.b.c lake.shop.orders", "lake.shop.orders"),
        ("compact orders", "orders"),
        ("compact", None),
        ("compact --type full", None),
    ],
)
def test_the_table_is_known_from_a_wrong_command_line(line: str, table: str | None) -> None:
    assert asked_table(line.split()) == table


def test_the_options_with_a_value_are_those_of_the_command() -> None:
    command = get_command(commands).commands["compact"]  # type: ignore[attr-defined]
    valued = [name for item in command.params if item.param_type_name == "option" and not item.is_flag for name in item.opts]
    assert sorted(valued) == sorted(VALUED_OPTIONS)
