"""What one task is to do: which files it reads, and which files its outputs replace."""

from __future__ import annotations

from dataclasses import dataclass

from compaction_pipeline.core.tables.data_file import LiveFile
from compaction_pipeline.core.tables.node import TableNode
from compaction_pipeline.core.tables.table import TableLayout
from compaction_pipeline.core.work.kinds import CompactionType, TaskAction


def written_layout(action: TaskAction, layout: TableLayout) -> TableLayout:
    """The layout of what a task with this action writes to: the table, or the change store of the keyed table that has this layout."""
    return layout.keyed.change if action is TaskAction.REWRITE_CHANGES and layout.keyed is not None else layout


@dataclass(frozen=True, slots=True)
class ChangeSpan:
    """The changes that a TO_BASE task merges into the base store, and how.

    `inserts` and `deletes` are files of the change store. Of their rows, those with a transaction above `above` and up to `up_to` count. A
    file without a column of transactions is filtered as a whole, by its data sequence number. `above` is the optimized sequence of the
    partition that the plan read; None means that all rows up to `up_to` count. When the task is committed, the optimized sequence of its
    partition becomes `up_to`. `change_snapshot_id` is the snapshot of the change store that the plan was made from. When no task of the
    group has a change file, `up_to` is `above`, or 0 when there is none: the files of the base store are merged with each other.

    `marked` are the paths of those inputs that stay: the rows that die in them get position deletes. The other inputs are rewritten.
    `tasks` is how many tasks the task group has. They merge all changes of one partition together, so they are committed all or none.
    """

    inserts: tuple[LiveFile, ...]
    deletes: tuple[LiveFile, ...]
    above: int | None
    up_to: int
    change_snapshot_id: int
    marked: tuple[str, ...] = ()
    tasks: int = 1


@dataclass(frozen=True, slots=True)
class TaskWork:
    """What one task is to do, as the planner decided.

    `deletes` are all delete files that apply to any of `inputs` at the plan's snapshot, whatever their node or size.
    `core.tables.deletes.applies` says which of them apply to which input. For a DROP_DELETES task `deletes` are the dangling delete
    files of the table. For a CONVERT task `converts` are the paths of the deletes that its outputs replace; the other `deletes` only
    tell which rows are deleted already. For a TO_BASE task they are the position deletes of single marked files: where a file gets a new
    one, it has their rows too.

    For a REWRITE_CHANGES task `inputs` are files of the change store, and there are no `deletes`: those are among the inputs.

    `changes` is set for a TO_BASE task only. Its `inputs` are the data files of the base store whose rows the task may change, and its
    `deletes` those of the base store. Its node is a tree node: the deepest one that holds all rows that the task writes.

    `group` names a task group: tasks that are planned and committed together. It is "" for a task on its own. It has nothing to do with
    resource groups. The plan expects `predicted_files` outputs with `predicted_bytes` bytes in all.
    """

    node: TableNode
    type: CompactionType
    action: TaskAction
    inputs: tuple[LiveFile, ...]
    deletes: tuple[LiveFile, ...]
    output_spec_id: int
    target_size_bytes: int
    fragment_size_bytes: int
    converts: tuple[str, ...] = ()
    group: str = ""
    predicted_files: int = 1
    predicted_bytes: int = 0
    changes: ChangeSpan | None = None

    @property
    def input_bytes(self) -> int:
        """Bytes of the data files that the task reads, and of the change files."""
        return sum(file.file_size_bytes for file in (*self.inputs, *self.change_files))

    @property
    def rewritten(self) -> tuple[LiveFile, ...]:
        """The data files that leave the table when the task is committed."""
        if self.action is TaskAction.CONVERT:
            return ()
        staying = frozenset(self.changes.marked) if self.changes is not None else frozenset()
        return tuple(file for file in self.inputs if file.path not in staying)

    @property
    def small_files(self) -> int:
        """How many small data files, and how many delete files and change files of any size, the task reads.

        Readers open each of them until the task is committed.
        """
        small = sum(file.file_size_bytes <= self.fragment_size_bytes for file in self.inputs)
        return small + len(self.deletes) + len(self.change_files)

    @property
    def is_of_keyed_table(self) -> bool:
        """Whether the task reads change files."""
        return self.action in (TaskAction.TO_BASE, TaskAction.REWRITE_CHANGES)

    @property
    def change_files(self) -> tuple[LiveFile, ...]:
        """The change files that a TO_BASE task reads: inserts, then deletes."""
        return (*self.changes.inserts, *self.changes.deletes) if self.changes is not None else ()

    @property
    def files_read(self) -> int:
        """How many data files and change files the task reads. Delete files that it applies to them are not among them."""
        return len(self.inputs) + len(self.change_files)
