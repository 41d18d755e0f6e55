"""One writer as a process: `python -m compaction_pipeline.demo.writer TABLE DEMO [FILES]`.

The writer commits every few seconds, until it is told to stop or its parent is gone. With FILES it commits as fast as it can, until it
has written so many files. It always finishes a commit that has begun.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import threading
from types import FrameType

from compaction_pipeline.demo.options import read_options
from compaction_pipeline.demo.tables import TABLES
from compaction_pipeline.demo.writers import Writer

_PAUSE_SECONDS = (2.0, 4.0)
# Commits between two expiries of snapshots. Each expiry rewrites the whole metadata file, which grows with every snapshot.
_EXPIRE_EVERY = 100


def main(arguments: list[str]) -> int:
    """Write until asked to stop, and answer the exit code."""
    if len(arguments) not in (2, 3) or arguments[0] not in TABLES or not all(each.isdecimal() for each in arguments[1:]):
        print(f"usage: python -m compaction_pipeline.demo.writer {{{','.join(TABLES)}}} DEMO [FILES]", file=sys.stderr)
        return 2
    # The demo may have been killed while this process imported, and then another process is its parent already.
    demo, goal = int(arguments[1]), int(arguments[2]) if len(arguments) == 3 else None
    stop = threading.Event()

    def ask_to_stop(_: int, __: FrameType | None) -> None:
        stop.set()

    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, ask_to_stop)
    writer = Writer(read_options(), TABLES[arguments[0]])
    written = commits = 0
    while not stop.is_set() and os.getppid() == demo and (goal is None or written < goal):
        files = writer.commit_batch(live=goal is None)
        written += files
        commits += 1
        if commits % _EXPIRE_EVERY == 0:
            writer.expire_snapshots()
        if goal is None:
            print(f"{arguments[0]}: {files} files", flush=True)
            stop.wait(random.uniform(*_PAUSE_SECONDS))
    writer.close()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
