"""Finds the processes that belong to one that we started: its descendants, and processes in the same group or session.

The tree of processes is not enough. A child whose parent died is adopted by init, and Spark puts its Python workers into a group of their
own. So the caller remembers the group of every process that was once in the tree.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class ProcessEntry:
    """One row of the process table. `session` is None if the system does not tell it (macOS). If `ended`, only the exit code is left."""

    pid: int
    parent: int
    group: int
    session: int | None
    ended: bool = False


def process_table() -> list[ProcessEntry]:
    """Every process that we may see. It is read from /proc, or from `ps` if there is no /proc."""
    proc = Path("/proc")
    if (proc / "self" / "stat").exists():
        entries = (_from_proc(folder) for folder in proc.iterdir() if folder.name.isdecimal())
        return [entry for entry in entries if entry is not None]
    listing = subprocess.run(["ps", "-A", "-o", "pid=,ppid=,pgid=,stat="], capture_output=True, text=True, check=True)
    return [
        ProcessEntry(int(pid), int(parent), int(group), None, state.startswith("Z"))
        for pid, parent, group, state in (line.split() for line in listing.stdout.splitlines() if line.strip())
    ]


def command_of(pid: int) -> str:
    """The command line of a process. Empty if it has ended."""
    arguments = Path("/proc") / str(pid) / "cmdline"
    if arguments.parent.parent.joinpath("self").exists():
        try:
            return arguments.read_text(errors="replace").replace("\0", " ").strip()
        except OSError:
            return ""
    return subprocess.run(["ps", "-p", str(pid), "-o", "args="], capture_output=True, text=True).stdout.strip()


def processes_with(variable: str, value: str) -> list[int]:
    """The running processes that were started with this environment variable, as far as we may see them. Our own is left out."""
    entry, proc = f"{variable}={value}", Path("/proc")
    if (proc / "self" / "environ").exists():
        found = (int(folder.name) for folder in proc.iterdir() if folder.name.isdecimal() and entry in _environment_of(folder))
    else:
        listing = subprocess.run(["ps", "-A", "-E", "-ww", "-o", "pid=,command="], capture_output=True, text=True).stdout
        found = (int(line.split()[0]) for line in listing.splitlines() if f" {entry} " in f"{line} ")
    return sorted(pid for pid in found if pid != os.getpid())


def _environment_of(folder: Path) -> list[str]:
    try:
        return (folder / "environ").read_bytes().decode(errors="replace").split("\0")
    except OSError:
        return []  # It ended while we looked, or belongs to somebody else.


def _from_proc(folder: Path) -> ProcessEntry | None:
    try:
        # The command stands in parentheses and may itself hold spaces and parentheses. What follows the last parenthesis is read.
        state, parent, group, session, *_ = (folder / "stat").read_text(errors="replace").rpartition(")")[2].split()
    except (OSError, ValueError):
        return None  # It ended while we looked.
    return ProcessEntry(int(folder.name), int(parent), int(group), int(session), state in "ZX")


def family(leader: int, table: Iterable[ProcessEntry], groups: frozenset[int] = frozenset()) -> list[ProcessEntry]:
    """The running processes of `leader`, itself included. `groups` are process groups that earlier calls found to belong to it."""
    entries = [entry for entry in table if not entry.ended]
    members = {entry.pid: entry for entry in entries if entry.pid == leader or entry.session == leader or entry.group in {leader, *groups}}
    grown = True
    while grown:
        found = [entry for entry in entries if entry.parent in members and entry.pid not in members]
        members.update((entry.pid, entry) for entry in found)
        grown = bool(found)
    return list(members.values())
