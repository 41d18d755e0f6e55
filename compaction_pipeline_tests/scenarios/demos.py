"""Runs the demo as `make demo` does, but without make, and looks at what it prints and which processes it leaves."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import psutil

from compaction_pipeline_tests.ports import free_port

DEMO = [sys.executable, "-m", "compaction_pipeline.demo"]
_LONGEST_SECONDS = 1200
"""A timer ends a demo after this time, so that a test never waits for ever for a line."""


def environment(folder: Path, port: int, **more: str) -> dict[str, str]:
    return {**os.environ, "COMPACTION_DEMO_HOME": str(folder), "PORT": str(port), "PYTHONUNBUFFERED": "1", **more}


def processes_of(folder: Path) -> list[psutil.Process]:
    """All processes that were started for the demo of this folder, the demo itself included."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.status() != psutil.STATUS_ZOMBIE and process.environ().get("COMPACTION_DEMO_HOME") == str(folder):
                found.append(process)
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue
    return found


def commands_of(folder: Path) -> list[str]:
    """The command lines of all processes that were started for the demo of this folder."""
    found = []
    for process in processes_of(folder):
        try:
            found.append(" ".join(process.cmdline()))
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue
    return found


@contextmanager
def standing_still(folder: Path, module: str) -> Iterator[Callable[[], None]]:
    """Suspend the processes of a demo that run this module. Yields a function that lets them go on; the end of the block does it too."""
    held = [process for process in processes_of(folder) if module in process.cmdline()]
    assert held, commands_of(folder)
    for process in held:
        process.suspend()

    def go_on() -> None:
        for process in held:
            with suppress(psutil.NoSuchProcess):
                process.resume()

    try:
        yield go_on
    finally:
        go_on()


def log_of(folder: Path, name: str = "dagster") -> str:
    log = folder / "logs" / f"{name}.log"
    return log.read_text(errors="replace")[-5_000:] if log.exists() else f"no log of {name}"


def run_once(folder: Path, **more: str) -> subprocess.CompletedProcess[str]:
    """Run the demo with ONCE=1 to its end."""
    return subprocess.run(DEMO, env=environment(folder, free_port(), ONCE="1", **more), capture_output=True, text=True, timeout=1200)


class RunningDemo:
    """A demo under way. `printed` is what it has printed so far."""

    def __init__(self, folder: Path, port: int | None = None, **more: str) -> None:
        self.folder, self.port, self.printed = folder, port or free_port(), ""
        self.process = subprocess.Popen(
            DEMO,
            env=environment(folder, self.port, **more),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    def wait_for(self, text: str) -> None:
        """Wait until the demo prints a line with this text."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.printed += line
            if text in line:
                return
        raise AssertionError(f"the demo ended before it printed {text!r}:\n{self.printed}\n{log_of(self.folder)}")

    def wait_for_a_merge(self) -> None:
        """Wait until a worker merges a task."""
        database = f"file:{self.folder / 'home' / 'state.db'}?mode=ro"
        while self.process.poll() is None:
            with closing(sqlite3.connect(database, uri=True, timeout=30)) as connection:
                (merging,) = connection.execute("select count(*) from compaction_task where status = 'EXECUTING'").fetchone()
            if merging:
                return
            time.sleep(0.1)
        raise AssertionError(f"the demo ended before a merge began:\n{self.printed}\n{log_of(self.folder)}")

    def end_by(self, *signals: signal.Signals) -> tuple[int, str]:
        """Send signals to the demo, as Ctrl-C does, and wait for its end. Return its exit code and all that it printed."""
        for number in signals:
            self.process.send_signal(number)
        self.printed += self.process.communicate(timeout=900)[0]
        return self.process.returncode, self.printed

    def kill_its_group(self) -> None:
        """Kill the demo as `kill -9` of make's process group does. This reaches none of the processes that it started."""
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.communicate(timeout=600)

    def kill_everything(self) -> None:
        """Let every process of the demo vanish at once, as when the machine loses its power."""
        while running := processes_of(self.folder):
            for process in running:
                try:
                    process.kill()
                except psutil.NoSuchProcess:
                    continue
        self.process.communicate(timeout=600)


@contextmanager
def running_demo(folder: Path, port: int | None = None, **more: str) -> Iterator[RunningDemo]:
    """Start the demo, and end it at the end of the block when it still runs."""
    demo = RunningDemo(folder, port, **more)
    watchdog = threading.Timer(_LONGEST_SECONDS, demo.process.kill)
    watchdog.start()
    try:
        yield demo
    finally:
        watchdog.cancel()
        if demo.process.poll() is None:
            demo.process.terminate()
            demo.process.communicate(timeout=300)
