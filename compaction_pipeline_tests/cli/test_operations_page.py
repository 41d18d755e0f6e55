"""`docs/operations.md` tells of every exit code and every reason: its tables are made here, from the enums themselves."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from compaction_pipeline.cli.compaction_answer import exit_code_of_plan
from compaction_pipeline.cli.exit_codes import ExitCode, exit_code_of
from compaction_pipeline.core.errors import CompactionError, ErrorCode
from compaction_pipeline.core.model.plan import CompactionPlan, PlanReason, PlanReasonCode
from compaction_pipeline_tests.written_pages import ROOT, check_part, table

EXIT_CODES: Mapping[ExitCode, tuple[str, str]] = {
    ExitCode.DONE: ("done, or nothing to do", "nothing"),
    ExitCode.FAILED: ("failed; for certain nothing was committed", "read the sentence; most failures pass, so run the command again"),
    ExitCode.BAD_INPUT: (
        "an argument, a setting or a property breaks a rule, or something is not there",
        "correct it as the sentence says",
    ),
    ExitCode.PARTLY_COMMITTED: (
        "some tasks were committed, others failed or met a conflict",
        "run the command again: it plans what is left",
    ),
    ExitCode.REFUSED: ("the table, or what its files hold, is never compacted as it is", "see the reason; nothing changes by trying again"),
    ExitCode.OUTCOME_UNKNOWN: (
        "the catalog's answer to a commit got lost",
        "run the command again, or wait for a tick: the table tells how it ended; delete nothing",
    ),
    ExitCode.INTERRUPTED: ("Ctrl-C or SIGTERM", "run the command again: what was merged is kept and committed first"),
}

PLAN_REASONS: Mapping[PlanReasonCode, tuple[str, str]] = {
    PlanReasonCode.PLANNED: ("there is work, and it was planned", "nothing; how it ended is told by the exit code"),
    PlanReasonCode.NOT_FRAGMENTED: ("no partition is due", "nothing; `--type` ignores thresholds"),
    PlanReasonCode.NO_GAIN: ("work would leave as many files as there are", "nothing"),
    PlanReasonCode.LIVE_TWICE: (
        "a file is in the table more than once: of a data file, every reader sees the rows twice",
        "find the writer that did it; roll the table back, or overwrite those rows with the engine that writes the table",
    ),
    PlanReasonCode.MIN_PLAN_INTERVAL: (
        "the table was planned less than `self-optimizing.min-plan-interval` ago",
        "wait; `compact` does not wait for it",
    ),
    PlanReasonCode.FILES_IN_USE: ("another process, or merged work that waits for its commit, holds the files", "run again a little later"),
    PlanReasonCode.OVER_BUDGET: (
        "the group's quota is used up by what is planned and not yet merged",
        "wait, or raise `self-optimizing.quota` or COMPACTION_QUEUE_SLOTS",
    ),
    PlanReasonCode.NOT_REQUESTED: ("none of the partitions asked for has files", "correct `--where`"),
    PlanReasonCode.EMPTY_TABLE: ("the table has no files", "nothing"),
    PlanReasonCode.DISABLED: ("`self-optimizing.enabled` is false", "set it to true; `--type` compacts once all the same"),
    PlanReasonCode.PAUSED: ("a person paused the table, or all", "`resume`"),
    PlanReasonCode.OBSERVED: ("its catalog was added with `--observe`", "remove the catalog and add it again without `--observe`"),
    PlanReasonCode.REFUSED: (
        "a kind of table or file that is not supported, or files that break a rule of the format",
        "see the reason; the table is looked at again when it changes",
    ),
    PlanReasonCode.INVALID_PROPERTY: (
        "a property of the table or catalog is out of bounds",
        "correct it; `table show` lists those in force",
    ),
    PlanReasonCode.NO_ACCESS: (
        "the storage, or the catalog, does not let us in: a right, key, token, region or bucket is wrong",
        "correct it outside of the table; nothing was used up meanwhile",
    ),
    PlanReasonCode.BEING_READ: (
        "the table's files are not read yet, or moved while they were",
        "run again; `table show` says what keeps them",
    ),
    PlanReasonCode.FAILING: ("its tasks used up their retries less than an hour ago", "mend the reason, then `compact`"),
}

ERROR_REASONS: Mapping[ErrorCode, tuple[str, str]] = {
    ErrorCode.INVALID_INPUT: ("an argument, a setting or a property of a catalog breaks a rule", "correct it as the sentence says"),
    ErrorCode.NOT_FOUND: ("a catalog, table, partition or record that is not there", "correct its name; `table list` shows what there is"),
    ErrorCode.REFUSED: ("a kind of table that is never compacted", "see the reason"),
    ErrorCode.MERGE_FAILED: ("a merge could not read or write its files", "see the reason; run the command again"),
    ErrorCode.CONFLICT: ("the table moved in a way that makes the work wrong", "run the command again: it plans anew"),
    ErrorCode.OUTCOME_UNKNOWN: ("the catalog's answer to a commit got lost", "run the command again; delete nothing"),
    ErrorCode.UNAVAILABLE: (
        "a database, catalog, storage or Spark did not answer, or a file of metadata is missing or corrupt",
        "see that it runs; restore the file, or roll the table back, where the sentence says so",
    ),
    ErrorCode.NO_ACCESS: ("a right is missing, or a key, token, region or bucket is wrong", "correct it; nothing was used up meanwhile"),
    ErrorCode.COMMIT_REFUSED: (
        "the catalog said no to a commit: for certain nothing was committed",
        "see to its rights and its log, then run again: what was merged is kept",
    ),
    ErrorCode.RACES_LOST: ("other writers were faster each time", "run again, when less is written: what was merged is kept"),
    ErrorCode.INTERRUPTED: ("Ctrl-C or SIGTERM", "run the command again"),
    ErrorCode.UNEXPECTED: ("a fault of ours, or of a library", "run it with `--verbose` and report what it says"),
}


def exit_of_reason(code: PlanReasonCode) -> str:
    return str(int(exit_code_of_plan(CompactionPlan((), PlanReason(code, ""))))) if code is not PlanReasonCode.PLANNED else "any"


def exit_of_error(code: ErrorCode) -> str:
    """The exit codes of the errors that have this code; those that are no class of error end in `cli/app.py`."""
    if code is ErrorCode.INTERRUPTED:
        return str(int(ExitCode.INTERRUPTED))
    codes = {int(exit_code_of(kind.__new__(kind))) for kind in kinds(CompactionError) if kind.code is code}
    assert codes, f"no error has the code {code.value}"
    return ", ".join(map(str, sorted(codes)))


def kinds(kind: type[CompactionError]) -> list[type[CompactionError]]:
    return [kind, *(below for child in kind.__subclasses__() for below in kinds(child))]


def tables() -> Mapping[str, str]:
    """What stands between the marks of the page, by their names."""
    return {
        "exit codes": table(("exit code", "means", "what to do"), [(str(int(code)), *EXIT_CODES[code]) for code in ExitCode]),
        "plan reasons": table(
            ("reason", "exit code of an empty plan", "means", "what to do"),
            [(f"`{code.value}`", exit_of_reason(code), *PLAN_REASONS[code]) for code in PlanReasonCode],
        ),
        "error reasons": table(
            ("reason", "exit code", "means", "what to do"),
            [(f"`{code.value}`", exit_of_error(code), *ERROR_REASONS[code]) for code in ErrorCode],
        ),
    }


@pytest.mark.parametrize("name", ["exit codes", "plan reasons", "error reasons"])
def test_the_page_tells_of_every_exit_code_and_every_reason(name: str) -> None:
    check_part("docs/operations.md", name, __file__, tables()[name])


def test_the_readme_leads_to_the_page() -> None:
    assert "(docs/operations.md)" in (ROOT / "README.md").read_text()
