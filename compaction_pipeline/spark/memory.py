"""How much memory a merge took: peak resident size of this process minus what it had before."""

from __future__ import annotations

import resource
import sys
from contextlib import suppress
from pathlib import Path

_STATUS = Path("/proc/self/status")
_CLEAR = Path("/proc/self/clear_refs")


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
