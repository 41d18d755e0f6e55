"""Tells what a merge has used while it runs. The process that merges notes itself, and who waits for the merge reads `/proc`.

Only the process itself knows that it merges this attempt and no other one. So its note is there from the beginning of the merge to its end,
and says when the process started, because the system gives the number of a process that has ended to another one. Where there is no
`/proc`, nothing is known.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from compaction_pipeline.core.work.result import UsedSoFar
from compaction_pipeline.merging.memory import PeakMemory

_PROC = Path("/proc")


@dataclass(frozen=True, slots=True)
class MergingProcess:
    """A process as it was when it began to merge: its number, when it started, in ticks since its host did, the processor time that it had
    used, and the memory that it had beside what is shared with this merge."""

    pid: int
    started_ticks: int
    cpu_ms: int
    other_bytes: int

    def used(self) -> UsedSoFar | None:
        """Return what it has used since then; None when it has ended, or nobody may look at it."""
        with suppress(OSError, ValueError, IndexError):
            started_ticks, cpu_ms = _times(self.pid)
            peak_bytes = _peak_bytes(self.pid)
            if started_ticks == self.started_ticks and peak_bytes is not None:
                return UsedSoFar(max(0, cpu_ms - self.cpu_ms), max(0, peak_bytes - self.other_bytes))
        return None


def begins_to_merge(shared_bytes: int = 0) -> MergingProcess | None:
    """Return this process, which begins to merge now; None where there is no `/proc`.

    `shared_bytes` is the memory of delete files that earlier merges have read. It counts for this merge, as in its report.
    """
    with suppress(OSError, ValueError, IndexError):
        started_ticks, cpu_ms = _times(os.getpid())
        return MergingProcess(os.getpid(), started_ticks, cpu_ms, PeakMemory().before_bytes - shared_bytes)
    return None


@contextmanager
def noted(note: Path | None, shared_bytes: int = 0) -> Iterator[None]:
    """Let this file say until the block ends that this process merges. None notes nothing."""
    process = begins_to_merge(shared_bytes) if note is not None else None
    if note is None or process is None:
        yield
        return
    # A note that cannot be written costs figures, and no merge.
    with suppress(OSError):
        draft = note.with_name(f"{note.name}.{process.pid}")
        draft.write_text(json.dumps(asdict(process)))
        draft.replace(note)
    try:
        yield
    finally:
        with suppress(OSError):
            note.unlink()


def used_by_noted(note: Path) -> UsedSoFar | None:
    """Return what the process of this note has used for its merge; None when there is no note, or it ended while we looked."""
    with suppress(OSError, ValueError, TypeError):
        before = note.read_text()
        used = MergingProcess(**json.loads(before)).used()
        # When the note is another one now, the process may have begun another merge before its figures were read.
        return used if note.read_text() == before else None
    return None


def _times(pid: int) -> tuple[int, int]:
    """When a process started, in ticks, and the processor time of all its threads, in ms."""
    # The name of the program stands in parentheses, and may hold any character.
    fields = (_PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()
    user, system, started = (int(fields[number]) for number in (11, 12, 19))
    return started, (user + system) * 1000 // os.sysconf("SC_CLK_TCK")


def _peak_bytes(pid: int) -> int | None:
    for line in (_PROC / str(pid) / "status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    return None
