"""What one task is to do: which files it reads, and which files its outputs replace. There is one class for each kind of work.

`Work` is the union of all kinds. Where a decision differs by kind, it matches on the class, and mypy proves with `assert_never` that no
kind was forgotten. What every kind can say of itself is a member here, so most of the program never asks.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from compaction_pipeline.core.tables.data_file import FileContent, LiveFile, OutputFile
from compaction_pipeline.core.tables.keyed.file_names import is_delete_file
from compaction_pipeline.core.tables.node import Place, TableNode
from compaction_pipeline.core.tables.table import TableLayout
from compaction_pipeline.core.work.kinds import CompactionType, TaskAction
from compaction_pipeline.core.work.result import MergeResult


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


@dataclass(frozen=True, slots=True, kw_only=True)
class _Work:
    """What every kind of work has.

    A subclass repeats the fields that it always has empty, and its type allows nothing else there. So its JSON has the same keys as that of
    every other kind, an optimizer or a state database of an earlier release reads it, and JSON with more than the kind has is refused.

    `inputs` are the data files that the task reads. `deletes` are all delete files that apply to any of them at the plan's snapshot,
    whatever their node or size; `core.tables.deletes.applies` says which of them apply to which input.

    `group` names a task group: tasks that are planned and committed together. It is "" for a task on its own. It has nothing to do with
    resource groups. The plan expects `predicted_files` outputs with `predicted_bytes` bytes in all.
    """

    node: TableNode
    type: CompactionType
    inputs: tuple[LiveFile, ...]
    deletes: tuple[LiveFile, ...]
    output_spec_id: int
    target_size_bytes: int
    fragment_size_bytes: int
    group: str = ""
    predicted_files: int = 1
    predicted_bytes: int = 0

    @property
    def change_files(self) -> tuple[LiveFile, ...]:
        """The files of the change store that the task reads beside its inputs: inserts, then deletes."""
        return ()

    @property
    def changes_read(self) -> tuple[LiveFile, ...]:
        """All files of the change store that the task reads."""
        return self.change_files

    @property
    def merged_place(self) -> Place | None:
        """The partition of a keyed table whose changes are part of the base store once the task's group is committed; None for none."""
        return None

    @property
    def rewritten(self) -> tuple[LiveFile, ...]:
        """The data files that leave the table when the task is committed."""
        return self.inputs

    @property
    def staying(self) -> tuple[LiveFile, ...]:
        """The data files that the task reads, and that stay in the table."""
        return ()

    @property
    def gain(self) -> int:
        """An estimate: how many fewer files a reader opens after the task. A delete file counts in every task that applies it."""
        return len(self.inputs) - self.predicted_files + len(self.deletes) + len(self.change_files)

    @property
    def input_bytes(self) -> int:
        """Bytes of the data files that the task reads, and of the change files."""
        return sum(file.file_size_bytes for file in (*self.inputs, *self.change_files))

    @property
    def bytes_read(self) -> int:
        """Bytes of all files that the task reads, with the delete files."""
        return self.input_bytes + sum(file.file_size_bytes for file in self.deletes)

    @property
    def small_files(self) -> int:
        """How many small data files, and how many delete files and change files of any size, the task reads.

        Readers open each of them until the task is committed.
        """
        small = sum(file.file_size_bytes <= self.fragment_size_bytes for file in self.inputs)
        return small + len(self.deletes) + len(self.change_files)

    @property
    def files_read(self) -> int:
        """How many data files and change files the task reads. Delete files that it applies to them are not among them."""
        return len(self.inputs) + len(self.change_files)

    @property
    def is_indexed(self) -> bool:
        """Whether the index of live files holds the task's data files while they are live."""
        return True

    @property
    def aims_at_target(self) -> bool:
        """Whether the data files that the task writes are to have the table's target size."""
        return False

    def holds_deletes(self, file: LiveFile | OutputFile) -> bool:
        """Whether an input or an output of the task holds deletes."""
        return file.content is not FileContent.DATA

    def written_layout(self, layout: TableLayout) -> TableLayout:
        """The layout of what the task writes to. `layout` is that of its table."""
        return layout

    def counted(self, outputs: tuple[OutputFile, ...]) -> tuple[OutputFile, ...]:
        """Those of the task's outputs whose rows `MergeResult.rows_written` counts."""
        return outputs

    @property
    def counted_in_words(self) -> str:
        """What `MergeResult.rows_written` counts, in words."""
        return "the rows"

    def rows_to_write(self, counts: MergeResult) -> int:
        """The law of rows: how many rows the task must have written, when it has read and deleted as many as `counts` says."""
        return counts.rows_read - counts.rows_deleted_by_position - counts.rows_deleted_by_equality - counts.rows_kept


