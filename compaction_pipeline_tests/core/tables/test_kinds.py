"""Which tables belong to a keyed table, and as what."""

from __future__ import annotations

import pytest

from compaction_pipeline.core.errors import TableRefused
from compaction_pipeline.core.tables.kinds import (
    BaseStore,
    base_store,
    change_stores_beside,
    is_change_store,
    is_store,
    refusal_of_store,
    says_no_key,
)

BASE = {
    "table-format": "MIXED_ICEBERG",
    "mixed-format.table-store": "base",
    "mixed-format.primary-key-fields": "region,id",
    "mixed-format.change.identifier": "db.t_change_",
}
CHANGE = {"table-format": "MIXED_ICEBERG", "mixed-format.table-store": "change", "mixed-format.primary-key-fields": "region,id"}


def without(key: str) -> dict[str, str]:
    return {name: value for name, value in BASE.items() if name != key}


def test_a_base_store_names_its_key_in_order_and_its_change_store() -> None:
    assert base_store("lake.db.t", BASE) == BaseStore(("region", "id"), ("db", "t_change_"))
    # Amoro's own catalog uses another name for the change store; the property alone counts.
    assert base_store("t", {**BASE, "mixed-format.change.identifier": "a.b.t@change"}).change_store == ("a", "b", "t@change")


def test_amoro_reads_the_kinds_in_any_case() -> None:
    shouted = {**BASE, "table-format": "mixed_iceberg", "mixed-format.table-store": "BASE"}
    assert base_store("t", shouted) == base_store("t", BASE)
    assert is_change_store({"mixed-format.table-store": "CHANGE"})


def test_a_change_store_alone_is_no_table_and_says_so() -> None:
    with pytest.raises(TableRefused, match=r"is the change store of a keyed table .* name the base store instead"):
        base_store("lake.db.t_change_", CHANGE)
    assert "deleted rows would come back" in (refusal_of_store(CHANGE) or "")


@pytest.mark.parametrize(
    ("properties", "message"),
    [
        ({}, "is not a keyed table"),
        (without("table-format"), "is not a keyed table"),
        (without("mixed-format.table-store"), "is not a keyed table"),
        (without("mixed-format.primary-key-fields"), "has no primary key"),
        (without("mixed-format.change.identifier"), "names no change store"),
        ({**BASE, "mixed-format.change.identifier": "t_change_"}, "names no change store"),
        ({**BASE, "mixed-format.change.identifier": "db."}, "names no change store"),
    ],
)
def test_a_table_that_is_not_keyed_says_what_is_missing(properties: dict[str, str], message: str) -> None:
    with pytest.raises(TableRefused, match=message):
        base_store("lake.db.t", properties)


@pytest.mark.parametrize("properties", [BASE, CHANGE, {"table-format": "MIXED_HIVE"}, {"mixed-format.table-store": "change"}])
def test_no_store_is_a_plain_table(properties: dict[str, str]) -> None:
    assert is_store(properties)
    assert refusal_of_store(properties) is not None


def test_a_plain_table_is_no_store() -> None:
    assert not is_store({"table-format": "ICEBERG"})
    assert refusal_of_store({}) is None


WITHOUT_KEY = {"table-format": "MIXED_ICEBERG", "mixed-format.table-store": "base"}


def test_a_mixed_iceberg_table_without_a_key_says_so() -> None:
    for properties in (WITHOUT_KEY, {"table-format": "mixed_iceberg", "mixed-format.table-store": "BASE"}):
        assert says_no_key(properties)
        assert refusal_of_store(properties) is None


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        ({"table-format": "MIXED_HIVE"}, "'table-format' is 'MIXED_HIVE'"),
        ({"table-format": "ICEBERG"}, "'table-format' is 'ICEBERG'"),
        ({"table-format": None}, "'mixed-format.table-store' is 'base'"),
        ({"mixed-format.table-store": None}, "'table-format' is 'MIXED_ICEBERG'"),
        ({"mixed-format.table-store": "change"}, "'mixed-format.table-store' is 'change'"),
        ({"mixed-format.table-store": "log"}, "'mixed-format.table-store' is 'log'"),
        ({"mixed-format.primary-key-fields": "id"}, "'mixed-format.primary-key-fields' is 'id'"),
        ({"mixed-format.primary-key-fields": ""}, "'mixed-format.primary-key-fields' is ''"),
        ({"mixed-format.change.identifier": "db.t_change_"}, "'mixed-format.change.identifier' is 'db.t_change_'"),
        ({"mixed-format.change.identifier": ""}, "'mixed-format.change.identifier' is ''"),
    ],
)
def test_anything_else_stays_refused_and_names_its_property(changed: dict[str, str | None], named: str) -> None:
    properties = {key: value for key, value in {**WITHOUT_KEY, **changed}.items() if value is not None}
    assert not says_no_key(properties)
    assert (refusal_of_store(properties) or "").startswith(named)


def test_a_change_store_is_known_by_its_name_whatever_the_separator_and_the_capitals_are() -> None:
    beside = ["t", "t_change_", "t@change@", "T__CHANGE__", "t2_change_", "t_change", "t_changed_", "t_change_log", "tchange"]
    assert change_stores_beside("t", beside) == ("T__CHANGE__", "t@change@", "t_change_")
    # A dot in a name is no pattern.
    assert change_stores_beside("a.b", ["axb_change_", "a.b_change_"]) == ("a.b_change_",)
