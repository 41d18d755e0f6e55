"""The tree of every exception that we raise.

    CompactionError
    ├── ConfigError               a setting, property or argument breaks a rule (exit 2)
    ├── NotFoundError             a catalog, table, node or record that is not there (exit 2)
    ├── TableRefused              we never compact this table; the reason says why (exit 4)
    ├── IllegalTransition         a task may not go from this state to that one
    ├── StaleAttempt              the report of an attempt that no longer holds its task
    ├── MergeFailed               one attempt could not merge its files
    │   ├── MergeRefused          and no other attempt ever will: what the files hold breaks a rule
    │   ├── DigestMismatch        rows on their way to the writer are not those that were read
    │   ├── FileUnreadable        a file is absent or damaged, as one look found
    │   ├── FileGone              a file is absent, as two looks found: no other attempt of this task finds it
    │   ├── StoreBusy             the store did not answer as it should: the same may work in seconds
    │   └── MergeDenied           the store does not let us in
    ├── CommitConflict            the table moved: these tasks must be planned again
    ├── CommitStateUnknown        the answer of the catalog got lost: delete nothing (exit 5)
    └── StorageUnavailable        a database, catalog or file system did not answer
        ├── AccessDenied          the store does not let us in: a right, key, token or region is wrong
        ├── CommitRefused         the catalog answered a commit with no: for certain nothing was committed
        └── RacesLost             other writers were faster each time: for certain nothing was committed

A message says what, key, value, rule and what to do next; `code` says the same to programs.
"""

from __future__ import annotations

from enum import Enum
from typing import ClassVar


class ErrorCode(str, Enum):
    """What ended a command, for programs that read `--json`. A code that is once given keeps its meaning."""

    INVALID_INPUT = "INVALID_INPUT"
    NOT_FOUND = "NOT_FOUND"
    REFUSED = "REFUSED"
    MERGE_FAILED = "MERGE_FAILED"
    CONFLICT = "CONFLICT"
    OUTCOME_UNKNOWN = "OUTCOME_UNKNOWN"
    UNAVAILABLE = "UNAVAILABLE"
    NO_ACCESS = "NO_ACCESS"
    COMMIT_REFUSED = "COMMIT_REFUSED"
    RACES_LOST = "RACES_LOST"
    INTERRUPTED = "INTERRUPTED"
    UNEXPECTED = "UNEXPECTED"


class CompactionError(Exception):
    """Base of all our errors."""

    code: ClassVar[ErrorCode] = ErrorCode.UNEXPECTED


class ConfigError(CompactionError):
    """A setting, property or argument breaks a rule."""

    code = ErrorCode.INVALID_INPUT


class NotFoundError(CompactionError):
    """A catalog, table, node or record that is not there."""

    code = ErrorCode.NOT_FOUND


class TableRefused(CompactionError):
    """A table that we never compact as it is; the message is the reason."""

    code = ErrorCode.REFUSED


class IllegalTransition(CompactionError):
    """A task may not go from this state to that one."""


class StaleAttempt(CompactionError):
    """The report of an attempt that no longer holds its task; it changes nothing."""


class MergeFailed(CompactionError):
    """One attempt could not merge its files; the message is the reason kept on the attempt."""

    code = ErrorCode.MERGE_FAILED


class MergeRefused(MergeFailed):
    """What the files of a task hold breaks a rule of the format, or is not supported: no further attempt can merge them."""


class DigestMismatch(MergeFailed):
    """Rows on their way to the writer are not those that were read."""


class FileUnreadable(MergeFailed):
    """A file is absent or damaged, as one look at `path` found: nobody is told to delete it before a second look found the same.

    `advice` is what to do once it did. `absent`: the store says that there is no such file.
    """

    def __init__(self, message: str, path: str, advice: str, *, absent: bool = False) -> None:
        super().__init__(message)
        self.path = path
        self.advice = advice
        self.absent = absent


class FileGone(MergeFailed):
    """A file is absent, as two looks found: the task is given up, and its node planned anew later."""


class StoreBusy(MergeFailed):
    """The store is busy, or a connection broke: the same may work in seconds."""


class MergeDenied(MergeFailed):
    """The store does not let this process read or write; no fault of the task, whose attempts are not used up by it."""


class CommitConflict(CompactionError):
    """The table moved in a way that makes these tasks wrong: they are planned again."""

    code = ErrorCode.CONFLICT


class CommitStateUnknown(CompactionError):
    """The catalog's answer got lost: the commit may have landed, so nothing may be deleted."""

    code = ErrorCode.OUTCOME_UNKNOWN


class StorageUnavailable(CompactionError):
    """A database, catalog or file system did not answer."""

    code = ErrorCode.UNAVAILABLE


class AccessDenied(StorageUnavailable):
    """The store does not let this process in: a right is missing, a key or token is wrong or has expired, the bucket is elsewhere."""

    code = ErrorCode.NO_ACCESS


class CommitRefused(StorageUnavailable):
    """The catalog answered a commit with no: for certain nothing was committed; the message is its answer."""

    code = ErrorCode.COMMIT_REFUSED


class RacesLost(StorageUnavailable):
    """Other writers were faster each time that a commit was tried: for certain nothing was committed."""

    code = ErrorCode.RACES_LOST
