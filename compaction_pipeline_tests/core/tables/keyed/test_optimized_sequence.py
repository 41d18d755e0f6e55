"""The optimized sequence of each partition, as Amoro writes it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compaction_pipeline.core.errors import TableRefused
from compaction_pipeline.core.tables.keyed.optimized_sequence import (
    OptimizedSequences,
    numbers_moved,
    numbers_of_blob,
    numbers_of_properties,
    payload_of,
    sequences_by_spec,
)
from compaction_pipeline.core.tables.keyed.partition_paths import PathField
from compaction_pipeline.core.tables.node import Partition, PartitionValue

REGION = (PathField("region", "identity", "string"),)


def sequences_of_blob(payload: bytes, fields: tuple[PathField, ...]) -> OptimizedSequences:
    return sequences_by_spec(numbers_of_blob(payload), {0: fields}, 0)


def sequences_of_properties(properties: dict[str, str], fields: tuple[PathField, ...]) -> OptimizedSequences:
    return sequences_by_spec(numbers_of_properties(properties), {0: fields}, 0)


def region(value: str | None) -> Partition:
    return (PartitionValue("region", "string", value),)


def test_the_blob_of_amoro_is_read() -> None:
    assert sequences_of_blob(b'{"":10}', ()).of(()) == 10
    found = sequences_of_blob(b'{"region=l%27%C3%A9t%C3%A9":7,"region=null":0}', REGION)
    assert (found.of(region("l'été")), found.of(region(None)), found.of(region("eu"))) == (7, 0, None)


@given(st.dictionaries(st.text(max_size=5), st.integers(0, 2**63 - 1), max_size=6))
def test_what_is_written_is_read_again(numbers: dict[str, int]) -> None:
    found = sequences_of_blob(payload_of(numbers_moved({}, {region(name): number for name, number in numbers.items()}, REGION)), REGION)
    assert {name: found.of(region(name)) for name in numbers} == numbers


def test_a_number_moves_in_place_of_the_one_with_another_text() -> None:
    before = {"region=a~b": 1, "region=other": 7}
    assert numbers_moved(before, {region("a~b"): 3}, REGION) == {"region=other": 7, "region=a%7Eb": 3}
    assert numbers_moved({"": 4}, {(): 9}, ()) == {"": 9}


def test_a_spec_of_void_fields_has_one_number_without_a_text() -> None:
    void = (PathField("region_null", "void", "string"),)
    assert numbers_moved({"region_null=null": 4}, {(PartitionValue("region_null", "string", None),): 9}, void) == {"": 9}


@pytest.mark.parametrize("payload", [b"", b"[]", b"[1]", b'{"region=eu":"7"}', b'{"region=eu":1.5}', b'{"region=eu":true}', b"\xff"])
def test_a_blob_that_cannot_be_read_is_refused(payload: bytes) -> None:
    with pytest.raises(TableRefused, match="which changes are already in the base store is unknown"):
        sequences_of_blob(payload, REGION)


def test_two_numbers_for_one_partition_are_refused() -> None:
    with pytest.raises(TableRefused, match="two numbers for the partition"):
        sequences_of_blob(b'{"region=a~b":1,"region=a%7Eb":2}', REGION)


def test_the_property_of_old_versions_is_read() -> None:
    text = '{"region=eu":{"max-txId":"12","base-op-time":"1700"},"region=us":{"base-op-time":"1700"}}'
    found = sequences_of_properties({"table.partition-properties": text}, REGION)
    assert (found.of(region("eu")), found.of(region("us"))) == (12, None)
    assert sequences_of_properties({}, REGION).of(region("eu")) is None


@pytest.mark.parametrize("text", ["{", "[]", '{"region=eu":7}', '{"region=eu":{"max-txId":"x"}}'])
def test_a_property_that_cannot_be_read_is_refused(text: str) -> None:
    with pytest.raises(TableRefused, match=r"'table\.partition-properties' of the base store cannot be read"):
        sequences_of_properties({"table.partition-properties": text}, REGION)


BY_DAY = (PathField("region", "identity", "string"), PathField("day", "day", "date"))
UNPARTITIONED: tuple[PathField, ...] = ()


def test_each_number_belongs_to_the_spec_whose_fields_it_names() -> None:
    numbers = {"": 3, "region=eu": 5, "region=eu/day=2026-01-15": 7}
    found = sequences_by_spec(numbers, {0: UNPARTITIONED, 1: REGION, 2: BY_DAY}, 2)
    day = (*region("eu"), PartitionValue("day", "date", "2026-01-15"))
    assert (found.of_spec(0).of(()), found.of_spec(1).of(region("eu")), found.of_spec(2).of(day), found.of(day)) == (3, 5, 7, 7)
    assert found.of_spec(1).of(region("us")) is None


def test_the_highest_number_is_that_of_all_partitions_and_specs() -> None:
    specs = {0: UNPARTITIONED, 1: REGION}
    assert sequences_by_spec({"": 9, "region=eu": 5, "region=us": 7}, specs, 1).highest == 9
    assert sequences_by_spec({"region=eu": 5, "region=us": 7}, {1: REGION}, 1).highest == 7
    assert sequences_by_spec({}, specs, 1).highest == 0


@pytest.mark.parametrize(("path", "specs"), [("day=2026-01-15", 0), ("region=eu", 2)])
def test_a_number_of_no_spec_or_of_several_is_refused(path: str, specs: int) -> None:
    bucket = (PathField("region", "bucket[4]", "int"),)
    with pytest.raises(TableRefused, match=f"which is a partition of {specs} of the partition specs 0, 1, 2"):
        sequences_by_spec({path: 1}, {0: UNPARTITIONED, 1: REGION, 2: bucket}, 1)
