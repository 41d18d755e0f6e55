"""Walks through many Avro records at once: each step finds where one field ends in all of them.

It proves what a walk through one record at a time found. So it shares no code with `shapes` and with the walks of `values`, and knows only
what nearly all records have. A record that has anything else is odd, and some other decoder must read it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from compaction_pipeline.formats.avro.values import AvroType, nullable, type_name

_Ints = NDArray[np.int64]
_Bools = NDArray[np.bool_]

_LAST = 0x80
_MOST_DIGITS = 9
"""A number of as many bytes has 63 bits. One that is longer is odd."""
_PADDING = bytes(16)
_MOST_ITEMS = 10_000
_INTEGERS = ("int", "long")
_SIZES = {"boolean": 1, "float": 4, "double": 8}


class Walked(NamedTuple):
    """What a walk found of each record, in their order: where it ends, whether it is odd, and what it says, by field id.

    Of an odd record, only that it is odd can be relied on.
    """

    ends: Sequence[int]
    odd: Sequence[bool]
    told: Mapping[int, Sequence[int | bytes]]


class RecordsAtOnce:
    """Walks through records of one type. `told` are the ids of required numbers and texts, in records of records too."""

    def __init__(self, record: AvroType, told: Iterable[int]) -> None:
        self._steps = _flat(record, frozenset(told))

    def walk(self, content: bytes, starts: Sequence[int]) -> Walked:
        """Walk through the records that begin at these places."""
        here = _Content(content, len(starts))
        rows = np.arange(len(starts))
        at = np.array(starts, np.int64)
        told: dict[int, Sequence[int | bytes]] = {}
        for number, kind, step in self._steps:
            if number is None:
                at = step(here, rows, at)
                continue
            said, behind = here.number(rows, at)
            if kind == "string":
                at = here.behind_bytes(rows, behind, said)
                told[number] = [content[start:end] for start, end in zip(behind.tolist(), at.tolist(), strict=True)]
            else:
                at = behind
                told[number] = said.tolist()
        return Walked(at.tolist(), here.odd.tolist(), told)


class _Content:
    """The bytes of records, and zeros behind them. No place is further than one byte behind the end, where a value that was cut ends."""

    def __init__(self, content: bytes, records: int) -> None:
        self.size = len(content)
        self.bytes = np.frombuffer(content + _PADDING, np.uint8)
        last = self.bytes < _LAST
        # A number ends with the first byte that says so. With these two, many numbers are skipped as fast as one.
        self._before = np.zeros(len(last) + 1, np.int32)
        np.cumsum(last, out=self._before[1:])
        self._behind = np.flatnonzero(last) + 1
        self.odd: _Bools = np.zeros(records, np.bool_)

    def clipped(self, at: _Ints) -> _Ints:
        """These places, or the one behind the end."""
        return np.minimum(at, self.size + 1)

    def doubt(self, rows: _Ints, which: _Bools) -> None:
        """Records of these are odd."""
        if which.any():
            self.odd[rows[which]] = True

    def behind_numbers(self, at: _Ints, count: int | _Ints) -> _Ints:
        """The places behind as many numbers, at least one."""
        if isinstance(count, int) and count == 1 and (self.bytes[at] < _LAST).all():
            return self.clipped(at + 1)
        rank = np.minimum(self._before[at] + (count - 1), len(self._behind) - 1)
        return self.clipped(self._behind[rank])

    def number(self, rows: _Ints, at: _Ints) -> tuple[_Ints, _Ints]:
        """The number at each place, and the place behind it."""
        first = self.bytes[at]
        if (first < _LAST).all():
            short = first.astype(np.int64)
            return (short >> 1) ^ -(short & 1), self.clipped(at + 1)
        behind = self.behind_numbers(at, 1)
        digits = behind - at
        self.doubt(rows, (digits > _MOST_DIGITS) | (digits < 1))
        value = (first & 0x7F).astype(np.int64)
        for place in range(1, min(int(digits.max(initial=1)), _MOST_DIGITS)):
            digit = (self.bytes[at + place] & 0x7F).astype(np.int64) << 7 * place
            value |= np.where(digits > place, digit, 0)
        return (value >> 1) ^ -(value & 1), behind

    def behind_bytes(self, rows: _Ints, at: _Ints, length: _Ints) -> _Ints:
        """The places behind bytes that have these lengths."""
        wrong = (length < 0) | (length > self.size - at)
        self.doubt(rows, wrong)
        return at + np.where(wrong, 0, length)


_Step = Callable[[_Content, _Ints, _Ints], _Ints]
"""Takes the numbers of records, and the place in each where a value begins. Returns the places behind the values."""


def _flat(record: AvroType, told: frozenset[int]) -> list[tuple[int | None, str, _Step]]:
    """The id and type of each field that is told, and the steps through the others."""
    steps: list[tuple[int | None, str, _Step]] = []
    for field in record["fields"]:
        kind, number = field["type"], field.get("field-id")
        if type_name(kind) == "record":
            steps += _flat(kind, told)
        else:
            is_told = number in told and type_name(kind) in ("string", *_INTEGERS)
            steps.append((number if is_told else None, type_name(kind), _step(kind)))
    return steps


def _step(kind: AvroType) -> _Step:
    name = type_name(kind)
    if name == "union":
        return _optional(kind)
    if name in _INTEGERS:
        return lambda here, rows, at: here.behind_numbers(at, 1)
    if name in ("bytes", "string"):
        return _text
    if name == "record":
        return _in_turn([_step(field["type"]) for field in kind["fields"]])
    if name == "array":
        return _array(kind["items"])
    size = int(kind["size"]) if name == "fixed" else _SIZES.get(name)
    if size is None:
        return _odd
    return lambda here, rows, at: here.clipped(at + size)


def _odd(here: _Content, rows: _Ints, at: _Ints) -> _Ints:
    here.odd[rows] = True
    return at


def _text(here: _Content, rows: _Ints, at: _Ints) -> _Ints:
    length, start = here.number(rows, at)
    return here.behind_bytes(rows, start, length)


def _in_turn(steps: Sequence[_Step]) -> _Step:
    def walk(here: _Content, rows: _Ints, at: _Ints) -> _Ints:
        for step in steps:
            at = step(here, rows, at)
        return at

    return walk


def _optional(kind: AvroType) -> _Step:
    inner, null = nullable(kind)
    if null is None:
        return _odd
    step = _step(inner)

    def walk(here: _Content, rows: _Ints, at: _Ints) -> _Ints:
        branch = here.bytes[at]
        there = branch == (1 - null) << 1
        here.doubt(rows, ~there & (branch != null << 1))
        at = here.clipped(at + 1)
        if there.all():
            return step(here, rows, at)
        if there.any():
            at[there] = step(here, rows[there], at[there])
        return at

    return walk


def _array(item: AvroType) -> _Step:
    """One run of items, and a zero behind it, or only that zero."""
    inner = [field["type"] for field in item["fields"]] if type_name(item) == "record" else [item]
    numbers = len(inner) if all(type_name(each) in _INTEGERS for each in inner) else 0
    step = _step(item)

    def walk(here: _Content, rows: _Ints, at: _Ints) -> _Ints:
        count, at = here.number(rows, at)
        wrong = (count < 0) | (count > _MOST_ITEMS)
        here.doubt(rows, wrong)
        count[wrong] = 0
        some = count > 0
        if numbers:
            at = np.where(some, here.behind_numbers(at, np.maximum(count, 1) * numbers), at)
        else:
            for turn in range(int(count.max(initial=0))):
                more = count > turn
                if more.all():
                    at = step(here, rows, at)
                else:
                    at[more] = step(here, rows[more], at[more])
        here.doubt(rows, some & (here.bytes[at] != 0))
        return here.clipped(at + some)

    return walk
