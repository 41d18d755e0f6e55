"""Runs the work of the sensors in threads beside the server."""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from functools import partial

from compaction_pipeline.services.dependencies.detect_tables import DetectTables
from compaction_pipeline.services.dependencies.lead_center import LeadCenter
from compaction_pipeline.services.run_ticks import KEEP_EVERY, LOOK_EVERY, LOOK_FOR_CLEAN_UP_EVERY, SCALE_EVERY, TICK_EVERY, Part, RunTicks
from compaction_pipeline.services.upkeep.upkeep_tables import UpkeepTables

UPKEEP_EVERY = timedelta(minutes=10)
"""A server looks this often for works of upkeep that are due."""

TELL_EVERY = timedelta(seconds=10)
"""A server looks this often whether what somebody awaits is ready. It looks at tables of which something was reported every LOOK_EVERY."""

NOTIFY_EVERY = timedelta(seconds=10)
"""The server that keeps the queue looks this often for notices that are due."""

LEAD_EVERY = timedelta(milliseconds=200)
"""The leader of the dependency center looks this often whether there is something to do."""

DETECT_EVERY = timedelta(seconds=10)
"""It looks this often at the tables that instances wait for, and every LOOK_EVERY at those of which something was reported."""

ALERT_EVERY = timedelta(minutes=10)
"""It looks this often for what owners of jobs should look at."""

_LOOK_SECONDS = 0.2

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Telling:
    """What tells the receiver of callbacks what is ready: of all tables, and of those of which something was reported. Each goes on until
    its argument says that it is over."""

    all: Callable[[Callable[[], bool]], None]
    reported: Callable[[Callable[[], bool]], object]


@contextmanager
def ticking(
    run_ticks: RunTicks,
    upkeep_tables: UpkeepTables,
    *,
    tables: bool,
    tell: Telling | None = None,
    notify: Callable[[], object] | None = None,
) -> Iterator[None]:
    """Keep the queue and the optimizers until the block ends. With `tables`, also tick, look at reported tables, clean up and do works
    of upkeep. `tell` tells the receiver of callbacks what is ready; None when there is none. `notify` sends notices that are due.

    Each has a thread of its own, so work that takes long delays neither the leases nor other work.
    """
    parts = (Part.KEEPER, *((Part.TICK,) if tables else ()), *((Part.CALLBACKS,) if tell is not None else ()))
    stopped, ticked, leads = threading.Event(), threading.Event(), {part: threading.Event() for part in parts}

    def lead() -> None:
        run_ticks.note_presence()
        for part in parts:
            if run_ticks.lead(part):
                leads[part].set()
            else:
                leads[part].clear()

    def of(part: Part, work: Callable[[], None]) -> Callable[[], None]:
        return lambda: work() if leads[part].is_set() else None

    works: list[_Work] = [
        ("leases", lead, KEEP_EVERY),
        ("keeper", of(Part.KEEPER, run_ticks.keep), KEEP_EVERY),
        ("maintainer", of(Part.KEEPER, run_ticks.maintain), run_ticks.maintain_every),
        ("watcher", of(Part.KEEPER, run_ticks.watch), SCALE_EVERY),
    ]
    if notify is not None:
        # A receiver may take long to answer, and nothing else waits for it.
        works.append(("notices", of(Part.KEEPER, partial(_send, notify)), NOTIFY_EVERY))
    if tables:
        works += [
            ("tick", of(Part.TICK, lambda: _tick(run_ticks, ticked)), TICK_EVERY),
            ("reports", of(Part.TICK, run_ticks.look_at_reported), LOOK_EVERY),
            ("clean-up", of(Part.TICK, lambda: run_ticks.clean_up(stopped.is_set)), LOOK_FOR_CLEAN_UP_EVERY),
            ("upkeep", of(Part.TICK, lambda: _upkeep(upkeep_tables, ticked, stopped)), UPKEEP_EVERY),
        ]
    if tell is not None:

        def telling_is_over() -> bool:
            return stopped.is_set() or not leads[Part.CALLBACKS].is_set()

        # Of the servers that know the receiver one has this lease, so nobody is told twice at a time.
        # One thread does both, so that neither sends what the other sends.
        works.append(("callbacks", of(Part.CALLBACKS, partial(_tell, tell, _Turn(TELL_EVERY), telling_is_over)), LOOK_EVERY))
    # The leases are taken first, so that the other threads need not wait for their second round.
    _try(lead)
    try:
        with _in_threads(works, stopped):
            yield
    finally:
        run_ticks.resign()


