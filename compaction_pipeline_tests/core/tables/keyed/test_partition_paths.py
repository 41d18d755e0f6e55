"""Partitions of keyed tables as texts, as Iceberg's Java library writes them."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compaction_pipeline.core.errors import TableRefused
from compaction_pipeline.core.tables.calendar import date_text, moment_text
from compaction_pipeline.core.tables.keyed.partition_paths import PathField, key_of, key_of_path, path_fields, path_of
from compaction_pipeline.core.tables.node import PartitionValue


def path(value: Any, transform: str = "identity", kind: str = "string", name: str = "p") -> str:
    return path_of((PartitionValue(name, kind, value),), (PathField(name, transform, kind),))


@pytest.mark.parametrize(
    ("value", "transform", "kind", "text"),
    [
        ("eu", "identity", "string", "p=eu"),
        ("l'été", "identity", "string", "p=l%27%C3%A9t%C3%A9"),
        ("x y", "identity", "string", "p=x+y"),
        ("a/b=c~*", "identity", "string", "p=a%2Fb%3Dc%7E*"),
        (None, "identity", "string", "p=null"),
        ("2026-01-15", "identity", "date", "p=2026-01-15"),
        ("2026-01-15", "day", "date", "p=2026-01-15"),
        (672, "month", "int", "p=2026-01"),
        (-1, "month", "int", "p=1969-12"),
        (56, "year", "int", "p=2026"),
        (491_000, "hour", "int", "p=2026-01-05-08"),
        (3, "bucket[16]", "int", "p=3"),
        (True, "identity", "boolean", "p=true"),
        ("12.30", "identity", "decimal(4, 2)", "p=12.30"),
        ("2026-01-15T10:00:00+00:00", "identity", "timestamptz", "p=2026-01-15T10%3A00%3A00Z"),
        ("0102ff", "identity", "binary", "p=AQL%2F"),
    ],
)
def test_a_partition_is_written_as_java_writes_it(value: Any, transform: str, kind: str, text: str) -> None:
    assert path(value, transform, kind) == text


@pytest.mark.parametrize(
    ("one", "other", "transform", "kind"),
    [
        ("p=2026-01-15T10%3A00", "p=2026-01-15T10%3A00%3A00", "identity", "timestamp"),
        ("p=2026-01-15T10%3A00%3A00.500Z", "p=2026-01-15T10%3A00%3A00.500000%2B00%3A00", "identity", "timestamptz"),
        ("p=10%3A00", "p=10%3A00%3A00", "identity", "time"),
        ("p=a~b", "p=a%7Eb", "identity", "string"),
        ("p=null", "p=__HIVE_DEFAULT_PARTITION__", "identity", "string"),
        ("p=1.0E10", "p=10000000000.0", "identity", "double"),
    ],
)
def test_texts_of_one_partition_have_one_key(one: str, other: str, transform: str, kind: str) -> None:
    fields = (PathField("p", transform, kind),)
    assert key_of_path(one, fields) == key_of_path(other, fields)


def test_null_and_the_text_null_are_one_partition() -> None:
    fields = (PathField("p", "identity", "string"),)
    assert key_of((PartitionValue("p", "string", None),), fields) == key_of((PartitionValue("p", "string", "null"),), fields)


texts = st.tuples(st.just("identity"), st.just("string"), st.text(max_size=8) | st.sampled_from(["null", "/", "=", "%", "+", "~", "*", ""]))
values = st.one_of(
    texts,
    st.tuples(st.just("identity"), st.just("int"), st.integers(-(2**31), 2**31 - 1)),
    st.tuples(st.just("identity"), st.just("date"), st.integers(-800_000, 3_000_000).map(date_text)),
    st.tuples(st.just("identity"), st.just("timestamp"), st.integers(-(10**16), 10**17).map(lambda each: moment_text(each, utc=False))),
    st.tuples(st.just("identity"), st.just("timestamptz"), st.integers(-(10**16), 10**17).map(lambda each: moment_text(each, utc=True))),
    st.tuples(st.just("month"), st.just("int"), st.integers(-20_000, 90_000)),
    st.tuples(st.just("year"), st.just("int"), st.integers(-1_900, 8_000)),
    st.tuples(st.just("hour"), st.just("int"), st.integers(-10_000_000, 70_000_000)),
    st.tuples(st.just("identity"), st.just("binary"), st.binary(max_size=6).map(bytes.hex)),
)


@given(st.lists(st.tuples(values, values), min_size=1, max_size=3))
def test_two_partitions_have_one_key_exactly_when_their_texts_are_equal(pairs: list[tuple[Any, Any]]) -> None:
    same_kind = [(one, other if other[:2] == one[:2] else one) for one, other in pairs]
    fields = tuple(PathField(f"f{number}=/", one[0], one[1]) for number, (one, _) in enumerate(same_kind))
    first, second = (
        tuple(PartitionValue(field.name, field.type, pair[place][2]) for field, pair in zip(fields, same_kind, strict=True))
        for place in (0, 1)
    )
    assert (key_of(first, fields) == key_of(second, fields)) == (path_of(first, fields) == path_of(second, fields))


def test_an_unpartitioned_table_has_one_partition() -> None:
    assert path_of((), ()) == ""
    assert key_of((), ()) == key_of_path("", ()) == ()
    void = (PathField("p", "void", "string"),)
    assert key_of((PartitionValue("p", "string", None),), void) == key_of_path("", void) == ()


def test_the_fields_come_from_the_spec() -> None:
    spec = '{"spec-id": 3, "fields": [{"source-id": 2, "field-id": 1000, "transform": "day", "name": "dt"}]}'
    assert path_fields(spec, ["date"]) == (PathField("dt", "day", "date"),)


@pytest.mark.parametrize("text", ["", "q=1", "p", "p=1/q=2", "p=one", "p=1.5"])
def test_a_text_that_is_no_partition_of_the_spec_is_refused(text: str) -> None:
    with pytest.raises(TableRefused, match="which is not a partition of its spec"):
        key_of_path(text, (PathField("p", "identity", "int"),))
