"""How much memory a merge took: peak resident size of this process minus what it had before."""

from __future__ import annotations

import resource
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pyarrow as pa

TIGHT_BYTES = 256 * 1024 * 1024
"""Below this bound Arrow's own allocator would take most of it: it keeps segments of tens of MiB per thread."""

_STATUS = Path("/proc/self/status")
_CLEAR = Path("/proc/self/clear_refs")


@contextmanager
def tight_allocation(memory_bytes: int) -> Iterator[None]:
    """Under a tight bound allocate from the system, which gives back what is freed; what was set before is set again."""
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
"""How long Arrow's allocator keeps what is freed, in Spark's workers: to take it again costs a fault a page."""


def release_while_tight() -> None:
    """Give back what was freed, where a bound is tight; a roomy one has the room until the task's end."""
    pool = pa.default_memory_pool()
    if pool.backend_name == "system":
        pool.release_unused()


class PeakMemory:
    """Measured from its creation on. On Linux the kernel's high-water mark is reset first; elsewhere it is the process's own."""

    def __init__(self) -> None:
        with suppress(OSError):
            # 5: reset the peak resident set size (proc(5)); without permission the mark of the whole process stands.
            _CLEAR.write_text("5")
        self._before = _linux("VmRSS") or _peak()

    def peak_bytes(self) -> int:
        return max(0, (_linux("VmHWM") or _peak()) - self._before)


def _linux(key: str) -> int | None:
    with suppress(OSError):
        for line in _STATUS.read_text().splitlines():
            if line.startswith(key + ":"):
                return int(line.split()[1]) * 1024
    return None


def _peak() -> int:
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
