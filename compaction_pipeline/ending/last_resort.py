"""Ends a process that does not end by itself, for example because a request hangs in a thread that nothing can interrupt.

It is safe to cut off a process anywhere. Its leases run out, its attempts go back to the queue, and the next process settles a commit with
an unknown outcome by reading the table.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable

GRACE_SECONDS = 10.0
"""The time between the request to end and the hard end. A commit that is on its way usually has its answer by then."""

Exit = Callable[[int], object]


def end_after(seconds: float, code: int, exit_now: Exit = os._exit, may_end: Callable[[], bool] = lambda: True) -> threading.Thread:
    """End this process hard after `seconds`, but not before `may_end()` is true. Returns the thread that waits."""

    def wait() -> None:
        time.sleep(seconds)
        while not may_end():
            time.sleep(0.5)
        # `sys.stderr` may be locked by the thread that hangs.
        said = (
            f"process {os.getpid()} was told to end and still waits after {seconds:.0f} s: "
            "it ends now, and the next process settles its commits\n"
        )
        try:
            os.write(2, said.encode())
        finally:
            exit_now(code)

    thread = threading.Thread(target=wait, name="last-resort", daemon=True)
    thread.start()
    return thread


def end_after_sigterm(seconds: float = GRACE_SECONDS, code: int = 128 + signal.SIGTERM, exit_now: Exit = os._exit) -> None:
    """From now on SIGTERM ends this process after `seconds` at the latest, even if another handler receives it and does nothing.

    Call it in the main thread. A process without a handler for SIGTERM still ends at once.
    """
    if sys.platform == "win32":
        return
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    # Python writes the number of each signal to this pipe before it calls the handler. The handler may be one that waits.
    signal.set_wakeup_fd(writing, warn_on_full_buffer=False)

    def watch() -> None:
        while number := os.read(reading, 1):
            if number[0] == signal.SIGTERM:
                end_after(seconds, code, exit_now)
                return

    threading.Thread(target=watch, name="sigterm-watch", daemon=True).start()
