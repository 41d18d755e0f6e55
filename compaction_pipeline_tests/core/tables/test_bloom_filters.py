"""Which bloom filters a table's properties ask for, and which of these properties have no effect."""

from __future__ import annotations

import json

from compaction_pipeline.core.tables.bloom_filters import BloomFilter, bloom_filters, not_honoured

_KEY = "write.parquet.bloom-filter-"
_SCHEMA = json.dumps(
    {
        "type": "struct",
        "fields": [
            {"id": 1, "name": "id", "type": "long"},
            {"id": 2, "name": "ok", "type": "boolean"},
            {"id": 3, "name": "s", "type": {"type": "struct", "fields": [{"id": 4, "name": "a", "type": "string"}]}},
            {"id": 5, "name": "l", "type": {"type": "list", "element-id": 6, "element": "int"}},
            {"id": 7, "name": "m", "type": {"type": "map", "key-id": 8, "key": "string", "value-id": 9, "value": "double"}},
        ],
    }
)


def test_only_columns_that_are_named_get_a_filter_and_no_boolean_does() -> None:
    asked = {f"{_KEY}enabled.column.id": "TRUE", f"{_KEY}enabled.column.name": "false", f"{_KEY}enabled.column.ok": "true"}
    assert set(bloom_filters(asked, {"id": "long", "name": "string", "ok": "boolean"})) == {"id"}
    assert bloom_filters({f"{_KEY}max-bytes": "nonsense"}, {"id": "long"}) == {}


def test_a_filter_is_made_for_at_most_the_values_that_fit_into_its_bytes() -> None:
    asked = {f"{_KEY}enabled.column.id": "true", f"{_KEY}fpp.column.id": "0.05", f"{_KEY}ndv.column.id": "100"}
    assert bloom_filters(asked, {"id": "long"}) == {"id": BloomFilter(100, 0.05)}
    small = bloom_filters({**asked, f"{_KEY}max-bytes": "64"}, {"id": "long"})["id"]
    # 64 bytes have 512 bits. With 5 % of false positives a value takes about 7 bits.
    assert 60 < small.values < 90


def test_properties_without_effect_are_named_with_the_reason() -> None:
    honoured = {f"{_KEY}enabled.column.{name}": "true" for name in ("id", "s.a", "l.element", "m.key", "m.value")}
    assert not_honoured({**honoured, f"{_KEY}max-bytes": "4096", "other": "1"}, _SCHEMA) == {}
    found = not_honoured(
        {
            f"{_KEY}enabled.column.ok": "true",
            f"{_KEY}enabled.column.s": "true",
            f"{_KEY}fpp.column.typo": "0.1",
            f"{_KEY}adaptive-enabled": "true",
        },
        _SCHEMA,
    )
    assert {key.removeprefix(_KEY): reason.partition(":")[0] for key, reason in found.items()} == {
        "adaptive-enabled": "not honoured",
        "enabled.column.ok": "not honoured",
        "enabled.column.s": "the table has no column of this name with a primitive type",
        "fpp.column.typo": "the table has no column of this name with a primitive type",
    }


def test_a_property_that_stops_every_merge_is_named() -> None:
    [(key, reason)] = not_honoured({f"{_KEY}enabled.column.id": "true", f"{_KEY}fpp.column.id": "2"}, _SCHEMA).items()
    assert key == f"{_KEY}*"
    assert f"'{_KEY}fpp.column.id' is '2' but must be > 0 and < 1" in reason
