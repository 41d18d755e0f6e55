"""Measures and limits the memory of a merge: the peak resident size of this process, minus its resident size before the merge."""

from __future__ import annotations

import resource
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pyarrow as pa

TIGHT_BYTES = 256 * 1024 * 1024
"""Arrow's own allocator keeps segments of tens of MiB for each thread. A task with less memory than this would lose
most of its memory to these segments."""

_STATUS = Path("/proc/self/status")
_CLEAR = Path("/proc/self/clear_refs")


@contextmanager
def tight_allocation(memory_bytes: int) -> Iterator[None]:
    """Let Arrow allocate from the system while a task has little memory: this allocator returns freed memory to the operating
    system.

    The allocator that was set before is set again at the end.
    """
    if memory_bytes >= TIGHT_BYTES:
        yield
        return
    before = pa.default_memory_pool()
    pa.set_memory_pool(pa.system_memory_pool())
    try:
        yield
    finally:
        pa.set_memory_pool(before)


PURGE_DELAY_MS = 10_000
"""How long Arrow's allocator keeps freed memory in Spark's workers. Freed memory that went back to the system costs one
page fault per page when it is needed again."""


def release_while_tight() -> None:
    """Give freed memory back to the system, if the task has little memory. A task with enough memory keeps it until it ends."""
    pool = pa.default_memory_pool()
    if pool.backend_name == "system":
        pool.release_unused()


class PeakMemory:
    """Measures the peak since this object was created. On Linux it resets the kernel's high-water mark first; elsewhere the mark counts
    since the process began."""

    def __init__(self) -> None:
        with suppress(OSError):
            # 5 resets the peak resident set size (proc(5)). Without permission the mark of the whole process is used.
            _CLEAR.write_text("5")
        self.before_bytes = _linux("VmRSS") or _peak()

    def peak_bytes(self) -> int:
        return max(0, (_linux("VmHWM") or _peak()) - self.before_bytes)


def _linux(key: str) -> int | None:
    with suppress(OSError):
        for line in _STATUS.read_text().splitlines():
            if line.startswith(key + ":"):
                return int(line.split()[1]) * 1024
    return None


def _peak() -> int:
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
