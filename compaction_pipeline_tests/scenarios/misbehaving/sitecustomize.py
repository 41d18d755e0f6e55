"""Lets optimizers misbehave, as a file says while they start, and lets all processes wait for less time. Python runs it at each start.

`TEST_MISBEHAVES` is the path of that file. It has one of the words of `MISBEHAVIOUR`, or does not exist. `TEST_REGISTERS_WITHIN_SECONDS`
replaces the five minutes within which an optimizer must register and ask for tasks.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

FILE, WITHIN = "TEST_MISBEHAVES", "TEST_REGISTERS_WITHIN_SECONDS"


def sleep_for_ever(*_: Any) -> None:
    """What a process does that waits for something that never comes."""
    while True:
        time.sleep(60)


def never_registers() -> None:
    """Its start hangs before it speaks with the server."""
    from compaction_pipeline.optimizer.client import HttpTaskQueue

    HttpTaskQueue.register = sleep_for_ever  # type: ignore[method-assign]


def never_polls() -> None:
    """The start of its engine hangs, as Spark's does when a cluster gives nothing."""
    from compaction_pipeline.foundations import Foundations

    Foundations.start_engine = sleep_for_ever  # type: ignore[method-assign]


def dies_at_its_first_task() -> None:
    """It ends without a word when it gets a task."""
    from compaction_pipeline.optimizer.client import HttpTaskQueue

    real = HttpTaskQueue.poll

    def poll(self: HttpTaskQueue, *args: Any) -> Any:
        found = real(self, *args)
        if found is not None:
            os._exit(1)
        return found

    HttpTaskQueue.poll = poll  # type: ignore[method-assign]


def starts_slowly() -> None:
    """It registers half a minute late."""
    time.sleep(30)


MISBEHAVIOUR: dict[str, Callable[[], None]] = {
    each.__name__: each for each in (never_registers, never_polls, dies_at_its_first_task, starts_slowly)
}


def patch() -> None:
    """Patch this process, if it is one of those that are meant."""
    if seconds := os.environ.get(WITHIN):
        from compaction_pipeline.core.queue import instances

        instances.REGISTERS_WITHIN = timedelta(seconds=float(seconds))
        instances.HANGS_AFTER = 2 * instances.REGISTERS_WITHIN
    if any("optimizer" in each for each in sys.orig_argv) and "--resource-id" in sys.orig_argv:
        with suppress(FileNotFoundError):
            MISBEHAVIOUR[Path(os.environ[FILE]).read_text()]()


if os.environ.get(FILE):
    patch()
