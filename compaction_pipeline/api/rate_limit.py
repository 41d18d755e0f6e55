"""Keeps one token from taking the whole server. Each server counts by itself."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from threading import Lock

from compaction_pipeline.core.access.rate import Allowance, after_request, is_full

MOST_REMEMBERED = 10_000
"""When so many tokens are remembered, those that may make a whole burst again are forgotten."""


class RateLimit:
    """One verb: take. Several threads may use it at once."""

    def __init__(self, clock: Callable[[], datetime], most_remembered: int = MOST_REMEMBERED) -> None:
        self._clock = clock
        self._most_remembered = most_remembered
        self._lock = Lock()
        self._left: dict[str, Allowance] = {}

    def take(self, token_id: str, requests: int = 1) -> float:
        """Count requests of a token. Return for how many seconds its holder must wait instead; 0 when they are allowed."""
        now = self._clock()
        with self._lock:
            self._left[token_id], wait = after_request(self._left.get(token_id), now, requests)
            if len(self._left) >= self._most_remembered:
                self._left = {token: left for token, left in self._left.items() if not is_full(left, now)}
        return wait
