"""The tree of every exception that this program raises.

    CompactionError
    ├── ConfigError               a setting, property or argument breaks a rule (exit 2)
    ├── NotFoundError             a catalog, table, node or record does not exist (exit 2)
    ├── TableRefused              the program never compacts this table; the message says why (exit 4)
    │   └── TablePaused           a person paused the table, and may resume it
    ├── IllegalTransition         a task may not change from its status to the wanted one
    ├── StaleAttempt              an attempt sent its report, but it no longer holds its task
    ├── MergeFailed               one attempt could not merge its files
    │   ├── MergeRefused          the content of the files breaks a rule, so every other attempt would fail too
    │   ├── DigestMismatch        the rows on their way to the writer differ from the rows that were read
    │   ├── FileUnreadable        one look found a file absent or damaged
    │   ├── FileGone              two looks found a file absent, so every other attempt of this task would fail too
    │   ├── StoreBusy             the store did not answer as it should; the same request may work in seconds
    │   ├── MergeDenied           the store denies access
    │   └── MergeStuck            a merge goes on although its task was taken away and the engine was told to stop it
    ├── CommitConflict            the table changed, and these tasks must be planned again
    │   └── OutputUnusable        a merged file cannot be opened, or is a link, although the storage answers for other files
    ├── ChangedMeanwhile          somebody changed the same thing at the same time, and nothing was done; the message says what to ask again
    ├── DeletionForbidden         the catalog or the table forbids to delete files, and nothing was deleted (exit 4)
    ├── CommitStateUnknown        nothing proves whether a commit landed, so nothing may be deleted (exit 5)
    └── StorageUnavailable        a database, catalog or file system did not answer
        ├── AccessDenied          the store denies access: a right, key, token or region is wrong
        ├── StateFull             the state database has no room, and certainly nothing was stored
        ├── CommitRefused         the catalog refused a commit, and certainly committed nothing
        └── RacesLost             another writer was faster each time, and certainly nothing was committed

Each message names the object, the key, the value and the rule, and says what to do next. `code` tells programs the kind of error.
"""

from __future__ import annotations

from enum import Enum
from typing import ClassVar, NoReturn

from compaction_pipeline.core.secrets.keys import without_url_secrets
from compaction_pipeline.core.secrets.known import without_known_secrets


class ErrorCode(str, Enum):
    """The kind of error that ended a command, for programs that read `--json`. The meaning of a code never changes."""

    INVALID_INPUT = "INVALID_INPUT"
    NOT_FOUND = "NOT_FOUND"
    REFUSED = "REFUSED"
    PAUSED = "PAUSED"
    MERGE_FAILED = "MERGE_FAILED"
    CONFLICT = "CONFLICT"
    OUTCOME_UNKNOWN = "OUTCOME_UNKNOWN"
    UNAVAILABLE = "UNAVAILABLE"
    NO_ACCESS = "NO_ACCESS"
    COMMIT_REFUSED = "COMMIT_REFUSED"
    RACES_LOST = "RACES_LOST"
    STALE = "STALE"
    INTERRUPTED = "INTERRUPTED"
    UNEXPECTED = "UNEXPECTED"


class CompactionError(Exception):
    """The base of all errors of this program. Its text has no secret that this process knows, whoever wrote the text."""

    code: ClassVar[ErrorCode] = ErrorCode.UNEXPECTED

    def __str__(self) -> str:
        # Errors of libraries repeat what servers answer, and a server may repeat the token that it was sent.
        return without_known_secrets(without_url_secrets(super().__str__()))


class ConfigError(CompactionError):
    """A setting, property or argument breaks a rule."""

    code = ErrorCode.INVALID_INPUT


class NotFoundError(CompactionError):
    """A catalog, table, node or record does not exist."""

    code = ErrorCode.NOT_FOUND


class TableRefused(CompactionError):
    """The program never compacts this table as it is now. The message is the reason."""

    code = ErrorCode.REFUSED


class TablePaused(TableRefused):
    """A person paused the table. The message says how it is resumed."""

    code = ErrorCode.PAUSED


