"""`make demo ONCE=1` waits until no work is left, or until nothing has changed for long."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from compaction_pipeline.demo.quiet import WorkLeft, wait_until_quiet

_NOTHING = WorkLeft({}, 0)
_DUE = WorkLeft({"orders": "8 of 8 nodes are due"}, 0)
_QUEUED = WorkLeft({}, 3)


class _Ticks:
    """A clock that each tick moves on by five seconds."""

    def __init__(self) -> None:
        self.now = 0.0

    def tick(self) -> None:
        self.now += 5


def _wait(looks: Iterable[WorkLeft], patience: float = 1_000) -> tuple[WorkLeft, float]:
    ticks, remaining = _Ticks(), iter(looks)
    found = wait_until_quiet(lambda: next(remaining), ticks.tick, lambda left: None, patience, lambda: ticks.now)
    return found, ticks.now


def test_it_ends_when_nothing_was_left_for_two_ticks() -> None:
    assert _wait([_DUE, _QUEUED, _NOTHING, _NOTHING, _NOTHING]) == (_NOTHING, 20)


def test_work_that_comes_back_starts_the_count_again() -> None:
    assert _wait([_NOTHING, _NOTHING, _QUEUED, _NOTHING, _NOTHING, _NOTHING]) == (_NOTHING, 25)


def test_work_that_goes_on_may_take_any_time() -> None:
    falling = [WorkLeft({}, open_tasks) for open_tasks in range(100, 0, -1) for _ in range(3)]
    assert _wait([*falling, _NOTHING, _NOTHING, _NOTHING], patience=30) == (_NOTHING, 1510)


def test_it_ends_when_nothing_changes_and_says_what_is_left() -> None:
    def forever() -> Iterator[WorkLeft]:
        while True:
            yield _DUE

    assert _wait(forever(), patience=30) == (_DUE, 35)
    assert str(_DUE) == "orders: 8 of 8 nodes are due"
    assert str(_QUEUED) == _QUEUED.short == "3 tasks in the queue"
    assert _DUE.short == "orders"
