"""The clock of a PostgreSQL state database, for the processes of many hosts that compare their times.

A lease that one host wrote is read by others, whose own clocks may differ by minutes. So all of them take the time from the database. It is
not asked for each time: the clock is this process's monotonic time plus an offset, which is measured anew each minute.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone

from sqlalchemy import Connection, Engine, func, select

from compaction_pipeline.core.errors import StorageUnavailable
from compaction_pipeline.storage.engine import reading

log = logging.getLogger(__name__)

_SINCE_START = getattr(time, "CLOCK_BOOTTIME", None) or getattr(time, "CLOCK_MONOTONIC", None)
"""The clock of Linux, or else of macOS, that also runs while the host sleeps. `time.monotonic` stands still then."""
RENEW_EVERY_SECONDS = 60.0
"""Hosts' clocks drift by less than 10 ms in this time."""
_SLOW_SECONDS = 1.0
"""The offset is known to half of the time that the answer took. An answer that took longer than this is asked for again."""
_MOST_QUESTIONS = 3


def since_start() -> float:
    """Seconds since the host started. Those in which it slept count, so a host that wakes up asks the database for the time at once."""
    return time.monotonic() if _SINCE_START is None else time.clock_gettime(_SINCE_START)


@dataclass(frozen=True, slots=True)
class _Measured:
    """`zero` is the database's time at which the monotonic time was 0. `at` is the monotonic time of the last look, in seconds."""

    zero: datetime
    at: float
    took_seconds: float


class DatabaseClock:
    """One verb: now. Several threads may use it at once."""

    def __init__(
        self,
        engine: Engine,
        monotonic: Callable[[], float] = since_start,
        reads: Callable[[Engine], AbstractContextManager[Connection]] = reading,
    ) -> None:
        """`monotonic` returns seconds that never go back, from any beginning. `reads` opens a transaction that reads."""
        self._engine = engine
        self._monotonic = monotonic
        self._reads = reads
        self._lock = threading.Lock()
        self._measured: _Measured | None = None

    def now(self) -> datetime:
        """The database's time, in UTC. Raises StorageUnavailable when the database has never answered; later it is not needed."""
        known = self._measured
        if known is None or self._monotonic() - known.at >= RENEW_EVERY_SECONDS:
            known = self._renewed(known)
        return known.zero + timedelta(seconds=self._monotonic())

    def _renewed(self, known: _Measured | None) -> _Measured:
        # While one thread asks, the others go on with the offset that is known.
        if not self._lock.acquire(blocking=known is None):
            return known or self._measure()
        try:
            if self._measured is not known and self._measured is not None:
                return self._measured
            self._measured = self._measured_anew(known)
            return self._measured
        finally:
            self._lock.release()

    def _measured_anew(self, known: _Measured | None) -> _Measured:
        if known is None:
            return min((self._measure() for _ in range(_MOST_QUESTIONS)), key=lambda each: each.took_seconds)
        stays = _Measured(known.zero, self._monotonic(), known.took_seconds)
        try:
            found = self._measure()
        except StorageUnavailable as error:
            log.warning("the offset to the clock of the state database stays as it is: %s", error)
            return stays
        return found if found.took_seconds <= max(_SLOW_SECONDS, known.took_seconds) else stays

    def _measure(self) -> _Measured:
        with self._reads(self._engine) as connection:
            before = self._monotonic()
            answer: datetime = connection.execute(select(func.clock_timestamp())).scalar_one()
            after = self._monotonic()
        zero = answer.astimezone(timezone.utc) - timedelta(seconds=(before + after) / 2)
        return _Measured(zero, after, after - before)
