"""Merges small change files that a sink has committed, and commits the result in their place."""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from compaction_pipeline.core.errors import CommitConflict, CompactionError, MergeFailed, RacesLost, TableRefused
from compaction_pipeline.core.ids import AttemptId, TaskId
from compaction_pipeline.core.tables.data_file import LiveFile, OutputFile
from compaction_pipeline.core.tables.node import TableNode
from compaction_pipeline.core.tables.properties import TableProperties
from compaction_pipeline.core.work.kinds import CompactionType
from compaction_pipeline.core.work.merge_input import MergeInput
from compaction_pipeline.core.work.result import MergeResult
from compaction_pipeline.core.work.work import RewriteChanges
from compaction_pipeline.iceberg.deletions import delete_quietly
from compaction_pipeline.iceberg.file_io import file_io_properties, with_change_store
from compaction_pipeline.iceberg.keyed.replace_changes import replace_changes
from compaction_pipeline.iceberg.keyed.stores import KeyedStores
from compaction_pipeline.merging.reported.judge import judge

log = logging.getLogger(__name__)

Nodes = Sequence[tuple[TableNode, Sequence[LiveFile]]]
MergeTasks = Callable[[Sequence[MergeInput[RewriteChanges]], Mapping[str, str], Mapping[str, bytes]], Sequence[MergeResult]]
"""Carries out each piece of work, with whole input files by path. It may raise when nobody knows how the attempts ended."""


@dataclass
class SinkFigures:
    """What a sink has done in the background so far.

    `merged_files` were replaced by `written_files`. `left_files` stay as they are: another merge took some of them, or their merge failed.
    The service's MINOR merges these. `problem` is the last reason for that.
    """

    merged_files: int = 0
    written_files: int = 0
    left_files: int = 0
    problem: str | None = None


@dataclass
class SinkMerges:
    """One verb: merge. `load` loads both stores afresh. `pause` is called before each commit."""

    load: Callable[[], KeyedStores]
    properties: TableProperties
    memory_bytes: int
    merge_tasks: MergeTasks
    pause: Callable[[], object]
    figures: SinkFigures = field(default_factory=SinkFigures)

    def merge(self, nodes: Nodes, held: Mapping[str, bytes]) -> None:
        """Merge the files of each node, and commit all nodes together. It never raises: what fails leaves the small files as they are.

        `held` has the bytes of some of the files. They are not read from storage.
        """
        try:
            stores = self.load()
            tasks = [self._task(stores, node, files) for node, files in nodes]
            file_io = _file_io(stores)
            results = self.merge_tasks(tasks, file_io, held)
        except Exception as error:
            # This is the boundary of the sink's thread. Nothing is lost: readers have the small files.
            self._leave([file for _, files in nodes for file in files], error)
            return
        merged = []
        for (_, files), task, result in zip(nodes, tasks, results, strict=True):
            try:
                if result.error is not None:
                    raise MergeFailed(result.error)
                merged.append((files, judge(task, result, file_io).outputs))
            except CompactionError as error:
                self._leave(files, error)
        if not merged:
            return
        self.pause()
        try:
            self._replace(stores, merged)
        except CommitConflict:
            # One node must not hold back the others.
            for one in merged:
                try:
                    self._replace(stores, [one])
                except CommitConflict as conflict:
                    self._drop(stores, one[1])
                    self._leave(one[0], conflict)

    def _task(self, stores: KeyedStores, node: TableNode, files: Sequence[LiveFile]) -> MergeInput[RewriteChanges]:
        properties = self.properties
        work = RewriteChanges(
            node=node,
            type=CompactionType.MINOR,
            inputs=tuple(files),
            output_spec_id=node.spec_id,
            target_size_bytes=properties.task_size_bytes,
            fragment_size_bytes=properties.fragment_size_bytes,
        )
        schema_id = stores.change.metadata.current_schema_id
        return MergeInput(TaskId(f"sink-{secrets.token_hex(8)}"), AttemptId("a1"), work, stores.layout, schema_id, self.memory_bytes)

    def _replace(self, stores: KeyedStores, merged: Sequence[tuple[Sequence[LiveFile], Sequence[OutputFile]]]) -> None:
        """Commit merges. Raises CommitConflict when a file of one of them is no longer as it was."""
        taken = [file for files, _ in merged for file in files]
        outputs = [output for _, each in merged for output in each]
        try:
            replace_changes(stores, taken, outputs)
        except CommitConflict:
            raise
        except (RacesLost, TableRefused) as error:
            # These two say that nothing was committed.
            self._drop(stores, outputs)
            self._leave(taken, error)
        except Exception as error:
            # The new files may be live, so none is deleted. When the commit did not land, the small files stay as they are.
            self._leave(taken, error)
        else:
            self.figures.merged_files += len(taken)
            self.figures.written_files += len(outputs)

    def _drop(self, stores: KeyedStores, outputs: Sequence[OutputFile]) -> None:
        delete_quietly(stores.change, [output.path for output in outputs], stores.base)

    def _leave(self, files: Sequence[LiveFile], error: Exception) -> None:
        self.figures.left_files += len(files)
        self.figures.problem = str(error) if isinstance(error, CompactionError) else f"{type(error).__name__}: {error}"
        log.warning("%d small change files stay as they are, until a MINOR merges them: %s", len(files), self.figures.problem)


def _file_io(stores: KeyedStores) -> dict[str, str]:
    return with_change_store(file_io_properties(stores.base, stores.change), file_io_properties(stores.change, stores.base))
