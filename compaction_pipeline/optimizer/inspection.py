"""What a person may look at in a running optimizer: its log at another level, and the stacks of its threads."""

from __future__ import annotations

import logging
import sys
import threading
import traceback
from collections.abc import Mapping
from typing import Any

log = logging.getLogger(__name__)


class Inspection:
    """Does what the answers to heartbeats ask for. Each request is done once, although every answer repeats it."""

    def __init__(self) -> None:
        self._level = ""
        self._stack_request = ""

    def heard(self, answer: Mapping[str, Any]) -> None:
        """Change the level of the log, or write the stacks into it. A server of an older version asks for neither."""
        level, stack_request = str(answer.get("log_level", "")), str(answer.get("stack_request", ""))
        # A registration anew has a new row, which asks for no level.
        if level and level != self._level:
            self._level = level
            logging.getLogger("compaction_pipeline").setLevel(level)
            log.warning("the log shows %s and what is worse from now on", level)
        if stack_request != self._stack_request:
            self._stack_request = stack_request
            log.warning("the stacks of all threads:\n%s", stacks_text())


def stacks_text() -> str:
    """The name and the stack of each thread of this process, the innermost call last. Java and Spark's workers are other processes."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    return "\n".join(
        f"thread {names.get(ident, ident)}:\n{''.join(traceback.format_stack(frame))}" for ident, frame in sys._current_frames().items()
    )
