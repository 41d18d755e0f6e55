"""A shape finds the places that a walk from value to value finds, whatever the bytes are."""

from __future__ import annotations

import io
import random
from typing import Any

import fastavro
import pytest

from compaction_pipeline.formats.avro.shapes import _OFTEN, Shapes
from compaction_pipeline.formats.avro.values import AvroType, DamagedAvro, skipper

_PAIRS = {"type": "record", "name": "k", "fields": [{"name": "key", "type": "int"}, {"name": "value", "type": "long"}]}
_BOUNDS = {"type": "record", "name": "b", "fields": [{"name": "key", "type": "int"}, {"name": "value", "type": "bytes"}]}
_PARTITION = {
    "type": "record",
    "name": "p",
    "fields": [{"name": "a", "type": ["null", "int"]}, {"name": "b", "type": {"type": "fixed", "name": "f", "size": 3}}],
}
_KINDS: list[AvroType] = [
    "string",
    _PARTITION,
    "long",
    ["null", {"type": "array", "items": _PAIRS}],
    [{"type": "array", "items": _BOUNDS}, "null"],
    ["null", "bytes"],
    {"type": "array", "items": "int"},
    ["null", "double"],
    "boolean",
    ["null", "string"],
]
_STOPS = (0, 1, 3, 3, 5, len(_KINDS))
_PARSED = [fastavro.parse_schema(kind) for kind in _KINDS]


def _values(drawn: random.Random, columns: int) -> list[Any]:
    return [
        drawn.choice(["PARQUET", "", "AVRO"]),
        {"a": drawn.choice([None, 7, -300]), "b": drawn.randbytes(3)},
        drawn.randrange(1 << drawn.randrange(1, 60)),
        [{"key": key, "value": drawn.randrange(1 << drawn.randrange(1, 60))} for key in range(columns)] or None,
        [{"key": key, "value": drawn.randbytes(drawn.choice([4, 8, drawn.randrange(64)]))} for key in range(columns)] or None,
        drawn.choice([None, b"", b"\x00\x02"]),
        [drawn.randrange(1 << 30) for _ in range(columns % 3)],
        drawn.choice([None, 0.0, 1e300]),
        drawn.choice([True, False]),
        drawn.choice([None, "s3://b/file"]),
    ]


def _bytes(values: list[Any]) -> bytes:
    out = io.BytesIO()
    for kind, value in zip(_PARSED, values, strict=True):
        fastavro.schemaless_writer(out, kind, value)
    return out.getvalue()


def _walked(content: bytes, position: int) -> list[int] | None:
    """Where a walk finds the stops; None when it finds that the bytes are damaged."""
    starts = [position]
    try:
        for kind in _KINDS:
            starts.append(skipper(kind)(content, starts[-1]))
    except (DamagedAvro, IndexError):
        return None
    return [starts[stop] for stop in _STOPS]


def _found(shapes: Shapes, content: bytes, position: int) -> list[int] | None:
    try:
        return [place for place, _ in shapes.places(content, position)]
    except (DamagedAvro, IndexError):
        return None


@pytest.mark.parametrize("columns", [(0,), (1,), (9,), (63,), (2, 3), (0, 5, 9, 2, 3, 4), (70,)])
def test_shapes_find_what_a_walk_finds(columns: tuple[int, ...]) -> None:
    drawn, shapes = random.Random(repr(columns)), Shapes(_KINDS, _STOPS)
    for number in range(_OFTEN * len(columns) * 3):
        content = b"before" + _bytes(_values(drawn, columns[number % len(columns)])) + b"behind"
        assert _found(shapes, content, 6) == _walked(content, 6)
    # A list of 70 bounds is not matched at once.
    assert bool(shapes._known) == (columns != (70,))


def test_shapes_find_what_a_walk_finds_in_bytes_that_were_overwritten_or_cut() -> None:
    drawn, shapes = random.Random(1), Shapes(_KINDS, _STOPS)
    for _ in range(_OFTEN):
        shapes.places(_bytes(_values(drawn, 3)), 0)
    assert shapes._known
    matched = 0
    for _ in range(3000):
        content = bytearray(_bytes(_values(drawn, 3)))
        content[drawn.randrange(len(content))] = drawn.randrange(256)
        damaged = bytes(content[: drawn.choice([len(content), drawn.randrange(len(content))])])
        walked = _walked(damaged, 0)
        # Behind the end of bytes that were cut, a walk may find places, and a shape finds the same by walking.
        assert _found(shapes, damaged, 0) == walked
        matched += any(match(damaged, 0) for match in shapes._known)
    assert matched > 500
