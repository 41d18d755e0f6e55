"""Tells the one receiver of callbacks which instances of jobs it is to start."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta

from compaction_pipeline.core.dependencies.center.instances import Instance
from compaction_pipeline.core.errors import CompactionError
from compaction_pipeline.core.leases.ports import Clock
from compaction_pipeline.services.dependencies.center import MOST_CLAIMED, DependencyCenter

_LOG = logging.getLogger(__name__)
CALLBACK = "callback"
"""The name of the receiver of callbacks, as projects write it."""
_AT_ONCE = 8
_NOTED = 64
"""So many are told before it is noted that the receiver has them. A server that is killed in between lets so many come twice."""
_FAILURES = 5
"""A start that the receiver refuses lets others go on. After so many it is taken to be down until the next round."""
_PAUSE = timedelta(seconds=10)
"""So long a round waits after one in which something failed. The receiver may be down."""

Start = Callable[[Instance], None]
"""Tells of a start. The same start has the same key, however often it is told. Raises a CompactionError when nobody took it."""


class StartJobs:
    """One verb: start."""

    def __init__(self, center: DependencyCenter, clock: Clock) -> None:
        self._center = center
        self._clock = clock
        self._pool: ThreadPoolExecutor | None = None
        self._behind = 0
        self._pause_until: datetime | None = None

    def start(self, tell: Start, is_over: Callable[[], bool] = lambda: False) -> None:
        """Tell of all that the receiver is to start. What it did not take is told again, in the next round.

        After five failures the round ends. The next one begins behind the last failure, so what the receiver never takes keeps nothing else
        from its turn.
        """
        now = self._clock()
        if self._pause_until is not None and now < self._pause_until:
            return
        if self._pause_until is not None:
            # The receiver may have closed its connections by now.
            self._close()
            self._pause_until = None
        claimed = self._in_turn(self._center.claim(CALLBACK, MOST_CLAIMED))
        if not claimed:
            self._close()
            return
        # As long as each round has something, its threads stay, and each keeps its connection to the receiver.
        pool = self._pool = self._pool or ThreadPoolExecutor(_AT_ONCE)
        failed: list[Instance] = []

        def told(one: Instance) -> bool:
            return len(failed) < _FAILURES and not is_over() and self._told(tell, one, failed)

        for first in range(0, len(claimed), _NOTED):
            some = claimed[first : first + _NOTED]
            has = [(one.id, one.generation) for one, was in zip(some, list(pool.map(told, some)), strict=True) if was]
            if has:
                self._center.delivered(CALLBACK, has)
            if failed:
                self._pause_until = now + _PAUSE
            if len(failed) >= _FAILURES or is_over():
                return

    def _close(self) -> None:
        if self._pool is not None:
            self._pool.shutdown()
            self._pool = None

    def _in_turn(self, claimed: Sequence[Instance]) -> Sequence[Instance]:
        first = next((number for number, one in enumerate(claimed, start=1) if one.id == self._behind), 0)
        return [*claimed[first:], *claimed[:first]]

    def _told(self, tell: Start, one: Instance, failed: list[Instance]) -> bool:
        try:
            tell(one)
        except CompactionError as error:
            _LOG.warning("job=%s the receiver was not told to start %s: %s", one.job, one.key, error)
            self._behind = one.id
            failed.append(one)
            return False
        return True
