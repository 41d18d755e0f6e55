"""`docs/operations.md` explains every exit code and every reason. This test makes its tables from the enums."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from compaction_pipeline.cli.compaction_answer import exit_code_of_plan
from compaction_pipeline.cli.exit_codes import ExitCode, exit_code_of
from compaction_pipeline.core.errors import CompactionError, ErrorCode
from compaction_pipeline.core.fragmentation.verdict import ORDER, PlanReason, PlanReasonCode
from compaction_pipeline.core.planning.plan import CompactionPlan
from compaction_pipeline.core.work.ends import EndReason
from compaction_pipeline_tests.written_pages import ROOT, check_part, table

EXIT_CODES: Mapping[ExitCode, tuple[str, str]] = {
    ExitCode.DONE: (
        "The work is done, or there was nothing to do; the reason says which.",
        "Nothing. With `FILES_IN_USE` another process works on the table: run the command again later.",
    ),
    ExitCode.FAILED: (
        "The command failed. It is certain that it committed nothing, unless the reason is `UNEXPECTED`. `check` ends so when a check "
        "fails or a table cannot be read.",
        "Read the sentence. Most failures pass, so run the command again. For a failed check, do what its description says.",
    ),
    ExitCode.BAD_INPUT: (
        "An argument, a setting or a property breaks a rule, or something that was named does not exist.",
        "Correct it as the sentence says.",
    ),
    ExitCode.PARTLY_COMMITTED: (
        "Some tasks were committed; others failed or met a conflict, or an error ended the command after a commit.",
        "Run the command again: it plans what is left.",
    ),
    ExitCode.REFUSED: (
        "The table is not compacted in its present state: its kind is not supported, its files break a rule of the format, its catalog "
        "is only observed, or a person paused it.",
        "Read the reason. Trying again changes nothing.",
    ),
    ExitCode.OUTCOME_UNKNOWN: (
        "Whether a commit landed is unknown: the catalog did not answer, its answer does not tell, or the state database failed during "
        "the commit.",
        "Run the command again, or wait for a tick: the program reads the table and finds out whether the commit is there. Delete nothing.",
    ),
    ExitCode.NOT_READY: (
        "`ready` found that a partition or window that was asked for is not ready, or `watermark --reached` that the watermark is before "
        "that time.",
        "Wait, and ask again; the sentence says what is missing.",
    ),
    ExitCode.INTERRUPTED: (
        "Ctrl-C or SIGTERM ended the command. `serve` and `optimizer` end with 0 when they could end in order.",
        "Run the command again: it first commits what was merged.",
    ),
}

PLAN_REASONS: Mapping[PlanReasonCode, tuple[str, str]] = {
    PlanReasonCode.PLANNED: ("There is work, and it was planned.", "Nothing. The exit code tells how the work ended."),
    PlanReasonCode.NOT_FRAGMENTED: ("No partition is due.", "Nothing. With `--type`, a command ignores the thresholds."),
    PlanReasonCode.NO_GAIN: ("A compaction would leave as many files and deletes as there are now.", "Nothing."),
    PlanReasonCode.LIVE_TWICE: (
        "A file is in the table more than once. Every reader sees the rows of such a data file twice.",
        "Find the writer that did it. Roll the table back, or overwrite those rows with the engine that writes the table.",
    ),
    PlanReasonCode.MIN_PLAN_INTERVAL: (
        "The last plan that made tasks is younger than `self-optimizing.min-plan-interval`.",
        "Wait. `compact` does not wait for it.",
    ),
    PlanReasonCode.FILES_IN_USE: (
        "Another process works on the files, or they were merged and wait for their commit.",
        "Run the command again a little later.",
    ),
    PlanReasonCode.OVER_BUDGET: (
        "The table already has as many planned and unmerged tasks as its quota allows, or these tasks read as many bytes as the program "
        "allows for one table.",
        "Wait until some are merged. When the reason names the quota, you can also raise `self-optimizing.quota`, or let the group have "
        "more slots.",
    ),
    PlanReasonCode.OVER_TEAM_BUDGET: (
        "The team that pays for the table has reached one of its limits: slots or memory at a time, or GB-hours of the day. Nothing new "
        "of it begins; what runs, commits and clean-up go on.",
        "Wait until some of its work has ended, or until 00:00 UTC. `team list` shows who uses how much. An administrator can raise the "
        "limit with `team set`, and another team can lend a part of its own with `team lend` ([What may compaction cost?](budgets.md)).",
    ),
    PlanReasonCode.BELOW_BUDGET_CUT: (
        "The GB-hours that the team has left today do not reach the node: other nodes of its tables gain more for what they cost. It gains "
        "one rank for each day that it waits.",
        "Wait, or let an administrator raise the team's GB-hours with `team set`. `plan --budget 4GBh` shows all nodes in their order, and "
        "`compact` does the node now.",
    ),
    PlanReasonCode.QUEUE_FULL: (
        "The queue of the table's group has no room for the work. Tables that wait for room are planned before others.",
        "Wait: ticks plan again when a fifth of the queue is free, and a command as soon as its tasks fit. "
        "Or let more slots work for the group, or raise its capacity with `group change`.",
    ),
    PlanReasonCode.NOT_REQUESTED: ("None of the partitions that were asked for has files.", "Correct `--where`."),
    PlanReasonCode.EMPTY_TABLE: ("The table has no files.", "Nothing."),
    PlanReasonCode.DISABLED: (
        "`self-optimizing.enabled` or `compaction.enabled` is false, a policy of the catalog forbids to compact, or "
        "`self-optimizing.filter` leaves out all that was asked for.",
        "Correct the property, or the policy, in the catalog ([what catalogs decide](catalog-rules.md)). "
        "With `--type`, `compact` works on the table once although it is switched off, and with `--type` and "
        "`--where` on partitions that the filter leaves out.",
    ),
    PlanReasonCode.PAUSED: ("A person paused the table, or all tables.", "Run `compaction-pipeline resume`."),
    PlanReasonCode.OBSERVED: (
        "The table's catalog was added with `--observe`.",
        "Run `catalog change CATALOG --no-observe`.",
    ),
    PlanReasonCode.REFUSED: (
        "The kind of table or of its files is not supported, or the files break a rule of the format.",
        "Read the reason. The program looks at the table again when it changes.",
    ),
    PlanReasonCode.INVALID_PROPERTY: (
        "A property of the table or of the catalog breaks its rule.",
        "Correct it. `table show` lists the properties in force.",
    ),
    PlanReasonCode.GROUP_MISSING: (
        "The resource group that the table names in `self-optimizing.group` does not exist.",
        "Make it with `group add`, or correct the property.",
    ),
    PlanReasonCode.NO_ACCESS: (
        "The storage or the catalog refuses access: a right, key, token, region or bucket is wrong.",
        "Correct it there. The next plan tries again.",
    ),
    PlanReasonCode.BEING_READ: (
        "The table's files have not been read yet, or they changed while they were read.",
        "Run the command again. `table show` says what keeps the files from being read.",
    ),
    PlanReasonCode.NOT_READY: (
        "A FULL waits until its partition is ready (`compaction.full.when-ready`), or a MAJOR until nobody has added a file to its "
        "partition for some time (`compaction.major.cold-after`).",
        "Wait: the reason says what is missing. `compact` does not wait for it.",
    ),
    PlanReasonCode.OUTSIDE_WINDOW: (
        "A FULL or a MAJOR waits for its window (`compaction.full.window`, `compaction.major.window`), so that heavy work runs at night, "
        "say: `22:00-06:00 Europe/Berlin mon-fri`.",
        "Wait: the reason says when it opens. What was planned before it closed goes on. `compact` does not wait for it.",
    ),
    PlanReasonCode.FAILING: (
        "Tasks of the node used up their attempts less than an hour ago.",
        "Mend what the reason names, then run `compact`.",
    ),
}

ERROR_REASONS: Mapping[ErrorCode, tuple[str, str]] = {
    ErrorCode.INVALID_INPUT: ("An argument, a setting or a property of a catalog breaks a rule.", "Correct it as the sentence says."),
    ErrorCode.NOT_FOUND: (
        "A catalog, table, partition or record does not exist.",
        "Correct its name. `table list` shows the existing tables.",
    ),
    ErrorCode.REFUSED: ("The kind of table is never compacted.", "Read the reason."),
    ErrorCode.PAUSED: ("A person paused the table. The HTTP service answers so.", "Resume it, as the sentence says."),
    ErrorCode.MERGE_FAILED: ("A merge could not read or write its files.", "Read the reason, and run the command again."),
    ErrorCode.CONFLICT: (
        "The table, or a project of the dependency center, changed in a way that makes the work wrong.",
        "Run the command again: it looks at what there is now.",
    ),
    ErrorCode.OUTCOME_UNKNOWN: (
        "Whether a commit landed is unknown: the catalog did not answer, or its answer does not tell.",
        "Run the command again. Delete nothing.",
    ),
    ErrorCode.UNAVAILABLE: (
        "A database, a catalog, a storage or Spark did not answer, or a file of metadata is missing or corrupt.",
        "Check that the service runs. When the sentence says so, restore the file or roll the table back.",
    ),
    ErrorCode.NO_ACCESS: (
        "A right is missing, or a key, token, region or bucket is wrong.",
        "Correct it, and run the command again.",
    ),
    ErrorCode.COMMIT_REFUSED: (
        "The catalog refused a commit. It is certain that nothing was committed.",
        "Check the rights of its credentials, and its log. Then run the command again: merged tasks are kept.",
    ),
    ErrorCode.RACES_LOST: (
        "At each try another writer committed first.",
        "Run the command again when fewer writers commit: merged tasks are kept.",
    ),
    ErrorCode.STALE: (
        "A report came from an attempt that no longer holds its task. It changed nothing.",
        "Nothing: the task has ended, or another attempt merges it.",
    ),
    ErrorCode.INTERRUPTED: ("Ctrl-C or SIGTERM ended the command.", "Run the command again."),
    ErrorCode.UNEXPECTED: ("The program, or a library, has a fault.", "Run the command with `--verbose`, and report what it says."),
}

END_REASONS: Mapping[EndReason, tuple[str, str]] = {
    EndReason.MERGED: ("The attempt merged its files, and they were proved.", "Nothing."),
    EndReason.FAILED: (
        "The attempt failed. The task is tried again after `COMPACTION_RETRY_INTERVAL_SECONDS`, as often as the table allows.",
        "Read the sentence beside it.",
    ),
    EndReason.REFUSED: (
        "The files break a rule of the format, or are not supported. No further attempt can merge them.",
        "Mend the files as the sentence says.",
    ),
    EndReason.FILE_GONE: (
        "A file of the task is missing on storage. The program looked twice. The task is given up at once.",
        "Restore the file, or remove its entry from the table's metadata: Iceberg's libraries can do it by the file's path. The rows of "
        "a removed data file are lost.",
    ),
    EndReason.NO_ACCESS: (
        "The storage denied the merge access. The task is canceled, and its files are planned again when the storage allows access. "
        "When this was the last attempt, the task becomes FAILED.",
        "Correct the right or the key.",
    ),
    EndReason.CREDENTIALS_ENDED: (
        "The credentials that the catalog gave for the table ended while the task was merged. The task goes back to the queue, and the "
        "first three times this uses up no retry.",
        "When it happens often, let the catalog give credentials that last longer, or plan smaller tasks (`self-optimizing.target-size`).",
    ),
    EndReason.DIGEST_MISMATCH: (
        "The merge wrote other rows than it read. Its files were deleted, and no row is lost.",
        "Keep the input files, and report the sentence.",
    ),
    EndReason.REPORT_REFUSED: (
        "The report of the attempt cannot be true: it does not fit the task, the table or itself. Nothing of the attempt is used. The task "
        "goes back to the queue, and this uses up no retry. The optimizer gets no more tasks.",
        "Install the server's version on the optimizer's host, or find out who changed the optimizer "
        "([security](security.md)). Three such reports within an hour, of three tasks, block the token: `compaction-pipeline token allow`.",
    ),
    EndReason.LOST: (
        "The process that merged gave no sign of life for a minute, or an optimizer no longer knows of the attempt.",
        "Nothing. The task goes back to the queue, and this uses up no retry. A task that was lost five times in a row becomes FAILED.",
    ),
    EndReason.TIMED_OUT: (
        "The attempt took longer than `COMPACTION_TASK_TIMEOUT_SECONDS`. The task is tried again as after any failure.",
        "Find out why the merge is slow, or give it more time.",
    ),
    EndReason.INTERRUPTED: (
        "The process that merged was told to end, or the task never reached its optimizer.",
        "Nothing. The task goes back to the queue, and this uses up no retry.",
    ),
    EndReason.CONFLICT: ("The table changed, and the commit left this task out.", "Nothing; its node is planned again."),
    EndReason.REPLACED: ("A newer plan took the task's files.", "Nothing."),
    EndReason.OUTDATED: (
        "When the failed task was to be tried again, a data file of it was gone from the table, or the table was refused. It is canceled.",
        "Nothing; its node is planned again, unless the table is refused.",
    ),
    EndReason.GIVEN_UP: (
        "The process that planned the task ended before anybody began it, or a person canceled the task.",
        "Nothing; its node is planned again.",
    ),
}


ONLY_TICKS = (
    PlanReasonCode.MIN_PLAN_INTERVAL,
    PlanReasonCode.OVER_BUDGET,
    PlanReasonCode.BELOW_BUDGET_CUT,
    PlanReasonCode.FAILING,
    PlanReasonCode.NOT_READY,
    PlanReasonCode.OUTSIDE_WINDOW,
)
"""The reasons that no command ends with, because quota and pauses do not bind a person. `table list` and `table show` show them."""


def exit_of_reason(code: PlanReasonCode) -> str:
    if code in ONLY_TICKS:
        return "none: it holds back ticks, not commands"
    return str(int(exit_code_of_plan(CompactionPlan((), PlanReason(code, ""))))) if code is not PlanReasonCode.PLANNED else "any"


def exit_of_error(code: ErrorCode) -> str:
    """The exit codes of the errors with this code. INTERRUPTED has no class of error; `cli/app.py` ends with its exit code."""
    if code is ErrorCode.INTERRUPTED:
        return str(int(ExitCode.INTERRUPTED))
    codes = {int(exit_code_of(kind.__new__(kind))) for kind in kinds(CompactionError) if kind.code is code}
    assert codes, f"no error has the code {code.value}"
    return ", ".join(map(str, sorted(codes)))


def kinds(kind: type[CompactionError]) -> list[type[CompactionError]]:
    return [kind, *(below for child in kind.__subclasses__() for below in kinds(child))]


def tables() -> Mapping[str, str]:
    """The text between the marks of the page, by the name of the mark."""
    return {
        "exit codes": table(("exit code", "means", "what to do"), [(str(int(code)), *EXIT_CODES[code]) for code in ExitCode]),
        "plan reasons": table(
            ("reason", "exit code of an empty plan", "means", "what to do"),
            [(f"`{code.value}`", exit_of_reason(code), *PLAN_REASONS[code]) for code in PlanReasonCode],
        ),
        "order of reasons": ", ".join(f"`{code.value}`" for code in ORDER) + ".",
        "error reasons": table(
            ("reason", "exit code", "means", "what to do"),
            [(f"`{code.value}`", exit_of_error(code), *ERROR_REASONS[code]) for code in ErrorCode],
        ),
        "end reasons": table(
            ("reason", "means", "what to do"),
            [(f"`{reason.value}`", *END_REASONS[reason]) for reason in EndReason],
        ),
    }


@pytest.mark.parametrize("name", ["exit codes", "plan reasons", "order of reasons", "error reasons", "end reasons"])
def test_the_page_lists_every_exit_code_and_every_reason(name: str) -> None:
    check_part("docs/operations.md", name, __file__, tables()[name])


def test_the_readme_leads_to_the_page() -> None:
    assert "(docs/operations.md)" in (ROOT / "README.md").read_text()
