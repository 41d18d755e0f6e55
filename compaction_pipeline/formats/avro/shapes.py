"""Finds the places of many Avro values at once, where they have the same shape as an entry before them.

Nearly all entries of a manifest tell of as many columns. One regular expression then skips all that one entry says of them. It holds the
count of every list, and says of each value how its bytes end, so it matches only where a walk from value to value would find the same
places. Where it does not match, the walk decides.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import lru_cache

from compaction_pipeline.formats.avro.values import (
    INTEGER,
    MOST_AT_ONCE,
    SHORT_BYTES,
    AvroType,
    long_bytes,
    nullable,
    read_long,
    skipper,
    type_name,
)

Places = Sequence[tuple[int, int]]

_MOST_SHAPES = 3
_OFTEN = 64
_MOST_COMPILED = 32
"""To compile a shape takes about as long as to walk through 100 entries. So a shape must be seen often, and some tables have too many."""
_MOST_SEEN = 4096
_SIZES = {"null": 0, "boolean": 1, "float": 4, "double": 8}
_MOST_SHORT = 64
_SHORT = 0x80


class _NoShape(Exception):
    """These values are not matched: their lengths are told by the values themselves, and differ nearly always."""


class Shapes:
    """The shapes of several fields that follow each other. `stops` are the places between fields that are asked for, in order."""

    def __init__(self, kinds: Sequence[AvroType], stops: Sequence[int]) -> None:
        self._kinds = kinds
        self._skips = [skipper(kind) for kind in kinds]
        self._stops = stops
        self._lists = [(place, nullable(kind)[1]) for place, kind in enumerate(kinds) if type_name(nullable(kind)[0]) == "array"]
        self._known: list[Callable[[bytes, int], re.Match[bytes] | None]] = []
        self._seen: dict[bytes, int] = {}
        self._left = _MOST_COMPILED

    def places(self, content: bytes, position: int) -> Places:
        """Where the fields begin at `position`: the first number of each pair is the place of a stop."""
        for rank, match in enumerate(self._known):
            found = match(content, position)
            if found is not None:
                if rank:
                    self._known.insert(0, self._known.pop(rank))
                return found.regs[1:]
        return self._walked(content, position)

    def _walked(self, content: bytes, position: int) -> Places:
        starts = [position]
        for skip in self._skips:
            position = skip(content, position)
            starts.append(position)
        # What was cut off at the end of the bytes is no example.
        if self._left and position <= len(content):
            self._note(content, starts)
        return [(starts[stop], starts[stop]) for stop in self._stops]

    def _note(self, content: bytes, starts: Sequence[int]) -> None:
        """Compile the shape of this example if it was seen often. A shape is known by the lengths of its lists."""
        lengths = bytearray()
        for place, null in self._lists:
            start = starts[place]
            lengths.append(content[start])
            if null is not None and content[start] != null << 1:
                lengths.append(content[start + 1])
        shape = bytes(lengths)
        if len(self._seen) >= _MOST_SEEN:
            self._seen.clear()
        self._seen[shape] = times = self._seen.get(shape, 0) + 1
        if times < _OFTEN:
            return
        # Should another shape take its place, it must be seen as often again.
        self._seen[shape] = 0
        try:
            patterns = tuple([_pattern(kind, content, starts[place]) for place, kind in enumerate(self._kinds)])
        except _NoShape:
            return
        self._left -= 1
        self._known.insert(0, _compiled(patterns, tuple(self._stops)))
        del self._known[_MOST_SHAPES:]


@lru_cache(maxsize=256)
def _compiled(patterns: tuple[bytes, ...], stops: tuple[int, ...]) -> Callable[[bytes, int], re.Match[bytes] | None]:
    parts = [b"()" * stops.count(place) + (patterns[place] if place < len(patterns) else b"") for place in range(len(patterns) + 1)]
    return re.compile(b"".join(parts), re.DOTALL).match


def _pattern(kind: AvroType, content: bytes, position: int) -> bytes:
    """What matches values of this type that are as long as the one at `position`, as far as anything depends on that."""
    name = type_name(kind)
    if name == "union":
        return _optional(kind, content, position)
    if name in _KNOWN:
        if name in ("bytes", "string") and (content[position] >= _SHORT or content[position] & 1):
            raise _NoShape
        return _KNOWN[name]
    if name == "record":
        parts = []
        for field in kind["fields"]:
            parts.append(_pattern(field["type"], content, position))
            position = skipper(field["type"])(content, position)
        return b"".join(parts)
    if name == "array":
        return _array(kind["items"], content, position)
    size = int(kind["size"]) if name == "fixed" else _SIZES.get(name)
    if size is None:
        raise _NoShape
    return b".{%d}" % size


def _optional(kind: AvroType, content: bytes, position: int) -> bytes:
    """A value that may be null. Where the length of the example says nothing of others, these may be null or there."""
    inner, null = nullable(kind)
    if null is None:
        raise _NoShape
    absent, present = re.escape(long_bytes(null)), re.escape(long_bytes(1 - null))
    if content[position] != null << 1:
        return b"(?:" + present + _pattern(inner, content, position + 1) + b"|" + absent + b")"
    known = _KNOWN.get(type_name(inner))
    return absent if known is None else b"(?:" + absent + b"|" + present + known + b")"


_KNOWN = {"int": INTEGER, "long": INTEGER, "enum": INTEGER, "string": SHORT_BYTES, "bytes": SHORT_BYTES}


def _array(item: AvroType, content: bytes, position: int) -> bytes:
    count, behind = read_long(content, position)
    if count == 0:
        return b"\\x00"
    inner = [field["type"] for field in item["fields"]] if type_name(item) == "record" else [item]
    names = [type_name(each) for each in inner]
    if count < 0 or count > MOST_AT_ONCE or any(name not in ("int", "long", "bytes") for name in names):
        raise _NoShape
    if "bytes" in names and count >= _MOST_SHORT:
        raise _NoShape
    one = b"".join(SHORT_BYTES if name == "bytes" else INTEGER for name in names)
    return re.escape(content[position:behind]) + b"(?:" + one + b"){%d}" % count + b"\\x00"