@dataclass(frozen=True, slots=True, kw_only=True)
class Merge(_Work):
    """Merged outputs replace the inputs, with the deletes applied. The task is committed in a REPLACE snapshot."""

    action: Literal[TaskAction.MERGE] = TaskAction.MERGE
    converts: tuple[()] = ()
    changes: None = None

    @property
    def aims_at_target(self) -> bool:
        return True


@dataclass(frozen=True, slots=True, kw_only=True)
class Convert(_Work):
    """The inputs stay. Each gets at most one new position-delete file in place of its deletes, in an overwrite snapshot.

    `converts` are the paths of the deletes that the outputs replace. The other `deletes` only tell which rows are deleted already.
    """

    action: Literal[TaskAction.CONVERT] = TaskAction.CONVERT
    converts: tuple[str, ...] = ()
    changes: None = None

    @property
    def rewritten(self) -> tuple[LiveFile, ...]:
        return ()

    @property
    def staying(self) -> tuple[LiveFile, ...]:
        return self.inputs

    @property
    def gain(self) -> int:
        return len(self.converts)

    @property
    def counted_in_words(self) -> str:
        return "the positions"

    def rows_to_write(self, counts: MergeResult) -> int:
        """The rows of a conversion are the positions of the deleted rows."""
        return counts.rows_deleted_by_position + counts.rows_deleted_by_equality


@dataclass(frozen=True, slots=True, kw_only=True)
class DropDeletes(_Work):
    """The task reads nothing. It only drops dangling delete files, which no live data file needs: `deletes` names those of the table."""

    inputs: tuple[()] = ()
    action: Literal[TaskAction.DROP_DELETES] = TaskAction.DROP_DELETES
    converts: tuple[()] = ()
    changes: None = None

    @property
    def gain(self) -> int:
        return 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ToBase(_Work):
    """Changes of a keyed table are merged into its base store. Outputs replace some inputs, and position deletes mark the deleted rows of
    the others. The task is committed in an overwrite snapshot.

    `inputs` are the data files of the base store whose rows the task may change, and `deletes` those of the base store. The node is a tree
    node: the deepest one that holds all rows that the task writes. `converts` are the position deletes of single marked files: where a
    file gets a new one, it has their rows too.
    """

    action: Literal[TaskAction.TO_BASE] = TaskAction.TO_BASE
    converts: tuple[str, ...] = ()
    changes: ChangeSpan

    @property
    def change_files(self) -> tuple[LiveFile, ...]:
        return (*self.changes.inserts, *self.changes.deletes)

    @property
    def merged_place(self) -> Place | None:
        return self.node.place

    @property
    def is_indexed(self) -> bool:
        """The index of live files holds no file of a keyed table."""
        return False

    @property
    def rewritten(self) -> tuple[LiveFile, ...]:
        marked = frozenset(self.changes.marked)
        return tuple(file for file in self.inputs if file.path not in marked)

    @property
    def staying(self) -> tuple[LiveFile, ...]:
        marked = frozenset(self.changes.marked)
        return tuple(file for file in self.inputs if file.path in marked)

    @property
    def aims_at_target(self) -> bool:
        return True

    def counted(self, outputs: tuple[OutputFile, ...]) -> tuple[OutputFile, ...]:
        """Positions of deleted rows are no rows that were written."""
        return tuple(output for output in outputs if output.content is FileContent.DATA)


@dataclass(frozen=True, slots=True, kw_only=True)
class RewriteChanges(_Work):
    """Change files of one tree node of a keyed table are merged with each other. Outputs replace the inputs in the change store.

    Deletes of the change store are among the `inputs`. The task is committed in an overwrite snapshot of that store.
    """

    deletes: tuple[()] = ()
    action: Literal[TaskAction.REWRITE_CHANGES] = TaskAction.REWRITE_CHANGES
    converts: tuple[()] = ()
    changes: None = None

    @property
    def changes_read(self) -> tuple[LiveFile, ...]:
        return self.inputs

    @property
    def is_indexed(self) -> bool:
        """The index of live files holds no file of a keyed table."""
        return False

    def holds_deletes(self, file: LiveFile | OutputFile) -> bool:
        """Iceberg knows no deletes in a change store. Only the names of files tell."""
        return is_delete_file(file.path)

    def written_layout(self, layout: TableLayout) -> TableLayout:
        """Outputs go to the change store, the last of a keyed table's stores."""
        return layout.stores[-1]


PlainWork = Merge | Convert | DropDeletes
"""Work on a plain table. The base store of a keyed table gets none of it."""
KeyedWork = ToBase | RewriteChanges
"""Work on a keyed table."""
Work = PlainWork | KeyedWork
