"""What a commit of merged tasks must know of the table that it goes to: one strategy for each kind of commit.

A strategy is made for one call of `commit` or `settle`. It opens what each attempt is built on, and answers for that attempt.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot

from compaction_pipeline.core.commit.candidates import Candidates
from compaction_pipeline.core.commit.head import HeadFiles
from compaction_pipeline.core.commit.landed import went_in
from compaction_pipeline.core.commit.record import CommitFigures
from compaction_pipeline.core.commit.validation import PathsIn
from compaction_pipeline.core.ids import TaskId
from compaction_pipeline.core.tables.data_file import FileContent, LiveFile, OutputFile
from compaction_pipeline.core.work.merged import MergedWork
from compaction_pipeline.core.work.work import Work
from compaction_pipeline.iceberg.commit.outputs import TaskOutput
from compaction_pipeline.iceberg.rewrite_files import Transaction
from compaction_pipeline.iceberg.scan import refusal_of_contents


class Decision(Protocol):
    """Which tasks of an attempt go in. Each kind of commit has a decision of its own, which also says more."""

    @property
    def survivors(self) -> Sequence[MergedWork[Work]]:
        """Every task that is committed."""
        ...

    @property
    def conflicts(self) -> Mapping[TaskId, str]:
        """The reason of each task that is left out."""
        ...


D = TypeVar("D", bound=Decision)


@dataclass(frozen=True, slots=True)
class Chosen(Generic[D]):
    """What one attempt puts in: the decision, the head that it is about with its live files, and the outputs of the tasks."""

    decision: D
    head: HeadFiles
    files: Sequence[LiveFile]
    outputs: Mapping[TaskId, Sequence[TaskOutput]]

    def outputs_of(self, tasks: Sequence[MergedWork[Work]]) -> list[TaskOutput]:
        """The outputs of these tasks, in their order."""
        return [output for task in tasks for output in self.outputs[task.task_id]]

    def live(self, files: Sequence[LiveFile]) -> list[LiveFile]:
        """These files as the head lists them."""
        return [self.head.data.by_path[file.path] for file in files]


@dataclass(frozen=True, slots=True)
class Landed:
    """What an earlier commit of a record left in its table: its last snapshot, and the paths of all files that it added and removed."""

    store: Table
    last: Snapshot
    added: Collection[str]
    removed: Collection[str]


class Opened(Protocol[D]):
    """What one attempt is built on, as it was when the attempt began."""

    @property
    def store(self) -> Table:
        """The Iceberg table that the snapshots go into."""
        ...

    @property
    def table_uuid(self) -> str:
        """The uuid of the table that the tasks were planned for."""
        return str(self.store.metadata.table_uuid)

    @property
    def watermarks_by(self) -> Mapping[str, str]:
        """The properties by which readers of the table look for watermarks in `store`."""
        return self.store.metadata.properties

    def refusal(self) -> str | None:
        """Why this table takes no commit of this kind; None when it does."""
        return refusal_of_contents(self.store.metadata)

    def sequence_number(self, task: MergedWork[Work], output: OutputFile) -> int:
        """The data sequence number that a merged file gets. Here that of the plan, so that later deletes reach it."""
        return task.sequence_number if output.content is FileContent.DATA else self.store.metadata.next_sequence_number()

    def decide(self, candidates: Candidates, head: HeadFiles, paths_in: PathsIn) -> D:
        """Which tasks go in, and why the others do not. Raises TableRefused when that cannot be known of this table."""
        ...

    def stage(self, transaction: Transaction, chosen: Chosen[D], properties: Mapping[str, str]) -> None:
        """Write everything that the swap needs. `properties` go into the summary of each snapshot."""
        ...

    def figures(self, chosen: Chosen[D]) -> CommitFigures:
        """The numbers that the commit changes, for the record."""
        ...

    def shut_out(self, begun: Callable[[str], Transaction]) -> Transaction | None:
        """What is swapped in when no task can go in; None, as almost always, when nothing is.

        `begun` begins a transaction on `store` whose files have the given name.
        """
        return None


class Strategy(Protocol[D]):
    """One kind of commit, of these tasks."""

    tasks: Sequence[MergedWork[Work]]

    def open(self) -> Opened[D]:
        """Load what an attempt is built on. Raises NotFoundError and TableRefused."""
        ...

    def written_store(self) -> Table:
        """Load the Iceberg table that the snapshots go into, and nothing else. Raises as `open`."""
        ...

    def reloaded(self) -> Table:
        """The same after a failed swap. What the attempt has written may be deleted then, if no store of the table forbids it now."""
        return self.written_store()

    def together(self, found: Collection[TaskId]) -> tuple[TaskId, ...]:
        """These tasks of the commit, and those that can only go in with them, in the order of the commit."""
        return tuple(task.task_id for task in self.tasks if task.task_id in found)

    def went_in(self, landed: Landed) -> Collection[TaskId]:
        """The tasks that an earlier commit put in."""
        return went_in(self.tasks, landed.added, landed.removed)
