"""What a commit gets: one merged piece of work, and what it was planned from. It knows no queue and no worker."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol, TypeVar, cast

from compaction_pipeline.core.errors import assert_never
from compaction_pipeline.core.ids import TaskId
from compaction_pipeline.core.tables.table import TableIdentifier
from compaction_pipeline.core.work.prediction import Prediction
from compaction_pipeline.core.work.result import MergeResult
from compaction_pipeline.core.work.work import Convert, DropDeletes, Merge, RewriteChanges, ToBase, Work

W = TypeVar("W", bound=Work, covariant=True)


class MergedWork(Protocol[W]):
    """One piece of work with the result of its merge. The tasks of a queue are such values.

    The work was planned from one snapshot of `table`, which had the uuid `table_uuid`: from `snapshot_id`, with its `sequence_number`. Of
    what the work writes to, the plan read schema `schema_id`. Work with the same `plan_id` was planned together. `result` is None before
    the merge. `snapshot_properties` go into the summaries of the snapshots with which the work is committed. `prediction` is what its plan
    predicted of it.
    """

    @property
    def task_id(self) -> TaskId: ...

    @property
    def plan_id(self) -> str: ...

    @property
    def table(self) -> TableIdentifier: ...

    @property
    def table_uuid(self) -> str: ...

    @property
    def snapshot_id(self) -> int: ...

    @property
    def sequence_number(self) -> int: ...

    @property
    def schema_id(self) -> int: ...

    @property
    def work(self) -> W: ...

    @property
    def result(self) -> MergeResult | None: ...

    @property
    def snapshot_properties(self) -> Mapping[str, str]: ...

    @property
    def prediction(self) -> Prediction: ...

    @property
    def created_at(self) -> datetime: ...

    @property
    def started_at(self) -> datetime | None: ...


@dataclass(frozen=True, slots=True)
class ByKind:
    """Merged work, parted by its kind. Each part keeps the order of the whole."""

    merges: tuple[MergedWork[Merge], ...]
    conversions: tuple[MergedWork[Convert], ...]
    drops: tuple[MergedWork[DropDeletes], ...]
    to_base: tuple[MergedWork[ToBase], ...]
    rewrites: tuple[MergedWork[RewriteChanges], ...]


def by_kind(tasks: Iterable[MergedWork[Work]]) -> ByKind:
    """Part merged work by its kind."""
    merges: list[MergedWork[Merge]] = []
    conversions: list[MergedWork[Convert]] = []
    drops: list[MergedWork[DropDeletes]] = []
    to_base: list[MergedWork[ToBase]] = []
    rewrites: list[MergedWork[RewriteChanges]] = []
    for task in tasks:
        # mypy learns of a match on `task.work`, and not that the task itself has one kind then.
        match task.work:
            case Merge():
                merges.append(cast("MergedWork[Merge]", task))
            case Convert():
                conversions.append(cast("MergedWork[Convert]", task))
            case DropDeletes():
                drops.append(cast("MergedWork[DropDeletes]", task))
            case ToBase():
                to_base.append(cast("MergedWork[ToBase]", task))
            case RewriteChanges():
                rewrites.append(cast("MergedWork[RewriteChanges]", task))
            case _:
                assert_never(task.work)
    return ByKind(tuple(merges), tuple(conversions), tuple(drops), tuple(to_base), tuple(rewrites))
