"""Notices, in a code server or a run worker of `dagster dev`, that `dagster dev` is ending.

Dagster tells them late, or not at all. Its daemon first waits for ticks, for up to 30 s. A code server stays until its runs are over,
and a run worker outlives both. The earliest sign is that the webserver or the daemon has ended, because `dagster dev` ends with either.
Outside of `dagster dev` nothing is watched: there a run is meant to outlive the server that started it.
"""

from __future__ import annotations

import logging
import multiprocessing
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from contextvars import copy_context
from subprocess import SubprocessError
from typing import TypeVar

from compaction_pipeline.ending.last_resort import end_after
from compaction_pipeline.ending.process_table import ProcessEntry, command_of, process_table

log = logging.getLogger(__name__)

MARK = "DAGSTER_IS_DEV_CLI"
"""`dagster dev` sets this environment variable for all of its processes."""
GRACE_SECONDS = 8.0
"""How long a run worker or a code server may still run after it noticed that `dagster dev` is ending. It notices this only when Dagster's
webserver has ended, which takes some seconds."""
_LOOK_SECONDS = 0.25
_WHOSE_END_SHOWS_IT = ("dagster_webserver", "dagster._daemon")

T = TypeVar("T")
_watched: dict[int, threading.Event] = {}
_lock = threading.Lock()


def ends_soon() -> threading.Event | None:
    """An event that is set as soon as the `dagster dev` around this process ends. None outside of `dagster dev`.

    The first call starts the watch.
    """
    if MARK not in os.environ or sys.platform == "win32":
        return None
    with _lock:
        # One watch for each process: a run worker may be a fork of a code server, and threads are not copied by a fork.
        if os.getpid() not in _watched:
            _watched[os.getpid()] = _watch()
        return _watched[os.getpid()]


def end_run_with_it() -> None:
    """For a run worker: when `dagster dev` ends, interrupt the run with SIGTERM, and end the process after `GRACE_SECONDS`."""
    event = ends_soon()
    if event is None:
        return

    def end() -> None:
        log.warning("dagster dev is ending, so this run is interrupted")
        end_after(GRACE_SECONDS, 128 + signal.SIGTERM)
        os.kill(os.getpid(), signal.SIGTERM)

    _once_it_ends(event, "run-ends-with-dagster-dev", end)


def end_server_with_it() -> None:
    """For a code server: when `dagster dev` ends, end the process after `GRACE_SECONDS`, but not before the run workers that it started."""
    event = ends_soon()
    if event is not None:
        _once_it_ends(event, "server-ends-with-dagster-dev", lambda: end_after(GRACE_SECONDS, 0, may_end=_has_no_workers))


def _has_no_workers() -> bool:
    return not multiprocessing.active_children()


def _once_it_ends(event: threading.Event, name: str, act: Callable[[], object]) -> None:
    """Call `act` when the event is set. This process waits only once under each name."""
    with _lock:
        if any(thread.name == name for thread in threading.enumerate()):
            return

        def wait() -> None:
            event.wait()
            act()

        threading.Thread(target=wait, name=name, daemon=True).start()


class Abandoned(Exception):
    """Nobody waits for this work any more. It may go on in its thread, and may be cut off at any point."""


def abandoned_when(event: threading.Event, work: Callable[[], T]) -> T:
    """The result of `work`, or its error. Raises Abandoned as soon as the event is set; the work then goes on in a thread of its own."""
    if event.is_set():
        raise Abandoned
    ended = threading.Event()
    answers: list[T] = []
    errors: list[BaseException] = []
    context = copy_context()

    def carry_out() -> None:
        try:
            answers.append(context.run(work))
        except BaseException as error:
            errors.append(error)
        finally:
            ended.set()

    threading.Thread(target=carry_out, name="tick", daemon=True).start()
    while not ended.wait(_LOOK_SECONDS):
        if event.is_set():
            raise Abandoned
    if errors:
        raise errors[0]
    return answers[0]


def _watch() -> threading.Event:
    event, parent = threading.Event(), os.getppid()
    try:
        watched = whose_end_shows_it(os.getpid(), process_table(), command_of)
    except (OSError, SubprocessError) as error:
        log.warning(
            "the process table cannot be read (%s): only the end of this process's parent will show that dagster dev has ended", error
        )
        watched = frozenset()

    def look() -> None:
        while os.getppid() == parent and all(map(_runs, watched)):
            time.sleep(_LOOK_SECONDS)
        event.set()

    threading.Thread(target=look, name="dagster-dev-watch", daemon=True).start()
    return event


def whose_end_shows_it(me: int, table: Iterable[ProcessEntry], command: Callable[[int], str]) -> frozenset[int]:
    """The process ids of the webserver and the daemon of `dagster dev`. They are children of the nearest ancestor of `me` that has any."""
    entries = [entry for entry in table if not entry.ended]
    parents: Mapping[int, int] = {entry.pid: entry.parent for entry in entries}
    ancestor = parents.get(me)
    while ancestor is not None and ancestor > 1:
        children = (entry.pid for entry in entries if entry.parent == ancestor)
        found = frozenset(pid for pid in children if any(name in command(pid) for name in _WHOSE_END_SHOWS_IT))
        if found:
            return found
        ancestor = parents.get(ancestor)
    return frozenset()


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
