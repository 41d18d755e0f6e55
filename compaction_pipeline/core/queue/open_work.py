"""What the tasks of a table that have not ended hold, and how much they are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from compaction_pipeline.core.ids import TaskId
from compaction_pipeline.core.tables.node import TableNode


@dataclass(frozen=True, slots=True)
class InUse:
    """Data files of Executing and Prepared tasks, and nodes with a running MAJOR or FULL.

    `pending` are the data files of Pending tasks, path → task id: a plan may take them by replacing those tasks. `pending_groups`
    are the groups of those Pending tasks that are in one, task id → group: a group is replaced with all its Pending tasks.
    """

    paths: frozenset[str] = frozenset()
    exclusive_nodes: frozenset[TableNode] = frozenset()
    pending: Mapping[str, TaskId] = field(default_factory=dict)
    pending_groups: Mapping[TaskId, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PlannedWork:
    """Tasks of one table that are Pending or Executing, and the bytes that they read."""

    tasks: int = 0
    input_bytes: int = 0


@dataclass(frozen=True, slots=True)
class PreparedWork:
    """Prepared tasks of one table. `tasks` and `input_bytes` of those that no commit has claimed, `claimed` the number of the others."""

    tasks: int = 0
    input_bytes: int = 0
    claimed: int = 0
