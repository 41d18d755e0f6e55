"""What a caller asks of a worker: which tasks it may take, when it ends, and who hears of it. The rules here read nothing themselves."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import Enum

from compaction_pipeline.core.ids import TaskId
from compaction_pipeline.core.queue.ports.work import TaskListener

POLLED_AMONG = 1_000
"""One poll names at most this many tasks."""


class Beside(Enum):
    """What slots take beside the tasks that a caller waits for."""

    NOTHING = "nothing"
    """The caller's tasks are merged here, also when optimizers take tasks from their queue."""
    OWN_QUEUE = "own queue"
    """Tasks of the same queue, if no optimizer takes any from it."""
    EVERY_QUEUE = "every queue"
    """Tasks of all queues from which no optimizer takes any."""


def never() -> bool:
    """Answer that something is not so."""
    return False


class _Nobody(TaskListener):
    """A listener that does nothing."""


@dataclass(frozen=True, slots=True)
class Takes:
    """Which tasks a worker may take.

    The tasks of `first` belong to the drain whatever their queue is, and slots take others only while none of them waits. While `leaves()`
    is true, slots take none of them, so that optimizers can. When an attempt of one of them fails and the task has retries left, the slot
    calls `retry`, which puts the task back into the queue at once and returns whether it did.

    `queues` is asked at each look. Slots take the other tasks of the queues that it returns, in turn; a queue None means any.
    """

    first: Sequence[TaskId] = ()
    queues: Callable[[], Sequence[str | None]] = lambda: (None,)
    leaves: Callable[[], bool] = never
    retry: Callable[[TaskId], bool] = lambda task_id: False

    @classmethod
    def only(cls, task_ids: Sequence[TaskId], retry: Callable[[TaskId], bool] = lambda task_id: False) -> Takes:
        """These tasks, and no others."""
        return cls(task_ids, queues=tuple, retry=retry)


@dataclass(frozen=True, slots=True)
class Ends:
    """When a drain ends: when its queues have been empty for `linger`, or when `until()` is true.

    Merges that have begun are finished first. While `waits_for()` is true, the drain does not end because its queues are empty.
    """

    until: Callable[[], bool] = never
    waits_for: Callable[[], bool] = never
    linger: timedelta = timedelta(0)

    @classmethod
    def after(
        cls, worked_off: Callable[[], bool], over: Callable[[], bool], broken: Callable[[], bool], linger: timedelta = timedelta(0)
    ) -> Ends:
        """The end of a drain whose caller waits for some tasks: it does not come before `worked_off()`, unless `broken()` is true.

        From then on the drain ends when `over()` is true, or when its queues have been empty for `linger`.
        """
        return cls(lambda: broken() or (worked_off() and over()), lambda: not worked_off(), linger)


@dataclass(frozen=True, slots=True)
class Hears:
    """Who hears of a drain, in the caller's thread.

    `listener` is told how attempts begin and end, and `meanwhile` is called again and again beside the merges.
    """

    listener: TaskListener = field(default_factory=_Nobody)
    meanwhile: Callable[[], None] = lambda: None


@dataclass(frozen=True, slots=True)
class Drain:
    """What a caller asks of a worker. Without arguments: merge whatever waits, and end when nothing does."""

    takes: Takes = field(default_factory=Takes)
    ends: Ends = field(default_factory=Ends)
    hears: Hears = field(default_factory=Hears)


@dataclass
class Drained:
    """What a drain did.

    `prepared` are the ids of merged tasks, `failed` has the reasons of failed attempts by task id, and `polled` counts the attempts. A task
    that failed, but will be tried again in a while, is in neither.
    """

    prepared: list[TaskId] = field(default_factory=list)
    failed: dict[TaskId, str] = field(default_factory=dict)
    polled: int = 0

    def then(self, later: Drained) -> Drained:
        """Return what this drain and a later one did together. How a task ended later counts."""
        merged = frozenset(later.prepared)
        earlier = {task_id: reason for task_id, reason in self.failed.items() if task_id not in merged}
        return Drained([*self.prepared, *later.prepared], {**earlier, **later.failed}, self.polled + later.polled)


class Wanted:
    """Knows what the next poll of a drain may take."""

    def __init__(self, takes: Takes) -> None:
        self._takes = takes
        self._first = dict.fromkeys(takes.first)
        self._last_queue: str | None = None

    def polls(self) -> Iterator[tuple[str | None, Sequence[TaskId] | None]]:
        """Yield what polls may take, in order: a queue, where None means any, and tasks of it, where None means all.

        Most polls find a task in the first batch. The tasks that go first are taken from any queue, because they may have been moved.
        """
        ids = [] if self._takes.leaves() else list(self._first)
        for start in range(0, len(ids), POLLED_AMONG):
            yield None, ids[start : start + POLLED_AMONG]
        queues = self._takes.queues()
        # The queues have turns: the first is the one after that from which the last task came.
        start = queues.index(self._last_queue) + 1 if self._last_queue in queues else 0
        yield from ((queue, None) for queue in [*queues[start:], *queues[:start]])

    def took(self, queue: str | None, ids: Sequence[TaskId] | None) -> None:
        """Note what the poll asked for that found a task."""
        if ids is None:
            self._last_queue = queue

    def goes_first(self, task_id: TaskId) -> bool:
        """Return whether this is a task that the caller named, and that has not ended yet."""
        return task_id in self._first

    def ended(self, task_id: TaskId) -> None:
        """Note that a task needs no further attempt."""
        self._first.pop(task_id, None)


class Lingering:
    """Knows since when a drain has found nothing to merge."""

    def __init__(self, ends: Ends) -> None:
        self._ends = ends
        self._since: datetime | None = None

    def is_over(self, now: datetime, idle: bool) -> bool:
        """Return whether the drain has been idle for `linger`. It asks this after each look, and says whether it is `idle` now."""
        if not idle or self._ends.waits_for():
            self._since = None
            return False
        self._since = self._since or now
        return now - self._since >= self._ends.linger
