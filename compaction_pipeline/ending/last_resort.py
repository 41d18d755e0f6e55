"""The end of a process that does not come to its end by itself: a request that hangs, in a thread that nothing can interrupt.

A process may be cut off anywhere: leases end, attempts are returned, and a commit whose answer nobody noted is settled by the next
process, which reads the table.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable

GRACE_SECONDS = 10.0
"""From the request to end until the process is cut off: a commit on its way mostly has its answer by then."""

Exit = Callable[[int], object]


def end_after(seconds: float, code: int, exit_now: Exit = os._exit, may_end: Callable[[], bool] = lambda: True) -> threading.Thread:
    """End this process hard after so many seconds, and not before `may_end()`. Returns the thread that waits."""

    def wait() -> None:
        time.sleep(seconds)
        while not may_end():
            time.sleep(0.5)
        # Not through `sys.stderr`: whoever hangs may hold its lock.
        said = (
            f"process {os.getpid()} was told to end and still waits after {seconds:.0f} s: it ends now; the next one settles what it did\n"
        )
        try:
            os.write(2, said.encode())
        finally:
            exit_now(code)

    thread = threading.Thread(target=wait, name="last-resort", daemon=True)
    thread.start()
    return thread


def end_after_sigterm(seconds: float = GRACE_SECONDS, code: int = 128 + signal.SIGTERM, exit_now: Exit = os._exit) -> None:
    """From now on SIGTERM ends this process after so many seconds at the latest, whoever handles it by then, and however.

    Call it in the main thread. A process without a handler of its own ends at once, as ever.
    """
    if sys.platform == "win32":
        return
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    # Python writes the number of each signal here before it calls the handler, which may be one that waits.
    signal.set_wakeup_fd(writing, warn_on_full_buffer=False)

    def watch() -> None:
        while number := os.read(reading, 1):
            if number[0] == signal.SIGTERM:
                end_after(seconds, code, exit_now)
                return

    threading.Thread(target=watch, name="sigterm-watch", daemon=True).start()
