"""The exit codes of the program, and which error ends with which code. A program may rely on these numbers."""

from __future__ import annotations

from enum import IntEnum

from compaction_pipeline.core.errors import CommitStateUnknown, CompactionError, ConfigError, NotFoundError, TableRefused


class ExitCode(IntEnum):
    """0 done or nothing to do, 1 failed, 2 bad input, 3 partly committed, 4 refused, 5 outcome unknown, 6 not ready, 130 interrupted."""

    DONE = 0
    FAILED = 1
    BAD_INPUT = 2
    PARTLY_COMMITTED = 3
    REFUSED = 4
    OUTCOME_UNKNOWN = 5
    NOT_READY = 6
    # A shell answers 130 for a program that SIGINT ended.
    INTERRUPTED = 130


def exit_code_of(error: CompactionError) -> ExitCode:
    """The exit code of an error that ended a command."""
    if isinstance(error, (ConfigError, NotFoundError)):
        return ExitCode.BAD_INPUT
    if isinstance(error, TableRefused):
        return ExitCode.REFUSED
    if isinstance(error, CommitStateUnknown):
        return ExitCode.OUTCOME_UNKNOWN
    return ExitCode.FAILED
