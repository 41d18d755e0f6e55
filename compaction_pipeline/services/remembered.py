"""Keeps what was made of values, so that a tick makes it anew only for the tables that changed."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
S = TypeVar("S")
V = TypeVar("V")


class Remembered(Generic[K, S, V]):
    """Remembers the results of the last call, each with the source that it was made of.

    Sources are compared by `==`, which is fast for tuples of the same objects. Several threads may share an instance: each call leaves
    whole results.
    """

    def __init__(self) -> None:
        self._last: Mapping[K, tuple[S, V]] = {}

    def made(self, sources: Mapping[K, S], make: Callable[[S], V]) -> dict[K, V]:
        """Return what `make` makes of each source. It is not called for a source that the last call had under the same key."""
        last = self._last
        new = {key: found if (found := last.get(key)) and found[0] == source else (source, make(source)) for key, source in sources.items()}
        self._last = new
        return {key: result for key, (_, result) in new.items()}
