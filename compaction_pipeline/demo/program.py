"""Runs the demo in its folder, alone, and says in a sentence what is wrong when it cannot run."""

from __future__ import annotations

import fcntl
import os
import sqlite3
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from sqlalchemy.exc import SQLAlchemyError

from compaction_pipeline.core.errors import CompactionError, ConfigError
from compaction_pipeline.demo.live import run_live
from compaction_pipeline.demo.once import run_once
from compaction_pipeline.demo.options import DemoOptions, child_environment
from compaction_pipeline.demo.payments import make_payments
from compaction_pipeline.demo.processes import Stopped, check_port
from compaction_pipeline.demo.warehouse import make_tables
from compaction_pipeline.ending.process_table import processes_with

_GRACE_SECONDS = 60.0
"""All processes notice within seconds that their demo was killed. Dagster's get a while to end, and are killed then."""


@contextmanager
def alone(options: DemoOptions, grace_seconds: float = _GRACE_SECONDS) -> Iterator[None]:
    """Hold the demo's folder until the block ends. A killed demo holds nothing.

    Raises ConfigError when another demo runs in the folder, or when processes still do that a killed one has left.
    """
    with (options.root / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise ConfigError(f"another demo runs in {options.root}: end it first, or set COMPACTION_DEMO_HOME to another folder") from None
        _refuse_leftovers(options, grace_seconds)
        yield


def _refuse_leftovers(options: DemoOptions, grace_seconds: float) -> None:
    """Two Dagsters over one history would start each run twice. Every process of a demo has the demo's DAGSTER_HOME, and no other has."""
    until, said = time.monotonic() + grace_seconds, False
    while left := processes_with("DAGSTER_HOME", str(options.dagster_home)):
        if time.monotonic() > until:
            pids = " ".join(map(str, left))
            raise ConfigError(
                f"a demo in {options.root} was killed, and processes that it started still run: end them with `kill {pids}`, or set "
                "COMPACTION_DEMO_HOME to another folder"
            )
        if not said:
            print(f"A demo in {options.root} was killed. Waiting until the processes that it started have ended …", flush=True)
            said = True
        time.sleep(0.2)


def answered(read: Callable[[], DemoOptions], grace_seconds: float = _GRACE_SECONDS) -> int:
    """Run the demo with the options that `read` returns, say in a sentence what is wrong with them, and answer the exit code."""
    try:
        return _run(read(), grace_seconds)
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


def _check_ports(options: DemoOptions) -> None:
    check_port(options.port)
    if options.optimizers:
        check_port(options.server_port, "make demo SERVER_PORT")


def _run(options: DemoOptions, grace_seconds: float) -> int:
    try:
        if not options.root.exists():
            # No earlier demo can hold the ports, and a demo that cannot start leaves nothing behind.
            _check_ports(options)
        with _folder_problems(options):
            options.make_folders()
        # The services that this process opens read the environment too.
        environment = child_environment(options)
        os.environ.clear()
        os.environ.update(environment)
        with alone(options, grace_seconds):
            # A killed demo may have held the ports until now.
            _check_ports(options)
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
