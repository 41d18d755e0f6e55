"""Polls that wait for a task.

They hold no thread, and no connection to the state database: one look a second is enough for all that wait in a group.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Awaitable, Callable

from compaction_pipeline.core.errors import CompactionError

log = logging.getLogger(__name__)

LOOK_SECONDS = 1.0


class WaitingPolls:
    """Wakes waiting polls when a task of their group waits."""

    def __init__(self, waits: Callable[[str], Awaitable[bool]], look_seconds: float = LOOK_SECONDS) -> None:
        """`waits` answers whether a task of a group waits."""
        self._waits = waits
        self._look_seconds = look_seconds
        self._waiting: dict[str, set[asyncio.Event]] = defaultdict(set)
        self._lookers: dict[str, asyncio.Task[None]] = {}

    async def wait(self, group: str, seconds: float) -> None:
        """Return when a task of the group may be there to be polled, or after `seconds`."""
        event = asyncio.Event()
        self._waiting[group].add(event)
        if group not in self._lookers:
            self._lookers[group] = asyncio.create_task(self._look(group))
        try:
            await asyncio.wait_for(event.wait(), seconds)
        except asyncio.TimeoutError:
            return
        finally:
            self._waiting[group].discard(event)

    async def _look(self, group: str) -> None:
        """Look again and again while somebody waits."""
        try:
            while self._waiting[group]:
                await asyncio.sleep(self._look_seconds)
                try:
                    found = await self._waits(group)
                except CompactionError as error:
                    log.warning("group=%s waiting polls not served: %s", group, error)
                    continue
                if found:
                    for event in self._waiting[group]:
                        event.set()
        finally:
            del self._lookers[group]
            if not self._waiting[group]:
                del self._waiting[group]
