"""An engine that lets tests act between merge and commit, and a listener that records the events of a compaction."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from compaction_pipeline.core.commit.record import CompactionRecord
from compaction_pipeline.core.errors import CompactionError
from compaction_pipeline.core.ids import AttemptId
from compaction_pipeline.core.insight.listener import CompactionListener
from compaction_pipeline.core.queue.task import CompactionTask, TaskStatus
from compaction_pipeline.core.tables.table import TableIdentifier
from compaction_pipeline.core.work.merge_input import MergeInput
from compaction_pipeline.core.work.result import MergeResult
from compaction_pipeline.core.work.work import Work
from compaction_pipeline.merging.engine import InProcessMergeEngine


class Between:
    """An engine that calls a function between the merge and the commit, for example another writer's commit."""

    def __init__(self, *actions: Callable[[], object]) -> None:
        self._actions = list(actions)
        self._engine = InProcessMergeEngine()

    def merge(self, tasks: Sequence[MergeInput[Work]], file_io: Mapping[str, str]) -> Iterator[MergeResult]:
        results = list(self._engine.merge(tasks, file_io))
        if self._actions:
            self._actions.pop(0)()
        yield from results

    def must_start(self, task: MergeInput[Work] | None) -> bool:
        return task is None

    def ready(self) -> None: ...

    def used_so_far(self, attempt_id: AttemptId) -> None: ...

    def close(self) -> None:
        self._engine.close()


class Heard(CompactionListener):
    """A listener that records all events in order."""

    def __init__(self) -> None:
        self.events: list[tuple[str, object]] = []

    def planned(self, table: TableIdentifier, tasks: Sequence[CompactionTask], reason: str) -> None:
        self.events.append(("planned", [task.task_id for task in tasks]))

    def not_planned(self, table: TableIdentifier, error: CompactionError) -> None:
        self.events.append(("not planned", table))

    def task_ended(self, task: CompactionTask, status: TaskStatus) -> None:
        self.events.append(("ended", (task.task_id, status)))

    def committed(self, record: CompactionRecord) -> None:
        self.events.append(("committed", record))
