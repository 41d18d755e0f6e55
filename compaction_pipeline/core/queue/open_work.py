"""What the open tasks of a table hold, and how much work they are. A task is open until it is COMMITTED, FAILED or CANCELED."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from compaction_pipeline.core.ids import TaskId
from compaction_pipeline.core.tables.node import TableNode


@dataclass(frozen=True, slots=True)
class InUse:
    """What a new plan of a table must not take, and what it may take only by replacing Pending tasks.

    `paths` are the data files of Executing and Prepared tasks, `exclusive_nodes` the nodes on which a MAJOR or FULL runs: a plan takes
    none of them. `pending` maps the data files of Pending tasks to their task ids: a plan may take such a file when it replaces the
    task. `pending_groups` maps the Pending tasks that are in a group to the group's name: all Pending tasks of a group are replaced
    together.
    """

    paths: frozenset[str] = frozenset()
    exclusive_nodes: frozenset[TableNode] = frozenset()
    pending: Mapping[str, TaskId] = field(default_factory=dict)
    pending_groups: Mapping[TaskId, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PlannedWork:
    """How many tasks of one table are Pending or Executing, and how many bytes of data files they read."""

    tasks: int = 0
    input_bytes: int = 0


@dataclass(frozen=True, slots=True)
class PreparedWork:
    """The Prepared tasks of one table.

    `tasks` and `input_bytes` count those that no commit has claimed. `claimed` counts the others.
    """

    tasks: int = 0
    input_bytes: int = 0
    claimed: int = 0
