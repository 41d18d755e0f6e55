"""Ready means that the state database takes writes."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from contextlib import closing
from datetime import timedelta

import pytest
from fastapi.testclient import TestClient
from sqlalchemy.engine import make_url

from compaction_pipeline.api import health
from compaction_pipeline.api.app import http_app
from compaction_pipeline.api.health import Readiness
from compaction_pipeline.api.patience import Patience
from compaction_pipeline.core.errors import StorageUnavailable
from compaction_pipeline_tests.api.served import Served
from compaction_pipeline_tests.builders import NOW
from compaction_pipeline_tests.services.house import House


def test_a_server_whose_database_is_locked_is_alive_and_not_ready(house: House, caplog: pytest.LogCaptureFixture) -> None:
    app = http_app(house.services, patience=Patience(database=timedelta(seconds=0.05)))
    with TestClient(app, raise_server_exceptions=False) as client:
        check_that_it_is_alive_and_not_ready(Served(house, client), caplog)


def check_that_it_is_alive_and_not_ready(served: Served, caplog: pytest.LogCaptureFixture) -> None:
    path = make_url(served.house.services.settings.state_database_url).database
    assert served.ask("GET", "/health/ready").json() == {"ok": True}
    with closing(sqlite3.connect(str(path), isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        served.house.pass_time(1)
        locked = served.ask("GET", "/health/ready")
        assert (locked.status_code, locked.json()["reason_code"]) == (503, "UNAVAILABLE")
        # Everybody may ask, so the answer tells nothing of the database. The log does, once.
        assert locked.json()["detail"] == "the state database takes no writes now; the log of the server says why"
        served.house.pass_time(1)
        assert served.ask("GET", "/health/ready").status_code == 503
        [told] = [record.message for record in caplog.records if "not ready" in record.message]
        assert path is not None
        assert path in told
        assert "database is locked (waited for 0.05 s)" in told
        assert served.ask("GET", "/health/live").status_code == 200
    # The answer is shared for a second.
    assert served.ask("GET", "/health/ready").status_code == 503
    served.house.pass_time(1)
    assert served.ask("GET", "/health/ready").status_code == 200


def test_many_who_ask_share_one_question() -> None:
    asked: list[timedelta] = []
    now = [NOW]
    readiness = Readiness(asked.append, lambda: now[0], timedelta(seconds=2))

    async def scene() -> None:
        await asyncio.gather(*(readiness.check() for _ in range(100)))
        await readiness.check()
        assert asked == [timedelta(seconds=2)]
        now[0] += health.SHARED
        await readiness.check()
        assert len(asked) == 2

    asyncio.run(scene())


def test_a_database_that_does_not_answer_keeps_nobody_waiting() -> None:
    answers, asked = threading.Event(), []

    def check(within: timedelta) -> None:
        asked.append(within)
        assert answers.wait(60)

    readiness = Readiness(check, lambda: NOW, timedelta(seconds=-0.45))

    async def scene() -> None:
        for _ in range(2):
            with pytest.raises(StorageUnavailable, match="has not answered"):
                await readiness.check()
        assert len(asked) == 1
        answers.set()
        assert readiness._asking is not None
        await readiness._asking

    asyncio.run(scene())
