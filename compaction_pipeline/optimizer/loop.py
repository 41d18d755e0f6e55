"""Runs an optimizer until it is told to end."""

from __future__ import annotations

import logging
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from datetime import timedelta

from compaction_pipeline.bootstrap import Services
from compaction_pipeline.core.errors import CompactionError, MergeStuck
from compaction_pipeline.core.queue.drain import Drain, Drained, Ends
from compaction_pipeline.core.queue.failures import why_ended
from compaction_pipeline.core.work.ends import EndReason
from compaction_pipeline.ending.last_resort import end_after
from compaction_pipeline.optimizer.client import HttpTaskQueue
from compaction_pipeline.process import heartbeat

log = logging.getLogger(__name__)

Beats = Callable[[Callable[[], object]], AbstractContextManager[None]]
"""Calls its argument again and again, until its block ends."""

GRACE_SECONDS = 30
"""After SIGTERM or Ctrl-C, running tasks get this long to end. The rest is given back then; a second signal gives it back at once."""


def run_optimizer(services: Services, queue: HttpTaskQueue, parallelism: int, beats: Beats = heartbeat) -> Drained:
    """Take tasks and merge them until SIGTERM, Ctrl-C, or until the server asks this optimizer to end.

    The server is asked first, because a start of Spark takes seconds and a wrong URL, token or group is known at once. The engine starts
    before the first poll, so no task waits for it. Raises ConfigError, NotFoundError, StorageUnavailable. Raises MergeStuck when a merge
    cannot be stopped: this process must end then, and ends hard after a while if a part of it still waits for that merge.
    """
    queue.register()
    # The server hears of this optimizer while its engine starts, so that it does not take it for lost.
    with beats(queue.touch):
        _start_engine(services, queue)
        # Attempts keep the application that the server knows when they are claimed, so it hears of it before the first poll.
        with suppress(CompactionError):
            queue.touch()
        with _told_to_end(queue):
            try:
                done = services.worker(queue, parallelism).drain(
                    queue.optimizer_id, Drain(ends=Ends(queue.drains.is_set, linger=timedelta.max))
                )
            except MergeStuck:
                end_after(GRACE_SECONDS, 1)
                raise
    queue.give_back(queue.optimizer_id, EndReason.INTERRUPTED, queue.why_drains)
    return done


def _start_engine(services: Services, queue: HttpTaskQueue) -> None:
    """Start the engine. When it does not start, or an interrupt comes first, tell the server that this optimizer has ended, and why."""
    try:
        services.start_engine()
        queue.application = services.spark_application
        queue.driver_gc = services.spark_gc
    except BaseException as error:
        queue.give_back(queue.optimizer_id, EndReason.FAILED if isinstance(error, Exception) else EndReason.INTERRUPTED, why_ended(error))
        raise


@contextmanager
def _told_to_end(queue: HttpTaskQueue) -> Iterator[None]:
    """Let the first signal end the polls, and give running tasks a while. The next signal, or the end of that while, interrupts them."""

    def end(number: int, frame: object) -> None:
        if queue.drains.is_set():
            raise KeyboardInterrupt
        queue.drain("it was told to end")
        log.warning("no new tasks; running ones get %s s", GRACE_SECONDS)
        signal.alarm(GRACE_SECONDS)

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, end) for number in (signal.SIGTERM, signal.SIGINT, signal.SIGALRM)}
    try:
        yield
    finally:
        signal.alarm(0)
        for number, handler in before.items():
            signal.signal(number, handler)
