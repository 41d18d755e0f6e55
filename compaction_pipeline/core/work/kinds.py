"""Which kinds of work there are, by the names that are published and stored."""

from __future__ import annotations

from enum import Enum


class CompactionType(str, Enum):
    """A kind of work. When several are due, FULL comes before MAJOR, and MAJOR before MINOR."""

    MINOR = "MINOR"
    """Merges the small files of a node."""
    MAJOR = "MAJOR"
    """Merges the small files too, rewrites files with many deleted rows, and joins undersized files."""
    FULL = "FULL"
    """Rewrites every data file of a node whose rewrite gains something."""


class TaskAction(str, Enum):
    """What a task does with its inputs."""

    # Merged outputs replace the inputs, with the deletes applied. The task is committed in a REPLACE snapshot.
    MERGE = "MERGE"
    # The inputs stay. Each gets at most one new position-delete file in place of its deletes. The task is committed in an overwrite
    # snapshot.
    CONVERT = "CONVERT"
    # The task has no inputs. It only drops dangling delete files, which no live data file needs.
    DROP_DELETES = "DROP_DELETES"
    # Changes of a keyed table are merged into its base store. Outputs replace some inputs, and position deletes mark the deleted rows of
    # the others. The task is committed in an overwrite snapshot.
    TO_BASE = "TO_BASE"
    # Change files of one tree node of a keyed table are merged with each other. Outputs replace the inputs in the change store. The task is
    # committed in an overwrite snapshot of that store.
    REWRITE_CHANGES = "REWRITE_CHANGES"
