"""Finds out how many cores this process and its children may use: those of its affinity, and no more than its cgroup allows."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

_CGROUP = Path("/sys/fs/cgroup")


def own_cores(cgroup: Path = _CGROUP) -> float:
    """Return the number of cores, which a quota may make a fraction. It is at least a hundredth."""
    affinity = getattr(os, "sched_getaffinity", None)
    cores = float(len(affinity(0)) if affinity is not None else os.cpu_count() or 1)
    quota = _quota(cgroup)
    return max(0.01, cores if quota is None else min(cores, quota))


def _quota(cgroup: Path) -> float | None:
    """The quota of the cgroup in cores; None when it has none. Version 2 has one file, version 1 has two."""
    with suppress(OSError, ValueError, ZeroDivisionError):
        quota, period = (cgroup / "cpu.max").read_text().split()
        return None if quota == "max" else int(quota) / int(period)
    with suppress(OSError, ValueError, ZeroDivisionError):
        of = cgroup / "cpu"
        given = int((of / "cpu.cfs_quota_us").read_text())
        return given / int((of / "cpu.cfs_period_us").read_text()) if given > 0 else None
    return None
