"""Runs the work of the sensors in threads beside the server."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta

from compaction_pipeline.services.run_ticks import KEEP_EVERY, LOOK_EVERY, TICK_EVERY, RunTicks

log = logging.getLogger(__name__)


@contextmanager
def ticking(run_ticks: RunTicks) -> Iterator[None]:
    """Lead, keep, tick and look at reported tables until the block ends.

    Each has a thread of its own. So a long tick delays neither the keeper, nor its lease, nor tables whose commits are reported.
    """
    stopped, leads = threading.Event(), threading.Event()

    def keep() -> None:
        if run_ticks.lead():
            leads.set()
            run_ticks.keep()
        else:
            leads.clear()

    def tick() -> None:
        if leads.is_set():
            run_ticks.tick()

    def look() -> None:
        if leads.is_set():
            run_ticks.look_at_reported()

    threads = [
        threading.Thread(target=_again_and_again, args=(work, every, stopped), name=name, daemon=True)
        for name, work, every in (("keeper", keep, KEEP_EVERY), ("tick", tick, TICK_EVERY), ("reports", look, LOOK_EVERY))
    ]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        stopped.set()
        for thread in threads:
            thread.join()
        run_ticks.resign()


def _again_and_again(work: Callable[[], None], every: timedelta, stopped: threading.Event) -> None:
    while not stopped.is_set():
        try:
            work()
        except Exception:
            # Whatever failed, the next round tries again; without it, nothing would be planned or committed any more.
            log.exception("%s failed; the next round tries again", threading.current_thread().name)
        stopped.wait(every.total_seconds())
