"""Starts the demo's processes, and ends all of them with everything that they have started.

Each child leads a session of its own, so Ctrl-C at the terminal reaches only this process. This process ends the writers first, so that
they finish their commit, and then Dagster. It sends SIGTERM, and after a while SIGKILL. This is needed because `dagster dev` leaves its
children behind after one SIGTERM, and because a JVM and Spark's Python workers outlive a run worker that is killed.

When this process is killed, the children notice it by themselves: the writers look who their parent is, and `tied` looks for the others.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from compaction_pipeline.core.errors import ConfigError
from compaction_pipeline.ending.process_table import ProcessEntry, family, process_table


class Stopped(BaseException):
    """A person asked the demo to end. It is no Exception, so that no `except Exception` on its way swallows it."""


class Child:
    """A process that leads a session of its own. It prints to a file."""

    def __init__(self, name: str, command: Sequence[str], environment: Mapping[str, str], folder: Path, log: Path) -> None:
        self.name = name
        self.log = log
        self._groups: frozenset[int] = frozenset()
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                command,
                env=dict(environment),
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        """The exit code, or None while the process runs."""
        return self._process.poll()

    def look(self) -> list[ProcessEntry]:
        """The running processes of this child. It remembers their groups, so that they are found when their parents have died."""
        members = family(self.pid, process_table(), self._groups)
        # Only groups with a member are kept. The number of an empty group may be given to a stranger.
        self._groups = frozenset(entry.group for entry in members) - {os.getpgrp()}
        return members

    def last_words(self, lines: int = 15) -> str:
        """The end of what the process printed."""
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])


class Processes:
    """The children of the demo. As a context manager, it ends all of them."""

    def __init__(self) -> None:
        self._children: list[Child] = []

    def __enter__(self) -> Processes:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is Stopped:
            print("\nEnding every process of the demo …", flush=True)
        # A second Ctrl-C must not leave some of them running.
        with _signals_held(deliver=False):
            self.stop()

    def start(self, name: str, command: Sequence[str], environment: Mapping[str, str], folder: Path, log: Path) -> Child:
        """Start a child. `stop` ends the children in reverse order."""
        # A signal between the two lines would leave a child that is not in the list.
        with _signals_held(deliver=True):
            child = Child(name, command, environment, folder, log)
            self._children.append(child)
        return child

    def check(self) -> None:
        """Look at all children. When one has ended by itself, raise ConfigError with the end of what it printed."""
        for child in self._children:
            child.look()
            if child.exit_code is not None:
                raise ConfigError(
                    f"{child.name} ended by itself with exit code {child.exit_code}; the end of {child.log}:\n{child.last_words()}"
                )

    def stop(self, grace_seconds: float = 12, kill_seconds: float = 10, orphans_seconds: float = 3) -> None:
        """End every child and everything that it started. Send SIGTERM first, and SIGKILL to those that are still there after the grace.

        When the leader of a child has ended by itself, its other processes get `orphans_seconds` before each of the two signals.
        """
        for child in reversed(self._children):
            _end(child, grace_seconds, kill_seconds, orphans_seconds)
        self._children.clear()


def _end(child: Child, grace_seconds: float, kill_seconds: float, orphans_seconds: float) -> None:
    # Only the leader gets the signal first, because `dagster dev` and the writers end their own children in order.
    child.look()
    if child.exit_code is None:
        _signal([child.pid], signal.SIGTERM)
    if _gone(child, grace_seconds, orphans_seconds):
        return
    _signal([entry.pid for entry in child.look()], signal.SIGTERM)
    if _gone(child, orphans_seconds):
        return
    deadline = time.monotonic() + kill_seconds
    while members := child.look():
        if time.monotonic() > deadline:
            raise RuntimeError(f"processes {sorted(entry.pid for entry in members)} of {child.name} survived SIGKILL")
        _signal([entry.pid for entry in members], signal.SIGKILL)
        _gone(child, 1)


def _gone(child: Child, seconds: float, orphans_seconds: float | None = None) -> bool:
    """Wait for all processes of the child. When the child itself has ended, wait only `orphans_seconds` for the others."""
    deadline = time.monotonic() + seconds
    leader_ended = False
    while time.monotonic() < deadline:
        if child.exit_code is not None and not leader_ended and orphans_seconds is not None:
            leader_ended = True
            deadline = min(deadline, time.monotonic() + orphans_seconds)
        if not child.look():
            return True
        time.sleep(0.1)
    return False


def _signal(pids: Sequence[int], number: signal.Signals) -> None:
    for pid in pids:
        try:
            os.kill(pid, number)
        except (ProcessLookupError, PermissionError):
            continue  # It has ended meanwhile.


STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def stop_on_signals() -> None:
    """Let Ctrl-C, SIGTERM and a closed terminal raise Stopped in the main thread from now on."""

    def stop(number: int, _: FrameType | None) -> None:
        raise Stopped(signal.Signals(number).name)

    for number in STOP_SIGNALS:
        signal.signal(number, stop)


def check_port(port: int, choice: str = "make demo PORT") -> None:
    """Raise ConfigError when another program listens on this port. `choice` is what a person writes before `=` and another port."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError as error:
            raise ConfigError(f"port {port} is in use ({error.strerror}): choose another one, e.g. {choice}={port + 1}") from error


def dagster_command(port: int, *others: str) -> list[str]:
    """The command line of `dagster dev`, which starts the webserver, the daemon, our code location, and those of other modules."""
    locations = [argument for module in ("compaction_pipeline.definitions", *others) for argument in ("-m", module)]
    return [sys.executable, "-m", "dagster", "dev", *locations, "-h", "127.0.0.1", "-p", str(port)]


@contextmanager
def _signals_held(*, deliver: bool) -> Iterator[None]:
    """Let no request to stop interrupt this block. One that came meanwhile is delivered at the end of the block, or forgotten."""
    came: list[int] = []
    before = {number: signal.signal(number, lambda one, _: came.append(one)) for number in STOP_SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        if came and deliver:
            os.kill(os.getpid(), came[0])
