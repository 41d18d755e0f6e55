"""Counts what ended since this process began, whoever did it: attempts, bytes that were merged, and commits."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from threading import Lock

from compaction_pipeline.core.leases.ports import Clock
from compaction_pipeline.core.queue.ports.tasks import QueueReader
from compaction_pipeline.core.queue.queue_work import EndedWork

SETTLING = timedelta(seconds=5)
"""An end is counted so long after its time, because its transaction may be stored a little later."""


class CountWork:
    """One verb: totals. They only grow, as Prometheus expects of counters, although the state database forgets old work."""

    def __init__(self, queues: QueueReader, clock: Clock) -> None:
        self._queues = queues
        self._clock = clock
        self._lock = Lock()
        self._until = clock() - SETTLING
        self._totals = EndedWork()

    def totals(self) -> EndedWork:
        """What ended since this object was made. Several threads may ask at once."""
        with self._lock:
            now = self._clock() - SETTLING
            if now > self._until:
                new, old = self._queues.ended(self._until, now), self._totals
                self._totals = EndedWork(
                    Counter(old.attempts) + Counter(new.attempts),
                    Counter(old.merged_bytes) + Counter(new.merged_bytes),
                    Counter(old.commits) + Counter(new.commits),
                    {
                        queue: old.cpu_seconds.get(queue, 0.0) + new.cpu_seconds.get(queue, 0.0)
                        for queue in {*old.cpu_seconds, *new.cpu_seconds}
                    },
                )
                self._until = now
            return self._totals
