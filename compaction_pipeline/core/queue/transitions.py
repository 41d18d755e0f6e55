"""What may happen to a task: the one table of allowed status changes.

COMMITTED, FAILED and CANCELED are final. `storage` writes a status only after `allowed` let the change pass.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from compaction_pipeline.core.errors import IllegalTransition
from compaction_pipeline.core.queue.task import TaskStatus

ALLOWED: Mapping[TaskStatus, frozenset[TaskStatus]] = MappingProxyType(
    {
        # Only inside the transaction that inserts a plan.
        TaskStatus.INIT: frozenset({TaskStatus.PENDING}),
        # CANCELED: a newer plan takes the files, or a person asked.
        TaskStatus.PENDING: frozenset({TaskStatus.EXECUTING, TaskStatus.CANCELED}),
        # A lost optimizer or a timeout sends the task back; the attempt that was lost is stale from then on.
        TaskStatus.EXECUTING: frozenset({TaskStatus.PREPARED, TaskStatus.FAILED, TaskStatus.PENDING, TaskStatus.CANCELED}),
        # FAILED: the commit found a conflict, or the table is gone.
        TaskStatus.PREPARED: frozenset({TaskStatus.COMMITTED, TaskStatus.FAILED}),
        TaskStatus.COMMITTED: frozenset(),
        TaskStatus.FAILED: frozenset(),
        TaskStatus.CANCELED: frozenset(),
    }
)
FINAL = frozenset(status for status, following in ALLOWED.items() if not following)
"""States that a task never leaves."""
OPEN = (TaskStatus.PENDING, TaskStatus.EXECUTING, TaskStatus.PREPARED)
"""States of tasks whose input files are in use."""


def allowed(before: TaskStatus, after: TaskStatus) -> None:
    """Let a change pass, or raise IllegalTransition that names what would have been possible."""
    if after not in ALLOWED[before]:
        possible = ", ".join(sorted(status.value for status in ALLOWED[before])) or "nothing: it is final"
        raise IllegalTransition(f"a task that is {before.value} cannot become {after.value}; possible from there: {possible}")
