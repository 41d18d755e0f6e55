"""Hosts whose clocks differ agree about the time of one PostgreSQL state database. The processes on a SQLite file have the same clock."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from datetime import datetime, timedelta, timezone, tzinfo
from pathlib import Path

import pytest
from sqlalchemy import Connection, Engine

from compaction_pipeline import foundations
from compaction_pipeline.core.errors import StorageUnavailable
from compaction_pipeline.core.queue.task import TaskStatus
from compaction_pipeline.core.work.ends import EndReason
from compaction_pipeline.settings import Settings
from compaction_pipeline.storage import clock as clock_module
from compaction_pipeline.storage.clock import RENEW_EVERY_SECONDS, DatabaseClock
from compaction_pipeline.storage.engine import open_state, reading
from compaction_pipeline.storage.stores import open_stores
from compaction_pipeline_tests.behaviours.example_tasks import example
from compaction_pipeline_tests.opened import OpenedServices

LEASE = timedelta(seconds=60)
APART = timedelta(minutes=10)


class _Ahead(datetime):
    """A host's clock that is ten minutes ahead."""

    @classmethod
    def now(cls, tz: tzinfo | None = None) -> datetime:  # type: ignore[override]
        return datetime.now(tz) + APART


@pytest.fixture
def engine(postgres_url: str) -> Iterator[Engine]:
    opened = open_state(postgres_url)
    yield opened
    opened.dispose()


@contextmanager
def host(url: str, home: Path) -> Iterator[OpenedServices]:
    services = OpenedServices(Settings(state_url=url, home=home))
    yield services
    services.close()


@pytest.mark.postgres
def test_hosts_whose_clocks_are_ten_minutes_apart_keep_each_other_s_leases(
    postgres_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    open_stores(postgres_url)
    with host(postgres_url, tmp_path) as right, host(postgres_url, tmp_path) as ahead:
        assert right.stores.tasks.insert([example("t1")], [], right.clock())
        assert right.stores.leases.acquire("plan t", "right", right.clock(), LEASE)
        assert right.stores.tasks.poll(None, "right", right.clock(), LEASE)
        with monkeypatch.context() as patched:
            patched.setattr(foundations, "datetime", _Ahead)
            assert foundations.utc_now() - datetime.now(timezone.utc) > APART / 2
            assert abs(ahead.clock() - right.clock()) < APART / 2
            assert not ahead.stores.leases.acquire("plan t", "ahead", ahead.clock(), LEASE)
            assert ahead.keep_queue.keep().lost == ()
            assert ahead.stores.tasks.task("t1").status is TaskStatus.EXECUTING
            # What the other host takes is not over for this one either.
            assert ahead.stores.leases.acquire("plan u", "ahead", ahead.clock(), LEASE)
            ahead.stores.tasks.fail("t1", EndReason.FAILED, "x", ahead.clock())
        assert not right.stores.leases.acquire("plan u", "right", right.clock(), LEASE)
        failed_at = right.stores.tasks.task("t1").failed_at
        assert failed_at is not None
        assert abs(right.clock() - failed_at) < APART / 2


def test_a_given_clock_goes_for_everything_and_sqlite_has_the_clock_of_its_host(tmp_path: Path) -> None:
    moment = datetime(2026, 1, 1, tzinfo=timezone.utc)
    with host(f"sqlite:///{tmp_path / 'state.db'}", tmp_path) as real:
        assert real.stores.now is None
        assert abs(real.clock() - datetime.now(timezone.utc)) < APART
    fake = OpenedServices(Settings(home=tmp_path / "home"), clock=lambda: moment)
    assert fake.clock() == moment
    fake.close()


@pytest.mark.postgres
def test_the_time_goes_on_while_the_host_sleeps(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    slept, awake = [0.0], time.clock_gettime

    def clock_of_the_system(which: int) -> float:
        # The operating system counts the sleep in this clock only.
        return awake(which) + (slept[0] if which == clock_module._SINCE_START else 0.0)

    monkeypatch.setattr(time, "clock_gettime", clock_of_the_system)
    asked: list[Engine] = []
    clock = DatabaseClock(engine, reads=lambda engine: asked.append(engine) or reading(engine))
    clock.now()
    asked.clear()
    slept[0] = RENEW_EVERY_SECONDS
    clock.now()
    assert asked == [engine], "the clock is measured anew as soon as the host is awake"


@pytest.mark.postgres
def test_the_offset_is_measured_anew_each_minute_and_kept_while_the_database_is_away(engine: Engine) -> None:
    passed, is_away = [0.0], [False]

    def reads(engine: Engine) -> AbstractContextManager[Connection]:
        if is_away[0]:
            raise StorageUnavailable("away")
        return reading(engine)

    clock = DatabaseClock(engine, lambda: time.monotonic() + passed[0], reads)
    first = clock.now()
    # This process's time runs ahead of the database's: nobody notices until the offset is measured again.
    passed[0] = RENEW_EVERY_SECONDS / 2
    assert clock.now() - first >= timedelta(seconds=RENEW_EVERY_SECONDS / 2)
    passed[0] = RENEW_EVERY_SECONDS * 10
    assert clock.now() - first < timedelta(seconds=RENEW_EVERY_SECONDS / 2)

    is_away[0] = True
    passed[0] *= 2
    assert clock.now() - first > timedelta(seconds=RENEW_EVERY_SECONDS)
    with pytest.raises(StorageUnavailable, match="away"):
        DatabaseClock(engine, reads=reads).now()