class DeletionForbidden(CompactionError):
    """The catalog or the table forbids to delete files. Nothing was deleted. The message names the files, and what changes that."""

    code = ErrorCode.REFUSED


class IllegalTransition(CompactionError):
    """A task may not change from its status to the wanted one."""


class StaleAttempt(CompactionError):
    """An attempt sent its report, but it no longer holds its task. The report changes nothing."""

    code = ErrorCode.STALE


class MergeFailed(CompactionError):
    """One attempt could not merge its files. The message is stored as the reason of the attempt."""

    code = ErrorCode.MERGE_FAILED


class MergeRefused(MergeFailed):
    """The content of a task's files breaks a rule of the format or is not supported. No further attempt can merge them.

    A server raises it also for a report that cannot be true. Then only the attempt has failed.
    """


class DigestMismatch(MergeFailed):
    """The rows on their way to the writer differ from the rows that were read."""


class FileUnreadable(MergeFailed):
    """One look at `path` found the file absent or damaged.

    Nobody is told to delete the file before a second look finds the same. `advice` says what to do then. `absent` is True when
    the store says that there is no such file.
    """

    def __init__(self, message: str, path: str, advice: str, *, absent: bool = False) -> None:
        super().__init__(message)
        self.path = path
        self.advice = advice
        self.absent = absent


class FileGone(MergeFailed):
    """Two looks found a file absent. The task is given up, and its node is planned again later."""


class StoreBusy(MergeFailed):
    """The store is busy, or a connection broke. The same request may work in seconds."""


class MergeDenied(MergeFailed):
    """The store denies this process access. This is no fault of the task.

    While the task has attempts left, it is canceled, and its files are planned again when the store allows access. When this was
    the last attempt, the task becomes FAILED.
    """


class MergeStuck(MergeFailed):
    """A merge goes on although its task was taken away a while ago and the engine was told to stop it.

    Its slot cannot be used any more, so the process ends and another one takes its place.
    """


class NoticeNotSent(CompactionError):
    """The receiver of a notice did not answer, or refused it. The text holds no address. The notice is sent again later."""


class CommitConflict(CompactionError):
    """The table changed in a way that makes these tasks wrong. They must be planned again."""

    code = ErrorCode.CONFLICT


class ChangedMeanwhile(CompactionError):
    """Somebody changed the same thing of the dependency center at the same time. Nothing was done; the message says what to ask again."""

    code = ErrorCode.CONFLICT


class OutputUnusable(CommitConflict):
    """A merged file cannot be opened, or is no file of its own, although the storage answers for other files of the table.

    A task that fails so is not planned again at once: the next merge might end in the same way, and so on for ever.
    """


class CommitStateUnknown(CompactionError):
    """The catalog did not answer a commit, or its answer does not tell. The commit may have landed, so nothing may be deleted."""

    code = ErrorCode.OUTCOME_UNKNOWN


class StorageUnavailable(CompactionError):
    """A database, catalog or file system did not answer."""

    code = ErrorCode.UNAVAILABLE


class AccessDenied(StorageUnavailable):
    """The store denies this process access.

    A right is missing, a key or token is wrong or has expired, or the bucket is in another region.
    """

    code = ErrorCode.NO_ACCESS


class StateFull(StorageUnavailable):
    """The state database has no room on its disk. Certainly nothing was stored, and nothing can be before somebody makes room."""


class CommitRefused(StorageUnavailable):
    """The catalog refused a commit, and certainly committed nothing. The message is the catalog's answer."""

    code = ErrorCode.COMMIT_REFUSED


class RacesLost(StorageUnavailable):
    """Another writer was faster each time that a commit was tried. Certainly nothing was committed."""

    code = ErrorCode.RACES_LOST


def assert_never(value: NoReturn) -> NoReturn:
    """Fail when code is reached that mypy has proved to be out of reach. `typing` has this function from Python 3.11 on."""
    raise AssertionError(f"{type(value).__name__} {value!r} was not expected here; report this as a fault of the program")
