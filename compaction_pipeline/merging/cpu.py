"""Measures the processor time of a merge: what this process used while the merge ran, in all its threads.

The process merges one task at a time, so what it uses between two merges belongs to no task. It is told apart with the next merge.
"""

from __future__ import annotations

import time

_ended_at_ms = 0
"""The processor time of this process when its last merge ended. A worker that was forked begins at 0."""


class CpuTime:
    """The processor time since this object was created, in milliseconds."""

    def __init__(self) -> None:
        self._began_at_ms = _now_ms()
        # A worker that was forked from a process with merges has used less time than that process.
        self.overhead_ms = max(0, self._began_at_ms - min(_ended_at_ms, self._began_at_ms))

    def used_ms(self) -> int:
        """Return what was used until now, and note that the merge has ended."""
        global _ended_at_ms
        _ended_at_ms = _now_ms()
        return max(0, _ended_at_ms - self._began_at_ms)


def _now_ms() -> int:
    return time.process_time_ns() // 1_000_000
