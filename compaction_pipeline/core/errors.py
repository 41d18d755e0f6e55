"""The tree of every exception that we raise.

    CompactionError
    ├── ConfigError           Terminal   a setting, property or argument breaks a rule (exit 2)
    ├── NotFoundError         Terminal   a catalog, table, node or record that is not there (exit 2)
    ├── TableRefused          Terminal   we never compact this table; the reason says why (exit 4)
    ├── IllegalTransition     Terminal   a task may not go from this state to that one
    ├── StaleAttempt          Terminal   the report of an attempt that no longer holds its task
    ├── MergeFailed           Retryable  one attempt could not merge its files
    │   └── MergeRefused                 and no other attempt ever will: what the files hold breaks a rule
    ├── CommitConflict        Terminal   the table moved: these tasks must be planned again
    ├── CommitStateUnknown    Terminal   the answer of the catalog got lost: delete nothing (exit 5)
    └── StorageUnavailable    Retryable  a database, catalog or file system did not answer
        ├── CommitRefused     Retryable  the catalog answered a commit with no: for certain nothing was committed
        └── RacesLost         Retryable  other writers were faster each time: for certain nothing was committed

The mixin says what a caller may do. A message says what, key, value, rule and what to do next.
"""


class CompactionError(Exception):
    """Base of all our errors."""


class Retryable:
    """Trying the same again later may work."""


class Terminal:
    """Trying the same again will fail the same way."""


class ConfigError(CompactionError, Terminal):
    """A setting, property or argument breaks a rule."""


class NotFoundError(CompactionError, Terminal):
    """A catalog, table, node or record that is not there."""


class TableRefused(CompactionError, Terminal):
    """A table that we never compact as it is; the message is the reason."""


class IllegalTransition(CompactionError, Terminal):
    """A task may not go from this state to that one."""


class StaleAttempt(CompactionError, Terminal):
    """The report of an attempt that no longer holds its task; it changes nothing."""


class MergeFailed(CompactionError, Retryable):
    """One attempt could not merge its files; the message is the reason kept on the attempt."""


class MergeRefused(MergeFailed):
    """What the files of a task hold breaks a rule of the format, or is not supported: no further attempt can merge them."""


class DigestMismatch(MergeFailed):
    """Rows on their way to the writer are not those that were read."""


class CommitConflict(CompactionError, Terminal):
    """The table moved in a way that makes these tasks wrong: they are planned again."""


class CommitStateUnknown(CompactionError, Terminal):
    """The catalog's answer got lost: the commit may have landed, so nothing may be deleted."""


class StorageUnavailable(CompactionError, Retryable):
    """A database, catalog or file system did not answer."""


class CommitRefused(StorageUnavailable):
    """The catalog answered a commit with no: for certain nothing was committed; the message is its answer."""


class RacesLost(StorageUnavailable):
    """Other writers were faster each time that a commit was tried: for certain nothing was committed."""
