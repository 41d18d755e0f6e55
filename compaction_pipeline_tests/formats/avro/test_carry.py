"""Values that are carried from one Avro schema to another keep their bytes, or else their value, or are refused. fastavro is the judge."""

from __future__ import annotations

import io
import struct
from typing import Any

import fastavro
import pytest
from hypothesis import given
from hypothesis import strategies as st

from compaction_pipeline.formats.avro.carry import carrier, encoded
from compaction_pipeline.formats.avro.values import UnknownAvro, long_bytes, named_once, plain_schema, read_long, skipper

_LONGS = st.integers(-(2**63), 2**63 - 1)


def _record(*fields: tuple[int, Any]) -> dict[str, Any]:
    return {"type": "record", "name": "r", "fields": [{"name": f"n{number}", "type": kind, "field-id": number} for number, kind in fields]}


def _pairs(value: Any) -> dict[str, Any]:
    fields = [{"name": "key", "type": "int", "field-id": 1}, {"name": "value", "type": value, "field-id": 2}]
    return {"type": "array", "logicalType": "map", "items": {"type": "record", "name": "pair", "fields": fields}}


def _written(schema: Any, value: Any) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), value)
    return out.getvalue()


def _read(schema: Any, content: bytes) -> Any:
    stream = io.BytesIO(content)
    value = fastavro.schemaless_reader(stream, fastavro.parse_schema(schema), None)
    assert stream.read() == b""
    return value


def _carried(source: Any, target: Any, content: bytes) -> bytes:
    plain = plain_schema(source)
    assert skipper(plain)(content, 0) == len(content)
    return carrier(plain, plain_schema(target))(content, 0, len(content))


@given(_LONGS)
def test_numbers_are_avros(number: int) -> None:
    assert long_bytes(number) == _written("long", number)
    assert read_long(long_bytes(number), 0) == (number, len(long_bytes(number)))


_TYPES: list[tuple[Any, st.SearchStrategy[Any]]] = [
    ("boolean", st.booleans()),
    ("int", st.integers(-(2**31), 2**31 - 1)),
    ("long", _LONGS),
    ("float", st.floats(width=32)),
    ("double", st.floats()),
    ("bytes", st.binary()),
    ("string", st.text(st.characters(exclude_categories=("Cs",)))),
    ({"type": "fixed", "name": "sixteen", "size": 16}, st.binary(min_size=16, max_size=16)),
    ({"type": "array", "items": "long"}, st.lists(_LONGS)),
    (_pairs("long"), st.lists(st.fixed_dictionaries({"key": st.integers(0, 2**31 - 1), "value": _LONGS}))),
    (_pairs("bytes"), st.lists(st.fixed_dictionaries({"key": st.integers(0, 2**31 - 1), "value": st.binary()}))),
    ({"type": "map", "values": "double"}, st.dictionaries(st.text(st.characters(exclude_categories=("Cs",))), st.floats())),
]


@pytest.mark.parametrize(("kind", "values"), _TYPES, ids=lambda part: part if isinstance(part, str) else None)
def test_bytes_of_every_type_are_copied(kind: Any, values: st.SearchStrategy[Any]) -> None:
    optional = {**_record((7, "long"), (8, ["null", kind]), (9, "string"))}
    turned = {**_record((9, "string"), (8, [kind, "null"]), (10, ["null", "int"]))}

    @given(st.one_of(st.none(), values))
    def check(value: Any) -> None:
        content = _written(optional, {"n7": -1, "n8": value, "n9": "ä"})
        carried = _carried(optional, turned, content)
        # The bytes must equal those that fastavro writes for the same value in the other schema.
        assert carried == _written(turned, {"n9": "ä", "n8": value, "n10": None})

    check()


def test_runs_of_another_writer_stay_as_they_are() -> None:
    kind = {"type": "array", "items": "long"}
    # There are two runs, of 2 items and of 1 item. Each begins with its size in bytes.
    content = b"\x03\x04\x02\x04\x01\x02\x06\x00"
    assert _read(kind, content) == [1, 2, 3]
    assert _carried(kind, kind, content) == content


def test_items_that_may_be_null_become_items_that_may_not() -> None:
    source = {"type": "array", "items": ["null", "int"]}
    target = {"type": "array", "items": "int"}
    assert _read(target, _carried(source, target, _written(source, [1, -5, 300]))) == [1, -5, 300]
    with pytest.raises(UnknownAvro, match="is null"):
        _carried(source, target, _written(source, [1, None]))


@given(st.floats(width=32))
def test_a_float_whose_column_became_a_double_keeps_its_value(number: float) -> None:
    carried = _carried(["null", "float"], ["null", "double"], _written(["null", "float"], number))
    assert struct.pack("<d", _read(["null", "double"], carried)) == struct.pack("<d", number)


@given(st.integers(-(10**9) + 1, 10**9 - 1))
def test_a_decimal_whose_column_became_wider_keeps_its_value(unscaled: int) -> None:
    def decimal(size: int, precision: int, scale: int = 2) -> Any:
        return {"type": "fixed", "name": "d", "size": size, "logicalType": "decimal", "precision": precision, "scale": scale}

    content = unscaled.to_bytes(4, "big", signed=True)
    assert int.from_bytes(_carried(decimal(4, 9), decimal(16, 38), content), "big", signed=True) == unscaled
    as_bytes = {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}
    assert int.from_bytes(_carried(as_bytes, decimal(16, 38), long_bytes(4) + content), "big", signed=True) == unscaled
    with pytest.raises(UnknownAvro, match="decimal"):
        _carried(decimal(4, 9), decimal(4, 9, 3), content)


@pytest.mark.parametrize(
    ("source", "target"),
    [
        ("long", "double"),
        ("string", "bytes"),
        ({"type": "int", "logicalType": "date"}, {"type": "long", "logicalType": "timestamp-micros"}),
        ({"type": "fixed", "name": "f", "size": 4}, {"type": "fixed", "name": "f", "size": 8}),
    ],
)
def test_a_value_of_another_type_is_refused(source: Any, target: Any) -> None:
    with pytest.raises(UnknownAvro, match="in its manifest but"):
        carrier(plain_schema(source), plain_schema(target))


def test_types_that_are_named_again_are_found() -> None:
    kind = {"type": "fixed", "name": "sixteen", "size": 16}
    schema = _record((1, kind), (2, ["null", "sixteen"]))
    content = _written(schema, {"n1": bytes(16), "n2": b"x" * 16})
    assert _carried(schema, schema, content) == content


def test_no_two_types_of_a_schema_have_one_name() -> None:
    kind = {"type": "fixed", "name": "decimal_9_2", "size": 4}
    schema = _record((1, kind), (2, ["null", dict(kind)]), (3, dict(kind)))
    fastavro.parse_schema(named_once(schema))
    with pytest.raises(fastavro.schema.SchemaParseException):
        fastavro.parse_schema(schema)


@given(st.recursive(st.booleans() | _LONGS, lambda inner: st.lists(inner, max_size=3), max_leaves=5))
def test_encoding_agrees_with_fastavro(value: Any) -> None:
    def kind_of(each: Any) -> Any:
        if isinstance(each, bool):
            return "boolean"
        return "long" if isinstance(each, int) else {"type": "array", "items": kind_of(each[0]) if each else "long"}

    def uniform(each: Any) -> bool:
        return not isinstance(each, list) or (len({repr(kind_of(one)) for one in each}) <= 1 and all(map(uniform, each)))

    if uniform(value):
        assert encoded(plain_schema(kind_of(value)), value) == _written(kind_of(value), value)
