"""Names the process that holds a lock of a Hive metastore, in the lock's `agentInfo`, and tells whether that process is gone.

A process is known by its host, its number and the time of its start, because numbers are given again. A host is known by its name, by its
boot and by the namespace in which its processes have their numbers: containers with the same host name do not see each other's processes.
Without these three, which only Linux tells, a process is never called gone.
"""

from __future__ import annotations

import os
import re
import socket
import threading
import time
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from pathlib import Path
from uuid import uuid4

_PREFIX = "compaction-pipeline"
_FORM = re.compile(rf"{_PREFIX}/([^/]*)/([0-9a-f]*)/(\d+)/(\d+)/([0-9a-f]+)")
_HOST_CHARACTERS = 40
"""A metastore keeps 128 characters of `agentInfo`."""

_PROC = Path("/proc")


@dataclass(frozen=True, slots=True)
class LockHolder:
    """A process of this program and one of its locks. `machine` is empty where a host cannot be told from others.

    `started` is the time of the start of the process, in ticks since the boot. `token` is the lock's own.
    """

    host: str
    machine: str
    pid: int
    started: int
    token: str

    def __str__(self) -> str:
        return f"{_PREFIX}/{self.host}/{self.machine}/{self.pid}/{self.started}/{self.token}"


def new_holder() -> LockHolder:
    """This process, with a new token."""
    pid = os.getpid()
    return LockHolder(socket.gethostname()[:_HOST_CHARACTERS].replace("/", "-"), _machine(), pid, _started(pid) or 0, uuid4().hex[:12])


def holder_in(agent_info: str | None) -> LockHolder | None:
    """The process of this program that wrote this `agentInfo`. None when another program wrote it."""
    match = _FORM.fullmatch(agent_info or "")
    return LockHolder(match[1], match[2], int(match[3]), int(match[4]), match[5]) if match else None


def is_gone(holder: LockHolder) -> bool:
    """Whether this lock was left: its process ran on this host and is gone, or is this one, which does not hold the lock any more."""
    here = new_holder()
    if not here.machine or (holder.machine, holder.host) != (here.machine, here.host):
        return False
    if is_this_process(holder):
        return not HELD.has(holder.token)
    return _started(holder.pid) != holder.started


def is_this_process(holder: LockHolder) -> bool:
    """Whether this process took the lock. It knows how its swaps ended, and of the others nobody does."""
    here = new_holder()
    return (holder.machine, holder.host, holder.pid, holder.started) == (here.machine, here.host, here.pid, here.started)


class Held:
    """The tokens of the locks that this process holds."""

    def __init__(self) -> None:
        self._until: dict[str, float] = {}
        self._guard = threading.Lock()

    def add(self, token: str) -> None:
        with self._guard:
            self._until[token] = float("inf")

    def leave(self, token: str, seconds: float) -> None:
        """Count the lock as held for this time, although nobody looks after it any more."""
        with self._guard:
            self._until[token] = time.monotonic() + seconds

    def remove(self, token: str) -> None:
        with self._guard:
            self._until.pop(token, None)

    def has(self, token: str) -> bool:
        with self._guard:
            return self._until.get(token, 0.0) > time.monotonic()


HELD = Held()
"""Those of the whole process. A process opens its catalogs several times."""


@cache
def _machine() -> str:
    try:
        boot = (_PROC / "sys/kernel/random/boot_id").read_text().strip()
        numbers = os.readlink(_PROC / "self/ns/pid")
    except OSError:
        return ""
    return sha256(f"{boot} {numbers}".encode()).hexdigest()[:16]


def _started(pid: int) -> int | None:
    """When a process of this host was started, in ticks since the boot. None when it is gone, or only waits to be reaped."""
    try:
        status = (_PROC / str(pid) / "stat").read_text(errors="replace")
    except OSError:
        return None
    # The name of the program stands in brackets, and may have brackets and blanks itself.
    fields = status.rpartition(")")[2].split()
    return None if fields[0] in ("Z", "X") else int(fields[19])
