from __future__ import annotations

import pytest

from compaction_pipeline.core.errors import ConfigError
from compaction_pipeline.core.tables.catalog_properties import check_catalog_properties, nearest_key, without_effect
from compaction_pipeline.core.tables.property_rules import FILTER_KEY, PROPERTIES


def test_every_bad_value_and_every_unknown_key_is_told_at_once() -> None:
    bad = {
        "type": "rest",
        "table.self-optimizing.quota": "lots",
        "table.self-optimizing.fragment-ratio": "1",
        "table.self-optimizing.qouta": "1",
        "table.write.target-file-size-bytes": "big",
        "self-optimizing.enabled": "true",
    }
    with pytest.raises(ConfigError) as told:
        check_catalog_properties("lake", bad)
    assert str(told.value) == (
        "catalog 'lake': 'self-optimizing.enabled' is a property of tables: write 'table.self-optimizing.enabled' to set it for all tables "
        "of the catalog; 'table.self-optimizing.fragment-ratio' is 1 but must be ≥ 2 and < 2^31; there is no property "
        "'table.self-optimizing.qouta'; do you mean 'table.self-optimizing.quota'?; 'table.self-optimizing.quota' is 'lots' but must be > "
        "0 and finite; 'table.write.target-file-size-bytes' is 'big' but must be ≥ 1 and ≤ 2^60; correct the properties of the catalog"
    )


@pytest.mark.parametrize("item", PROPERTIES, ids=lambda item: item.key)
def test_no_property_takes_a_text_that_breaks_its_rule(item: object) -> None:
    key = f"table.{item.key}"  # type: ignore[attr-defined]
    # Only the columns of a table tell whether a text is no filter.
    bad = " " if key == f"table.{FILTER_KEY}" else "no such value, // at all"
    with pytest.raises(ConfigError, match="but must be"):
        check_catalog_properties("lake", {key: bad})


@pytest.mark.parametrize(
    ("key", "nearest"),
    [
        ("self-optimizing.minor.trigger.filecount", "self-optimizing.minor.trigger.file-count"),
        ("self-optimising.quota", "self-optimizing.quota"),
        ("compaction.task.mem", "compaction.task.memory"),
        ("write.target-file-size", "write.target-file-size-bytes"),
        ("write.parquet.compression-codec", None),
        ("s3.endpoint", None),
    ],
)
def test_a_mistyped_key_is_told_the_nearest_one(key: str, nearest: str | None) -> None:
    assert nearest_key(key) == nearest


def test_right_properties_and_those_of_pyiceberg_pass() -> None:
    right = {"uri": "http://x", "s3.endpoint": "http://y", "header.X-Table": "1", "table.self-optimizing.quota": "2"}
    check_catalog_properties("lake", right)
    check_catalog_properties("lake", {"table.comment": "ours"})
    assert without_effect(right) == ()


def test_what_a_catalog_cannot_set_is_told() -> None:
    told = without_effect(
        {
            "table.compaction.delta-rewrite.enabled": "true",
            "table.self-optimizing.max-retry": "3",
            "table.write.parquet.compression-codec": "zstd",
            "table.self-optimizing.quota": "2",
        }
    )
    assert told == (
        "'table.compaction.delta-rewrite.enabled' has no effect: only a table itself can set it",
        "'table.self-optimizing.max-retry' has no effect: this program does not follow this property of Amoro; "
        "`self-optimizing.execute.num-retries` says how often a task is tried again",
        "'table.write.parquet.compression-codec' has no effect: of its catalog's properties a table inherits only those that begin with "
        "'self-optimizing.' or 'compaction.', and 'write.target-file-size-bytes'",
    )
