"""Runs a command that ends when the demo ends, even if the demo is killed: `python -m compaction_pipeline.demo.tied DEMO LOG COMMAND...`.

A program that knows nothing of the demo, such as `dagster dev`, would live on for ever, and hold the port and Dagster's history. This
process stands between the demo and such a program. It leads a session of its own, so a signal to the demo's process group does not reach
it.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from compaction_pipeline.demo.processes import Processes, Stopped, stop_on_signals

_LOOK_SECONDS = 0.5


def tied(command: Sequence[str], log: Path) -> list[str]:
    """Return the command line that runs `command` until this process ends. The command prints to `log`."""
    return [sys.executable, "-m", "compaction_pipeline.demo.tied", str(os.getpid()), str(log), *command]


def main(arguments: Sequence[str]) -> int:
    """Run the command until it ends, or until the demo does, and answer its exit code."""
    demo, log, *command = arguments
    stop_on_signals()
    try:
        with Processes() as processes:
            child = processes.start(command[0], command, os.environ, Path.cwd(), Path(log))
            # A process whose parent has ended gets another parent.
            while child.exit_code is None and os.getppid() == int(demo):
                child.look()
                time.sleep(_LOOK_SECONDS)
            exit_code = child.exit_code
    except Stopped:
        return 0
    # A negative exit code is the number of a signal.
    return 0 if exit_code is None else exit_code if exit_code >= 0 else 128 - exit_code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
