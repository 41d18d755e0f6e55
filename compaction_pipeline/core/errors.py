"""The tree of every exception that we raise.

    CompactionError
    ├── ConfigError           Terminal   a setting, property or argument breaks a rule (exit 2)
    ├── NotFoundError         Terminal   a catalog, table, node or record that is not there (exit 2)
    ├── TableRefused          Terminal   we never compact this table; the reason says why (exit 4)
    ├── IllegalTransition     Terminal   a task may not go from this state to that one
    ├── StaleAttempt          Terminal   the report of an attempt that no longer holds its task
    ├── MergeFailed           Retryable  one attempt could not merge its files
    │   ├── MergeRefused                 and no other attempt ever will: what the files hold breaks a rule
    │   ├── DigestMismatch    Retryable  rows on their way to the writer are not those that were read
    │   ├── FileUnreadable    Retryable  a file is absent or damaged, as one look found
    │   ├── StoreBusy         Retryable  the store did not answer as it should: the same may work in seconds
    │   └── MergeDenied       Retryable  the store does not let us in
    ├── CommitConflict        Terminal   the table moved: these tasks must be planned again
    ├── CommitStateUnknown    Terminal   the answer of the catalog got lost: delete nothing (exit 5)
    └── StorageUnavailable    Retryable  a database, catalog or file system did not answer
        ├── AccessDenied      Retryable  the store does not let us in: a right, key, token or region is wrong
        ├── CommitRefused     Retryable  the catalog answered a commit with no: for certain nothing was committed
        └── RacesLost         Retryable  other writers were faster each time: for certain nothing was committed

The mixin says what a caller may do. A message says what, key, value, rule and what to do next; `code` says the same to programs.
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


class Retryable:
    """Trying the same again later may work."""


class Terminal:
    """Trying the same again will fail the same way."""


class ConfigError(CompactionError, Terminal):
    """A setting, property or argument breaks a rule."""

    code = ErrorCode.INVALID_INPUT


class NotFoundError(CompactionError, Terminal):
    """A catalog, table, node or record that is not there."""

    code = ErrorCode.NOT_FOUND


class TableRefused(CompactionError, Terminal):
    """A table that we never compact as it is; the message is the reason."""

    code = ErrorCode.REFUSED


class IllegalTransition(CompactionError, Terminal):
    """A task may not go from this state to that one."""


class StaleAttempt(CompactionError, Terminal):
    """The report of an attempt that no longer holds its task; it changes nothing."""


class MergeFailed(CompactionError, Retryable):
    """One attempt could not merge its files; the message is the reason kept on the attempt."""

    code = ErrorCode.MERGE_FAILED


class MergeRefused(MergeFailed):
    """What the files of a task hold breaks a rule of the format, or is not supported: no further attempt can merge them."""


class DigestMismatch(MergeFailed):
    """Rows on their way to the writer are not those that were read."""


class FileUnreadable(MergeFailed):
    """A file is absent or damaged, as one look at `path` found: nobody is told to delete it before a second look found the same.

    `advice` is what to do once it did.
    """

    def __init__(self, message: str, path: str, advice: str) -> None:
        super().__init__(message)
        self.path = path
        self.advice = advice


class StoreBusy(MergeFailed):
    """The store is busy, or a connection broke: the same may work in seconds."""


class MergeDenied(MergeFailed):
    """The store does not let this process read or write; no fault of the task, whose attempts are not used up by it."""


class CommitConflict(CompactionError, Terminal):
    """The table moved in a way that makes these tasks wrong: they are planned again."""

    code = ErrorCode.CONFLICT


class CommitStateUnknown(CompactionError, Terminal):
    """The catalog's answer got lost: the commit may have landed, so nothing may be deleted."""

    code = ErrorCode.OUTCOME_UNKNOWN


class StorageUnavailable(CompactionError, Retryable):
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
