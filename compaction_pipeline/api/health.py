"""Routes that tell whether the server works."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from datetime import datetime, timedelta

from anyio import CapacityLimiter, to_thread
from fastapi import APIRouter
from pydantic import BaseModel

from compaction_pipeline.api.problems import ANSWERS
from compaction_pipeline.core.errors import CompactionError, StorageUnavailable

SHARED = timedelta(seconds=1)
"""Whoever asks so soon after somebody else gets the same answer."""


_NOT_READY = "the state database takes no writes now; the log of the server says why"

log = logging.getLogger(__name__)


class Health(BaseModel):
    """`ok` is always true; a server that is not well answers with an error."""

    ok: bool = True


class Readiness:
    """Asks the state database whether it takes writes, at most one question at a time."""

    def __init__(self, check_ready: Callable[[timedelta], None], clock: Callable[[], datetime], within: timedelta) -> None:
        """`check_ready` raises StorageUnavailable when no write transaction begins `within` this time."""
        self._check_ready = check_ready
        self._within = within
        self._clock = clock
        self._limiter = CapacityLimiter(1)
        self._asking: asyncio.Task[CompactionError | None] | None = None
        self._answered_at: datetime | None = None
        self._logged = ""

    async def check(self) -> None:
        """Raise CompactionError when the server is not ready."""
        if self._answered_at is not None and self._clock() - self._answered_at >= SHARED:
            self._asking = self._answered_at = None
        if self._asking is None:
            self._asking = asyncio.create_task(self._ask())
        try:
            # A database that is out of reach may take longer to say so. The question goes on, and the next ones wait for its answer.
            problem = await asyncio.wait_for(asyncio.shield(self._asking), self._within.total_seconds() + 0.5)
        except asyncio.TimeoutError:
            raise StorageUnavailable(
                f"the state database has not answered within {self._within.total_seconds():g} s; see that it runs"
            ) from None
        if problem is not None:
            raise problem

    async def _ask(self) -> CompactionError | None:
        try:
            await to_thread.run_sync(self._check_ready, self._within, limiter=self._limiter)
        except CompactionError as error:
            self._log(str(error))
            return StorageUnavailable(_NOT_READY)
        finally:
            self._answered_at = self._clock()
        self._logged = ""
        return None

    def _log(self, problem: str) -> None:
        """Log why the server is not ready, once for each reason. Everybody may ask, and gets no address of the database."""
        if problem != self._logged:
            self._logged = problem
            log.warning("the server is not ready: %s", problem)


def health_routes(check_ready: Callable[[timedelta], None], clock: Callable[[], datetime], within: timedelta) -> APIRouter:
    """`/health/live` and `/health/ready`, which need no token. `check_ready` raises StorageUnavailable when nothing can be written."""
    routes = APIRouter(tags=["health"], responses={status: ANSWERS[status] for status in (422, 503)})
    readiness = Readiness(check_ready, clock, within)

    @routes.get("/health/live")
    async def live() -> Health:
        """The process runs."""
        return Health()

    @routes.get("/health/ready")
    async def ready() -> Health:
        """A write transaction of the state database begins within 2 s. The answer is shared for 1 s."""
        await readiness.check()
        return Health()

    return routes
