"""A walk through many records at once finds what a walk from value to value finds in each, or says that the record is odd."""

from __future__ import annotations

import io
import random
from collections.abc import Sequence
from typing import Any

import fastavro
import pytest

from compaction_pipeline.formats.avro.records_at_once import RecordsAtOnce, Walked
from compaction_pipeline.formats.avro.values import AvroType, DamagedAvro, long_bytes, skipper

_PAIRS = {"type": "record", "name": "k", "fields": [{"name": "key", "type": "int"}, {"name": "value", "type": "long"}]}
_BOUNDS = {"type": "record", "name": "b", "fields": [{"name": "key", "type": "int"}, {"name": "value", "type": "bytes"}]}
_FIXED = {"type": "fixed", "name": "f", "size": 3}
_KINDS: dict[str, AvroType] = {
    "pairs": ["null", {"type": "array", "items": _PAIRS}],
    "bounds": [{"type": "array", "items": _BOUNDS}, "null"],
    "numbers": {"type": "array", "items": "int"},
    "texts": {"type": "array", "items": ["null", "string"]},
    "number": ["null", "long"],
    "double": ["double", "null"],
    "float": "float",
    "boolean": "boolean",
    "fixed": ["null", _FIXED],
    "any": ["null", "long", "string"],
    "map": {"type": "map", "values": "long"},
}
_USUAL = tuple(name for name in _KINDS if name not in ("any", "map"))


def _record(names: Sequence[str]) -> AvroType:
    inner = [{"name": "path", "field-id": 100, "type": "string"}, *({"name": name, "type": _KINDS[name]} for name in names)]
    file = {"type": "record", "name": "file", "fields": [*inner, {"name": "rows", "field-id": 103, "type": "long"}]}
    return {
        "type": "record",
        "name": "entry",
        "fields": [{"name": "status", "field-id": 0, "type": "int"}, {"name": "file", "field-id": 2, "type": file}],
    }


def _number(drawn: random.Random) -> int:
    return drawn.randrange(1 << drawn.randrange(1, 62)) * drawn.choice([1, 1, -1])


def _value(drawn: random.Random, columns: int) -> dict[str, Any]:
    several = range(drawn.choice([columns, columns, drawn.randrange(columns + 1)]))
    values = {
        "path": "s3://b/" + "ö" * drawn.choice([3, 3, drawn.randrange(200)]),
        "pairs": drawn.choice([None, [{"key": key, "value": _number(drawn)} for key in several]]),
        "bounds": drawn.choice([None, [{"key": key, "value": drawn.randbytes(drawn.choice([4, 8, 90]))} for key in several]]),
        "numbers": [_number(drawn) % (1 << 31) for _ in several],
        "texts": [drawn.choice([None, "", "x" * 70]) for _ in several],
        "number": drawn.choice([None, _number(drawn)]),
        "double": drawn.choice([None, 1e300]),
        "float": 0.5,
        "boolean": drawn.choice([True, False]),
        "fixed": drawn.choice([None, drawn.randbytes(3)]),
        "any": drawn.choice([None, 7, "seven"]),
        "map": {"a": 1},
        "rows": _number(drawn),
    }
    return {"status": drawn.randrange(3), "file": values}


def _bytes(schema: Any, value: Any) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, schema, value)
    return out.getvalue()


def _walk(record: AvroType, records: Sequence[bytes], behind: bytes = b"") -> tuple[Walked, list[int]]:
    """What the walk finds, and where each of these records ends."""
    ends = [sum(map(len, records[: number + 1])) for number in range(len(records))]
    return RecordsAtOnce(record, (100, 103)).walk(b"".join(records) + behind, [0, *ends[:-1]]), ends


@pytest.mark.parametrize("count", [1, 2, 300])
@pytest.mark.parametrize("columns", [0, 1, 8, 70])
def test_records_end_and_tell_what_their_writer_meant(columns: int, count: int) -> None:
    drawn, record = random.Random(columns + count), _record(_USUAL)
    schema = fastavro.parse_schema(record)
    values = [_value(drawn, columns) for _ in range(count)]
    walked, ends = _walk(record, [_bytes(schema, value) for value in values])
    assert walked.ends == ends
    assert not any(walked.odd)
    assert walked.told[100] == [value["file"]["path"].encode() for value in values]
    assert walked.told[103] == [value["file"]["rows"] for value in values]


@pytest.mark.parametrize("name", ["any", "map"])
def test_types_that_are_not_known_are_odd(name: str) -> None:
    drawn, record = random.Random(1), _record([name])
    schema = fastavro.parse_schema(record)
    walked, _ = _walk(record, [_bytes(schema, _value(drawn, 3)) for _ in range(5)])
    assert all(walked.odd)


_RUNS = {
    "two runs": long_bytes(1) + long_bytes(7) + long_bytes(1) + long_bytes(8) + b"\x00",
    "a run with its size": long_bytes(-2) + long_bytes(2) + long_bytes(7) + long_bytes(8) + b"\x00",
    "a run of very many": long_bytes(20_000) + long_bytes(7) * 20_000 + b"\x00",
}


@pytest.mark.parametrize("name", [*_RUNS])
def test_lists_in_other_runs_are_odd_and_the_records_beside_them_are_not(name: str) -> None:
    record = _record(["numbers"])
    one = long_bytes(1) + long_bytes(4) + b"path" + long_bytes(2) + long_bytes(7) + long_bytes(8) + b"\x00" + long_bytes(5)
    other = long_bytes(1) + long_bytes(4) + b"path" + _RUNS[name] + long_bytes(5)
    assert fastavro.schemaless_reader(io.BytesIO(other), fastavro.parse_schema(record), None)
    walked, ends = _walk(record, [one, other, one])
    assert walked.odd == [False, True, False]
    assert (walked.ends[0], walked.ends[2]) == (ends[0], ends[2])


def test_a_number_of_ten_bytes_is_odd() -> None:
    record = _record([])
    schema = fastavro.parse_schema(record)
    records = [_bytes(schema, {"status": 1, "file": {"path": "p", "rows": rows}}) for rows in (5, -(1 << 63), 6)]
    assert _walk(record, records)[0].odd == [False, True, False]


def test_records_that_were_overwritten_or_cut_are_odd_or_end_where_a_walk_ends() -> None:
    drawn, record = random.Random(1), _record(_USUAL)
    schema, skip = fastavro.parse_schema(record), skipper(record)
    odd = moved = 0
    for _ in range(3000):
        content = bytearray(_bytes(schema, _value(drawn, 3)))
        content[drawn.randrange(len(content))] = drawn.randrange(256)
        damaged = bytes(content[: drawn.choice([len(content), drawn.randrange(1, len(content))])])
        try:
            end: int | None = skip(damaged, 0)
        except (DamagedAvro, IndexError):
            end = None
        walked, _ = _walk(record, [damaged])
        if walked.odd[0]:
            odd += 1
        elif end is None or end > len(damaged):
            assert walked.ends[0] > len(damaged), "a value that was cut does not end with the bytes"
            moved += 1
        else:
            assert walked.ends[0] == end
    assert odd > 100
    assert moved > 100
