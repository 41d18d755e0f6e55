"""Shared by all tests: Hypothesis' profiles, the options `--stage` and `--steps`, and an environment without the developer's settings.

HYPOTHESIS_PROFILE chooses the profile: `dev` (default) tries new examples every time, `ci` the same ones, `long` many.
"""

from __future__ import annotations

import gc
import logging
import os
import shutil
import signal
import sqlite3
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from sqlalchemy import event
from sqlalchemy.engine import Engine
from xdist.scheduler import LoadScopeScheduling

from compaction_pipeline.core.secrets.known import forget_all_secrets
from compaction_pipeline_tests.once import build_validators_once, compile_statements_once, read_migrations_once
from compaction_pipeline_tests.stages import PLACES, group_of, leads_to, lies_in, misplaced, stage_of

_SLOW_IS_FINE = [HealthCheck.too_slow, HealthCheck.data_too_large]

# The profiles have no deadlines. On two cores that a JVM uses too, any single example may be slow.
settings.register_profile("dev", max_examples=50, deadline=None, suppress_health_check=_SLOW_IS_FINE)
settings.register_profile("ci", max_examples=30, deadline=None, suppress_health_check=_SLOW_IS_FINE, derandomize=True, print_blob=True)
settings.register_profile("long", max_examples=2000, deadline=None, suppress_health_check=_SLOW_IS_FINE, print_blob=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci" if os.environ.get("CI") else "dev"))

_TESTS_OWN = ("COMPACTION_TEST_", "COMPACTION_SCREENSHOTS", "COMPACTION_SEED")
"""Prefixes of variables that the tests themselves read. These variables stay."""


@pytest.fixture(autouse=True)
def log_without_levels_of_earlier_tests() -> None:
    """Opening services gives the log the level of their settings, for the whole process. A later test would miss messages."""
    logging.getLogger("compaction_pipeline").setLevel(logging.NOTSET)


@pytest.fixture(autouse=True)
def no_secrets_of_earlier_tests() -> None:
    """What one test opened with a secret must hide nothing in the texts of the next."""
    forget_all_secrets()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--stage", choices=PLACES, default=None, help="run only the tests of this stage of `make test`")
    parser.addoption("--steps", type=int, default=None, metavar="N", help="steps of the model test: --steps=N (the same as STEPS=N)")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave modules without tests of the asked stage unread."""
    stage = config.getoption("--stage")
    return True if stage is not None and not leads_to(stage, collection_path) else None


@pytest.hookimpl(hookwrapper=True)
def pytest_collection() -> Iterator[None]:
    """Look for no garbage while modules are imported, and none in them later: that is a seventh of the time."""
    gc.disable()
    yield
    gc.freeze()
    gc.enable()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep the tests of the asked stage, and those that their own stage does not find, in the order of their groups."""
    asked = config.getoption("--stage")
    others = {item for item in items if asked not in (None, _stage(item)) and lies_in(_stage(item), item.path)}
    config.hook.pytest_deselected(items=list(others))
    items[:] = [item for item in items if item not in others]
    if asked is not None:
        items.sort(key=lambda item: group_of(item.nodeid)[0])


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Give the tests of a group to one worker where the tests of a file would go to one worker.

    The markers of pytest-xdist's own groups do nothing: it writes them into names that pytest 9 does not read.
    """
    return ByGroup(config, log) if config.getvalue("dist") == "loadfile" else None


class ByGroup(LoadScopeScheduling):
    def _split_scope(self, nodeid: str) -> str:
        return group_of(nodeid)[1]


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Fail a test that its own stage does not find. The stage `fast` reads every module, so it meets all of these tests."""
    if not lies_in(_stage(item), item.path):
        pytest.fail(misplaced(_stage(item)), pytrace=False)


def _stage(item: pytest.Item) -> str:
    return stage_of({marker.name for marker in item.iter_markers()})


def pytest_configure(config: pytest.Config) -> None:
    """Remove COMPACTION_*, AWS_* and DAGSTER_HOME, so that no test opens the developer's own state or stores. Restore Ctrl-C."""
    for name in [name for name in os.environ if name.startswith(("COMPACTION_", "AWS_")) and not name.startswith(_TESTS_OWN)]:
        del os.environ[name]
    os.environ.pop("DAGSTER_HOME", None)
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        # A shell starts background processes so that they ignore Ctrl-C. Then tests of Ctrl-C would wait for ever.
        signal.signal(signal.SIGINT, signal.default_int_handler)
    home = tempfile.mkdtemp(prefix="compaction-home-")
    os.environ["COMPACTION_HOME"] = home
    config.add_cleanup(lambda: shutil.rmtree(home, ignore_errors=True))
    event.listen(Engine, "connect", _write_behind)
    compile_statements_once()
    read_migrations_once()
    build_validators_once()
    steps = config.getoption("--steps")
    if steps is not None:
        os.environ["STEPS"] = str(steps)


def _write_behind(connection: Any, _record: object) -> None:
    """Let SQLite not wait until the disk has what a transaction wrote, which takes most of the time of a small transaction.

    Tests kill processes, and a killed process loses nothing by this. Only a machine without power does.
    """
    if isinstance(connection, sqlite3.Connection):
        connection.execute("PRAGMA synchronous = OFF")