def _send(notify: Callable[[], object]) -> None:
    notify()


@contextmanager
def center_works(
    leader: LeadCenter, tables: DetectTables, alert: Callable[[], None], start: Callable[[Callable[[], bool]], None] | None = None
) -> Iterator[None]:
    """Do what a server does for the dependency center until the block ends. Of all servers the leader alone does it, but each that knows
    the receiver of callbacks posts to it by `start`: the same start has the same id. `alert` keeps what owners of jobs should look at."""
    stopped = threading.Event()

    turn, alerts = _Turn(DETECT_EVERY), _Turn(ALERT_EVERY)

    def look() -> None:
        if leader.leads:
            tables.look_at_reported(stopped.is_set)
            if turn.has_come():
                tables.look(stopped.is_set)

    def look_for_alerts() -> None:
        if leader.leads and alerts.has_come():
            alert()

    works: list[_Work] = [
        ("center", lambda: leader.run_while_full(stopped.is_set), LEAD_EVERY),
        ("detector", look, LOOK_EVERY),
        ("alerts", look_for_alerts, DETECT_EVERY),
    ]
    if start is not None:
        works.append(("starts", partial(start, stopped.is_set), LEAD_EVERY))
    try:
        with _in_threads(works, stopped):
            yield
    finally:
        leader.resign()


_Work = tuple[str, Callable[[], None], timedelta]
"""What is done again and again: its name, the work, and how often."""


@contextmanager
def _in_threads(works: Sequence[_Work], stopped: threading.Event) -> Iterator[None]:
    threads = [
        threading.Thread(target=_again_and_again, args=(work, every, stopped), name=name, daemon=True) for name, work, every in works
    ]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        stopped.set()
        for thread in threads:
            thread.join()


class _Turn:
    """Says when it is time for something that is done every so often."""

    def __init__(self, every: timedelta) -> None:
        self._every = every.total_seconds()
        self._at = -math.inf

    def has_come(self) -> bool:
        """Whether so long has passed since this was true last."""
        now = time.monotonic()
        if now - self._at < self._every:
            return False
        self._at = now
        return True


def _tell(tell: Telling, turn: _Turn, is_over: Callable[[], bool]) -> None:
    (tell.all if turn.has_come() else tell.reported)(is_over)


def _again_and_again(work: Callable[[], None], every: timedelta, stopped: threading.Event) -> None:
    while not stopped.is_set():
        _try(work)
        stopped.wait(every.total_seconds())


def _tick(run_ticks: RunTicks, ticked: threading.Event) -> None:
    try:
        run_ticks.tick()
    finally:
        # A tick that fails says nothing of the tables whose turn it is.
        ticked.set()


def _upkeep(upkeep_tables: UpkeepTables, ticked: threading.Event, stopped: threading.Event) -> None:
    """Do what is due. The first round waits for the first tick, which finds the tables and what changed in them."""
    while not ticked.wait(_LOOK_SECONDS):
        if stopped.is_set():
            return
    upkeep_tables.run(stopped.is_set)


def _try(work: Callable[[], None]) -> None:
    try:
        work()
    except Exception as error:
        # Whatever failed, the next round tries again; without it, nothing would be planned or committed any more.
        log.exception("%s failed, and the next round tries again: %s: %s", threading.current_thread().name, type(error).__name__, error)
