"""What `compact` answers: one flat object of figures for programs, with its exit code. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from compaction_pipeline.cli.exit_codes import ExitCode, exit_code_of
from compaction_pipeline.core.commit.record import CompactionRecord, RecordStatus
from compaction_pipeline.core.errors import CompactionError, ErrorCode
from compaction_pipeline.core.fragmentation.verdict import PlanReason, PlanReasonCode
from compaction_pipeline.core.ids import TaskId
from compaction_pipeline.core.insight.compaction import Compaction
from compaction_pipeline.core.planning.plan import CompactionPlan
from compaction_pipeline.core.tables.figures import NodeMetrics
from compaction_pipeline.core.tables.table import TableIdentifier
from compaction_pipeline.core.words import count_text

PAUSED = "paused: `compact` does nothing before `resume`"

# The exit code of an empty plan, for reasons that mean more than "nothing to do".
_EXIT_OF_REASON: Mapping[PlanReasonCode, ExitCode] = {
    PlanReasonCode.REFUSED: ExitCode.REFUSED,
    PlanReasonCode.LIVE_TWICE: ExitCode.REFUSED,
    PlanReasonCode.OBSERVED: ExitCode.REFUSED,
    PlanReasonCode.PAUSED: ExitCode.REFUSED,
    PlanReasonCode.INVALID_PROPERTY: ExitCode.BAD_INPUT,
    PlanReasonCode.GROUP_MISSING: ExitCode.BAD_INPUT,
    PlanReasonCode.OVER_TEAM_BUDGET: ExitCode.FAILED,
    PlanReasonCode.QUEUE_FULL: ExitCode.FAILED,
    PlanReasonCode.NO_ACCESS: ExitCode.FAILED,
    PlanReasonCode.BEING_READ: ExitCode.FAILED,
    PlanReasonCode.FAILING: ExitCode.FAILED,
}


@dataclass(frozen=True, slots=True)
class TableBefore:
    """The table as the command found it. When nothing is committed, these figures are those before and those after."""

    snapshot_id: int | None = None
    metrics: NodeMetrics = field(default_factory=NodeMetrics)
    paused: bool = False


@dataclass(frozen=True, slots=True)
class CompactionAnswer:
    """The JSON object of `compact`. Counts of files and bytes are of the whole table. `rows` counts the rows that the merges wrote.

    `table` is None when the command line names no table. `*_after` are None when the outcome is unknown. `reason` is None when everything
    that was planned is committed. `reason_code` is PLANNED when something was planned, or REFUSED when no attempt can merge any of it.
    Otherwise it says why nothing was planned, or which kind of error ended the command. `error` is the same as `reason` when `exit_code` is
    not 0. `held` says which other processes merge files of the table, of which nothing could be planned; None when none does. `plan` is
    set for a dry run and has what `plan --json` answers.
    """

    table: str | None
    snapshot_before: int | None
    snapshot_after: int | None
    tasks: int
    committed: int
    conflicts: int
    files_before: int
    files_after: int | None
    delete_files_before: int
    delete_files_after: int | None
    bytes_before: int
    bytes_after: int | None
    rows: int
    rows_deleted: int
    reason: str | None
    exit_code: ExitCode
    reason_code: PlanReasonCode | ErrorCode
    dry_run: bool = False
    paused: bool = False
    records: tuple[str, ...] = ()
    failed: Mapping[TaskId, str] = field(default_factory=dict)
    conflict_reasons: Mapping[TaskId, str] = field(default_factory=dict)
    error: str | None = None
    held: str | None = None
    plan: Mapping[str, object] | None = None


def answer_of(compaction: Compaction, before: TableBefore) -> CompactionAnswer:
    """The figures from the first committed record to the last. When none was committed, they are those of the table as it was found."""
    committed = [record for record in compaction.records if record.status is RecordStatus.COMMITTED]
    code = exit_code_of_compaction(compaction)
    unchanged = _unchanged(str(compaction.table), before, code, _reason_code(compaction))
    reason = None if code is ExitCode.DONE and committed else _reason(compaction)
    answer = replace(
        unchanged,
        tasks=len(compaction.tasks),
        committed=len(compaction.committed),
        conflicts=len(compaction.conflicts),
        rows=sum(record.rows for record in committed),
        rows_deleted=sum(record.rows_deleted for record in committed),
        reason=reason,
        records=tuple(record.record_id for record in compaction.records),
        failed=dict(compaction.failed),
        conflict_reasons=dict(compaction.conflicts),
        held=compaction.held,
        error=None if code is ExitCode.DONE else reason,
    )
    if committed:
        first, last = committed[0].figures, committed[-1].figures
        answer = replace(
            answer,
            snapshot_before=committed[0].snapshot_before,
            snapshot_after=committed[-1].snapshot_after,
            files_before=first.files_before,
            files_after=last.files_after,
            delete_files_before=first.delete_files_before,
            delete_files_after=last.delete_files_after,
            bytes_before=first.bytes_before,
            bytes_after=last.bytes_after,
        )
    return _without_figures_after(answer) if compaction.unknown else answer


def dry_run_answer(table: str, plan: CompactionPlan, before: TableBefore, shown: Mapping[str, object] | None = None) -> CompactionAnswer:
    """What `compact` would do. Nothing is committed, so the figures after are those before.

    For a paused table, the answer tells what `compact` would do after `resume`. `shown` is the plan as programs read it.
    """
    unchanged = _unchanged(table, before, exit_code_of_plan(plan), plan.reason.code)
    reason = f"{plan.reason.text}; the table is {PAUSED}" if before.paused else plan.reason.text
    error = None if unchanged.exit_code is ExitCode.DONE else reason
    return replace(unchanged, tasks=len(plan.tasks), dry_run=True, paused=before.paused, reason=reason, error=error, plan=shown)


def error_answer(table: str, error: CompactionError, before: TableBefore) -> CompactionAnswer:
    """`compact` ended with an error before it committed anything. The error may say that the outcome of an earlier commit is unknown."""
    return ended_answer(table, str(error), exit_code_of(error), error.code, before)


def cut_off_answer(
    table: TableIdentifier, error: CompactionError, tasks: int, records: Sequence[CompactionRecord], is_unread: bool, before: TableBefore
) -> CompactionAnswer | None:
    """An error ended `compact` after it had committed something, or while a commit was under way. None when neither was the case.

    `records` are those that the command made, oldest first. `is_unread` is True when the command merged tasks, and the state database
    could not be asked whether they were committed. The exit code is PARTLY_COMMITTED, or OUTCOME_UNKNOWN when a commit may have landed
    that the answer cannot count.
    """
    committed = [record.record_id for record in records if record.committed_task_ids]
    open_record = next((record.record_id for record in records if record.ended_at is None), None)
    is_unknown = is_unread or open_record is not None or exit_code_of(error) is ExitCode.OUTCOME_UNKNOWN
    if not committed and open_record is None and not is_unread:
        return None
    said = str(error)
    if open_record is not None:
        said += f"; whether commit {open_record} landed is unknown; run the command again: it reads the table to find out"
    elif is_unread:
        said += "; whether the merged tasks were committed is unknown; run the command again: it reads the table to find out"
    elif not is_unknown:
        said += f"; nothing more was committed after {', '.join(committed)}; run the command again"
    plan = CompactionPlan((), PlanReason(PlanReasonCode.PLANNED, said))
    answer = _counted(table, plan, tasks, records, before)
    if is_unknown:
        answer = replace(_without_figures_after(answer), exit_code=ExitCode.OUTCOME_UNKNOWN, reason_code=ErrorCode.OUTCOME_UNKNOWN)
    else:
        answer = replace(answer, exit_code=ExitCode.PARTLY_COMMITTED, reason_code=error.code)
    return replace(answer, reason=said, error=said)


def ended_answer(table: str | None, message: str, code: ExitCode, reason_code: ErrorCode, before: TableBefore) -> CompactionAnswer:
    """`compact` ended before it had an answer of its own. `message` says why."""
    unchanged = _unchanged(table, before, code, reason_code)
    if code is ExitCode.OUTCOME_UNKNOWN:
        unchanged = _without_figures_after(unchanged)
    return replace(unchanged, reason=message, error=message)


VALUED_OPTIONS = ("--type", "--where", "--snapshot-property")
"""The options of `compact` that take a value."""


def asked_table(arguments: Sequence[str]) -> str | None:
    """The table that a command line of `compact` names, or None. The command line may be wrong in any other way."""
    named = [
        argument
        for before, argument in zip(("", *arguments), arguments, strict=False)
        if not argument.startswith("-") and before not in VALUED_OPTIONS
    ][1:]
    return next((argument for argument in named if _is_table(argument)), named[0] if named else None)


def _is_table(text: str) -> bool:
    try:
        TableIdentifier.parse(text)
    except CompactionError:
        return False
    return True


def interrupted_answer(
    table: TableIdentifier, message: str, tasks: int, records: Sequence[CompactionRecord], before: TableBefore
) -> CompactionAnswer:
    """`compact` was interrupted. The answer counts what it had planned and committed by then."""
    answer = _counted(table, CompactionPlan((), PlanReason(PlanReasonCode.PLANNED, message)), tasks, records, before)
    if records and records[-1].ended_at is None:
        answer = _without_figures_after(answer)
    return replace(answer, exit_code=ExitCode.INTERRUPTED, reason=message, error=message, reason_code=ErrorCode.INTERRUPTED)


def _counted(
    table: TableIdentifier, plan: CompactionPlan, tasks: int, records: Sequence[CompactionRecord], before: TableBefore
) -> CompactionAnswer:
    """The figures of a compaction that was ended early. `tasks` is how many tasks it had planned."""
    return replace(answer_of(Compaction(table, plan, tuple(records)), before), tasks=tasks)


def _without_figures_after(answer: CompactionAnswer) -> CompactionAnswer:
    return replace(answer, snapshot_after=None, files_after=None, delete_files_after=None, bytes_after=None)


def interrupted_in_words(records: Sequence[CompactionRecord], kept: int) -> str:
    """What an interrupted `compact` leaves behind.

    `records` are those that it made; the commit of the last one may be cut off. `kept` counts tasks that are merged and not committed.
    """
    if records and records[-1].ended_at is None:
        return f"interrupted during commit {records[-1].record_id}; run the command again: it reads the table to find out how that ended"
    committed = [record.record_id for record in records if record.status is RecordStatus.COMMITTED]
    what = f"nothing more was committed after {', '.join(committed)}" if committed else "nothing was committed"
    if kept:
        are, them = ("is", "it") if kept == 1 else ("are", "them")
        what += f"; {count_text(kept, 'merged task')} {are} kept: the next `compact` or tick commits {them}"
    return f"interrupted; {what}; run the command again"


def exit_code_of_plan(plan: CompactionPlan) -> ExitCode:
    """DONE for a plan that has tasks, and for an empty plan when there is nothing to do."""
    return ExitCode.DONE if plan.tasks else _EXIT_OF_REASON.get(plan.reason.code, ExitCode.DONE)


def exit_code_of_compaction(compaction: Compaction) -> ExitCode:
    """OUTCOME_UNKNOWN comes before all others. Then the code says whether all, some or none of the planned work is committed.

    A conflict does not count when a later round has committed the work.
    """
    if compaction.unknown:
        return ExitCode.OUTCOME_UNKNOWN
    if not compaction.tasks:
        return exit_code_of_plan(compaction.plan)
    last: CompactionRecord | None = compaction.records[-1] if compaction.records else None
    left_out = bool(compaction.failed) or compaction.waiting is not None or last is None or bool(last.conflicts)
    if not compaction.committed:
        return ExitCode.REFUSED if _is_refused(compaction) else ExitCode.FAILED
    return ExitCode.PARTLY_COMMITTED if left_out or (last is not None and last.status is not RecordStatus.COMMITTED) else ExitCode.DONE


def _is_refused(compaction: Compaction) -> bool:
    """True when nothing was committed, and every task failed because its files break a rule. Another attempt cannot mend that."""
    return not compaction.committed and bool(compaction.failed) and compaction.refused >= compaction.failed.keys()


def _reason_code(compaction: Compaction) -> PlanReasonCode:
    if _is_refused(compaction):
        return PlanReasonCode.REFUSED
    if _is_held_elsewhere(compaction):
        return PlanReasonCode.FILES_IN_USE
    return PlanReasonCode.PLANNED if compaction.tasks else compaction.plan.reason.code


def _is_held_elsewhere(compaction: Compaction) -> bool:
    """True when nothing was planned because another process works on the same files."""
    return compaction.waiting is not None and not compaction.tasks and not compaction.failed


def _reason(compaction: Compaction) -> str:
    last = compaction.records[-1] if compaction.records else None
    if last is None or compaction.failed or last.status is RecordStatus.UNKNOWN or not last.conflicts:
        return compaction.reason
    task_id, first = next(iter(last.conflicts.items()))
    return f"{count_text(len(last.conflicts), 'task')} met a conflict, e.g. {task_id}: {first}; compact again to plan the work anew"


def _unchanged(table: str | None, before: TableBefore, code: ExitCode, reason_code: PlanReasonCode | ErrorCode) -> CompactionAnswer:
    metrics = before.metrics
    size = metrics.data_bytes + metrics.delete_bytes
    return CompactionAnswer(
        table=table,
        snapshot_before=before.snapshot_id,
        snapshot_after=before.snapshot_id,
        tasks=0,
        committed=0,
        conflicts=0,
        files_before=metrics.data_files,
        files_after=metrics.data_files,
        delete_files_before=metrics.delete_files,
        delete_files_after=metrics.delete_files,
        bytes_before=size,
        bytes_after=size,
        rows=0,
        rows_deleted=0,
        reason=None,
        exit_code=code,
        reason_code=reason_code,
        paused=before.paused,
    )
