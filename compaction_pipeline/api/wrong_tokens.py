"""Remembers wrong tokens for a while, so that whoever sends one again and again costs no look into the state database."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from hashlib import blake2b

REMEMBERED = timedelta(seconds=10)
MOST = 10_000
"""So many are remembered. Then each new one takes the place of the oldest."""


class WrongTokens:
    """The texts that were no valid token lately. Only the event loop uses it.

    A token that is wrong does not become right: its secret is random, and it is stored before anybody gets it.
    """

    def __init__(self, clock: Callable[[], datetime]) -> None:
        self._clock = clock
        self._until: dict[bytes, datetime] = {}

    def has(self, text: str) -> bool:
        """Return whether this text was no valid token just now."""
        until = self._until.get(_key(text))
        return until is not None and self._clock() < until

    def add(self, text: str) -> None:
        """Remember that this text is no valid token."""
        key = _key(text)
        self._until.pop(key, None)
        self._until[key] = self._clock() + REMEMBERED
        if len(self._until) > MOST:
            del self._until[next(iter(self._until))]


def _key(text: str) -> bytes:
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()
