"""The server that optimizers of tests ask, and work for them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

import uvicorn

from compaction_pipeline.api.app import http_app
from compaction_pipeline.core.queue.merge_version import MERGE_VERSION
from compaction_pipeline.core.queue.optimizer import Registration
from compaction_pipeline.optimizer.client import Pace
from compaction_pipeline_tests.servers import running
from compaction_pipeline_tests.services.house import House

IMPATIENT = Pace(poll_seconds=0, pause_seconds=0)
"""Polls do not wait for tasks, and a client that was not answered asks again at once."""
REGISTRATION = Registration("default", "here", "1", "1", MERGE_VERSION, 4)


@contextmanager
def serving(house: House, port: int = 0) -> Iterator[int]:
    """A server over the house on a loopback port, until the block ends. Yields the port."""
    with running(uvicorn.Config(http_app(house.services), log_config=None, timeout_graceful_shutdown=1), port) as bound:
        yield bound


def plan(house: House, *names: str) -> None:
    for name in names:
        house.fragmented(name=name)
    services = house.services
    services.sweep_tables.sweep(None, timedelta(hours=1))
    services.sweep_tables.plan_due(services.tables_in_line.worth_planning(), timedelta(hours=1))
