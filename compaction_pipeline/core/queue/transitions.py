"""The one table of allowed changes of a task's status.

COMMITTED and CANCELED are final. FAILED is final too, unless the task has a `retry_at`: then it only waits to be tried again.
`CompactionTask.is_final` says which. `storage` writes a status only after `allowed` has accepted the change.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from compaction_pipeline.core.errors import IllegalTransition
from compaction_pipeline.core.queue.task import TaskStatus

ALLOWED: Mapping[TaskStatus, frozenset[TaskStatus]] = MappingProxyType(
    {
        # INIT exists only inside the transaction that inserts a plan.
        TaskStatus.INIT: frozenset({TaskStatus.PENDING}),
        # A Pending task is CANCELED when a newer plan takes its files, when the process that planned it ends, or when a person
        # cancels it.
        TaskStatus.PENDING: frozenset({TaskStatus.EXECUTING, TaskStatus.CANCELED}),
        # A task becomes PENDING again when its attempt is lost or given back, FAILED when it fails, and CANCELED when a person cancels it
        # although it runs. A report of that attempt is then refused as stale.
        TaskStatus.EXECUTING: frozenset({TaskStatus.PREPARED, TaskStatus.FAILED, TaskStatus.PENDING, TaskStatus.CANCELED}),
        # A Prepared task is FAILED when the commit finds a conflict, or when the table is gone.
        TaskStatus.PREPARED: frozenset({TaskStatus.COMMITTED, TaskStatus.FAILED}),
        TaskStatus.COMMITTED: frozenset(),
        # A FAILED task that waits is put back into the queue. It is CANCELED when its files are gone from the table, when the table
        # is refused or its store denies access, when a person's plan takes its files, or when a person cancels it.
        TaskStatus.FAILED: frozenset({TaskStatus.PENDING, TaskStatus.CANCELED}),
        TaskStatus.CANCELED: frozenset(),
    }
)
FINAL = frozenset(status for status, following in ALLOWED.items() if not following)
"""The states that a task never leaves. A task that is FAILED for good never leaves its state either."""
OPEN = (TaskStatus.PENDING, TaskStatus.EXECUTING, TaskStatus.PREPARED)
"""The states of a task that has not ended. A task that is FAILED, but waits to be tried again, has not ended either."""


def allowed(before: TaskStatus, after: TaskStatus, *, for_good: bool = False) -> None:
    """Accept a change of a task's status. Raises IllegalTransition, which names the allowed changes, for any other change.

    `for_good` is True for a FAILED task that does not wait to be tried again: it never changes.
    """
    following = frozenset[TaskStatus]() if for_good else ALLOWED[before]
    if after not in following:
        possible = " or ".join(sorted(status.value for status in following)) or "nothing else, as this status is final"
        raise IllegalTransition(f"a task that is {before.value} cannot become {after.value}; it may become {possible}")
