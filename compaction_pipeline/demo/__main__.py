"""`make demo` runs this as `python -m compaction_pipeline.demo`."""

from __future__ import annotations

import fcntl
import os
import sqlite3
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy.exc import SQLAlchemyError

from compaction_pipeline.core.errors import CompactionError, ConfigError
from compaction_pipeline.demo.live import run_live
from compaction_pipeline.demo.once import run_once
from compaction_pipeline.demo.options import DemoOptions, child_environment, read_options
from compaction_pipeline.demo.payments import make_payments
from compaction_pipeline.demo.processes import Stopped, check_port, stop_on_signals
from compaction_pipeline.demo.warehouse import make_tables
from compaction_pipeline.ending.process_table import holders_of


@contextmanager
def alone(options: DemoOptions) -> Iterator[None]:
    """Hold the demo's folder until the block ends, and until the processes that were started in the block have ended.

    Raises ConfigError when another demo runs in the folder, or when processes of a killed one still do.
    """
    path = options.root / "lock"
    with path.open("a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            others = ", ".join(str(pid) for pid in holders_of(path) if pid != os.getpid()) or "of another user"
            raise ConfigError(
                f"another demo runs in {options.root}, or processes that it started still do after it was killed (processes {others}): "
                "end them first, or set COMPACTION_DEMO_HOME to another folder"
            ) from None
        os.set_inheritable(lock.fileno(), True)
        yield


def main() -> int:
    """Run the demo, and answer its exit code."""
    stop_on_signals()
    try:
        return _run(read_options())
    except CompactionError as error:
        print(error, file=sys.stderr)
        return 2 if isinstance(error, ConfigError) else 1


@contextmanager
def _folder_problems(options: DemoOptions) -> Iterator[None]:
    """Raise ConfigError in place of what a folder causes that cannot be written, or that holds damaged files."""
    try:
        yield
    except (OSError, sqlite3.Error, SQLAlchemyError) as error:
        # The rest of such an error is a statement in SQL, and a link.
        first = str(error).partition("\n")[0]
        raise ConfigError(
            f"the demo cannot work in {options.root} ({type(error).__name__}: {first}): remove what is there (`make demo-clean` removes "
            ".demo), or set COMPACTION_DEMO_HOME to another folder"
        ) from error


def _run(options: DemoOptions) -> int:
    try:
        check_port(options.port)
        if options.optimizers:
            check_port(options.server_port, "make demo SERVER_PORT")
        with _folder_problems(options):
            options.make_folders()
        # The services that this process opens read the environment too.
        environment = child_environment(options)
        os.environ.clear()
        os.environ.update(environment)
        with alone(options):
            with _folder_problems(options):
                make_tables(options)
                make_payments(options)
            if options.once:
                return run_once(options)
            run_live(options)
    except Stopped as stopped:
        print(f"\n{stopped}: every process of the demo has ended.")
    # It is no failure when a person ends the live demo. A comparison that was cut off is one.
    return 1 if options.once else 0


if __name__ == "__main__":
    sys.exit(main())
