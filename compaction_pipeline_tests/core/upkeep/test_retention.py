"""The properties that say how long snapshots stay."""

from __future__ import annotations

from datetime import timedelta

import pytest

from compaction_pipeline.core.errors import ConfigError
from compaction_pipeline.core.tables.property_rules import NEVER
from compaction_pipeline.core.tables.table import TableIdentifier
from compaction_pipeline.core.upkeep.retention import Retention, resolve_retention

TABLE = TableIdentifier("lake", ("shop",), "orders")


def test_a_table_that_says_nothing_has_the_defaults_of_iceberg() -> None:
    assert resolve_retention({}, {}) == Retention()
    assert (Retention().age(), Retention().count(), Retention().max_ref_age) == (timedelta(days=5), 1, NEVER)


@pytest.mark.parametrize(
    ("text", "duration"),
    [
        ("720min", timedelta(hours=12)),
        ("10080 min", timedelta(days=7)),
        ("3d", timedelta(days=3)),
        ("2 Days", timedelta(days=2)),
        ("36h", timedelta(hours=36)),
        ("90 seconds", timedelta(seconds=90)),
        ("5 m", timedelta(minutes=5)),
        ("1500", timedelta(milliseconds=1500)),
        ("7 ms", timedelta(milliseconds=7)),
        ("999999999999999999d", NEVER),
    ],
)
def test_durations_are_read_as_amoro_writes_them(text: str, duration: timedelta) -> None:
    assert resolve_retention({"snapshot.keep.duration": text}, {}).amoro_age == duration


@pytest.mark.parametrize("text", ["", "min", "1.5h", "-1d", "12 parsecs", "1d 2h", "٣d"])
def test_other_durations_are_refused_with_the_key_and_the_rule(text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        resolve_retention({"snapshot.keep.duration": text}, {}, TABLE)
    assert "lake.shop.orders: 'snapshot.keep.duration' is" in str(caught.value)
    assert "must be a whole number with one of the units ms, s, min, h and d" in str(caught.value)
    assert "ALTER TABLE shop.orders SET TBLPROPERTIES" in str(caught.value)


def test_the_longer_of_icebergs_and_amoros_properties_wins() -> None:
    both = resolve_retention(
        {
            "history.expire.max-snapshot-age-ms": "3600000",
            "history.expire.min-snapshots-to-keep": "3",
            "snapshot.keep.duration": "2h",
            "snapshot.keep.min-count": "2",
        },
        {},
    )
    assert (both.age(), both.count()) == (timedelta(hours=2), 3)
    assert (both.age(timedelta(days=1)), both.age(timedelta(minutes=1)), both.count(5), both.count(1)) == (
        timedelta(days=1), timedelta(hours=2), 5, 2,
    )  # fmt: skip


def test_a_catalog_says_it_for_its_tables_and_the_table_first() -> None:
    catalog = {"table.history.expire.min-snapshots-to-keep": "9", "table.compaction.writer-keys": "a, b"}
    assert resolve_retention({}, catalog).writer_keys == ("a", "b")
    assert resolve_retention({}, catalog).count() == 9
    assert resolve_retention({"history.expire.min-snapshots-to-keep": "2"}, catalog).count() == 2


@pytest.mark.parametrize(
    "key", ["history.expire.max-snapshot-age-ms", "history.expire.min-snapshots-to-keep", "history.expire.max-ref-age-ms"]
)
def test_a_bad_value_of_iceberg_is_refused(key: str) -> None:
    for text in ("many", "-1", "1.5"):
        with pytest.raises(ConfigError, match=key):
            resolve_retention({key: text}, {})


def test_many_people_write_long_max_value_for_never() -> None:
    assert resolve_retention({"history.expire.max-snapshot-age-ms": str(2**63 - 1)}, {}).age() == NEVER
