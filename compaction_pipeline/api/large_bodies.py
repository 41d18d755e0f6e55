"""Lets only a few large bodies be in memory at a time, and fewer still of one sender. The others wait, and hold nothing meanwhile."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

AT_ONCE = 8
"""So many large bodies are in memory at a time."""
OF_ONE_AT_ONCE = 2
"""So many of them are of one sender, so that one who sends slowly keeps only himself waiting."""


class NoTurn(Exception):
    """A body got no turn in time."""


class LargeBodies:
    """The places for large bodies."""

    def __init__(self) -> None:
        self._all = asyncio.Semaphore(AT_ONCE)
        self._of: dict[str, asyncio.Semaphore] = {}
        self._users: defaultdict[str, int] = defaultdict(int)

    @asynccontextmanager
    async def place(self, sender: str, seconds: float) -> AsyncIterator[None]:
        """Hold a place until the block ends. Raises NoTurn when none was free for so long."""
        own = self._of.setdefault(sender, asyncio.Semaphore(OF_ONE_AT_ONCE))
        self._users[sender] += 1
        try:
            async with _within(seconds, own), _within(seconds, self._all):
                yield
        finally:
            self._users[sender] -= 1
            if not self._users[sender]:
                del self._users[sender], self._of[sender]


@asynccontextmanager
async def _within(seconds: float, places: asyncio.Semaphore) -> AsyncIterator[None]:
    try:
        await asyncio.wait_for(places.acquire(), seconds)
    except asyncio.TimeoutError:
        raise NoTurn from None
    try:
        yield
    finally:
        places.release()
