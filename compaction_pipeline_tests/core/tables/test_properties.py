"""Properties of tables: precedence, defaults, and the message of each rule."""

from __future__ import annotations

import itertools
import re
import sys
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compaction_pipeline.core.errors import ConfigError
from compaction_pipeline.core.tables.properties import TableProperties, asset_key_of, resolve_properties
from compaction_pipeline.core.tables.property_rules import AMORO_KEYS_NOT_HONOURED, ASSET_KEY, PROPERTIES
from compaction_pipeline.core.tables.table import TableIdentifier
from compaction_pipeline.settings import Settings
from compaction_pipeline_tests.written_pages import ROOT

NO_NUMBERS = st.sampled_from(["", " ", "x", "high", "never", "1h", "1g", "128MB", "1.5.0"])
NO_WHOLE_NUMBERS = NO_NUMBERS | st.sampled_from(["1.5", "nan", "inf"])
NEITHER_TRUE_NOR_FALSE = st.sampled_from(["", "yes", "1", "on"])
BLANK = st.sampled_from(["", " ", "  "])


def whole(least: int, most: int) -> tuple[st.SearchStrategy[str], st.SearchStrategy[str]]:
    """Good and bad texts of a property that must be a whole number from `least` to `most`."""
    beyond = st.sampled_from([least - 1, most + 1]) | st.integers(max_value=least - 1) | st.integers(min_value=most + 1)
    good = st.sampled_from([least, most]) | st.integers(least, most)
    return good.map(str), beyond.map(str) | NO_WHOLE_NUMBERS


def part(most: float) -> tuple[st.SearchStrategy[str], st.SearchStrategy[str]]:
    """Good and bad texts of a property that must be a finite number above 0, at most `most`."""
    beyond = st.sampled_from(["0", "-0.1", "-1", "nan", "inf", "-inf"])
    beyond |= st.floats(max_value=0).map(repr) | st.floats(min_value=most, exclude_min=True).map(repr)
    return st.floats(0, most, exclude_min=True).map(repr), beyond | NO_NUMBERS


SWITCH = (st.sampled_from(["true", "False", " TRUE "]), NEITHER_TRUE_NOR_FALSE)
BYTES, COUNT, TIME = whole(1, 2**60), whole(2, 2**31 - 1), whole(0, 2**63 - 1)
LARGEST = sys.float_info.max

WINDOW = (st.sampled_from(["22:00-06:00 UTC", "01:00–02:00 Europe/Berlin mon-fri"]), st.sampled_from(["22-06", "25:00-06:00 UTC"]))
DURATION = (st.sampled_from(["0", "5", "90min", "2 h", "1d", "10000ms"]), st.sampled_from(["-1", "1.5h", "soon", "", "h", "1w"]))

BOUNDS = {
    "compaction.full.when-ready": SWITCH,
    "compaction.major.cold-after": DURATION,
    "compaction.major.cold-at-most": DURATION,
    "compaction.full.window": WINDOW,
    "compaction.read-weight": part(LARGEST),
    "compaction.major.window": WINDOW,
    "self-optimizing.enabled": SWITCH,
    "compaction.enabled": SWITCH,
    "compaction.delta-rewrite.enabled": SWITCH,
    "self-optimizing.group": (st.sampled_from(["heavy", " light "]), BLANK),
    # Only the columns of a table tell whether another text is understood.
    "self-optimizing.filter": (st.just("day > '2026-01-01'"), BLANK),
    "self-optimizing.priority": whole(1 - 2**31, 2**31 - 1),
    "self-optimizing.target-size": BYTES,
    "self-optimizing.fragment-ratio": COUNT,
    "self-optimizing.min-target-size-ratio": part(1),
    "self-optimizing.minor.trigger.file-count": COUNT,
    "self-optimizing.minor.trigger.total-size": BYTES,
    "self-optimizing.minor.trigger.interval": TIME,
    "self-optimizing.min-plan-interval": TIME,
    "self-optimizing.major.trigger.duplicate-ratio": part(LARGEST),
    "self-optimizing.full.trigger.interval": (
        whole(-(2**63), 2**63 - 1)[0],
        st.integers(min_value=2**63).map(str) | NO_WHOLE_NUMBERS,
    ),
    "self-optimizing.full.rewrite-all-files": SWITCH,
    "self-optimizing.max-task-size-bytes": BYTES,
    "self-optimizing.max-file-count": whole(1, 2**31 - 1),
    "self-optimizing.execute.num-retries": whole(0, 1000),
    "self-optimizing.commit.interval": TIME,
    "compaction.task.memory": whole(128 << 20, 2**60),
    "compaction.respec.quiet-interval": TIME,
    "compaction.conversions.enabled": SWITCH,
    "compaction.catalog-may-roll-back": SWITCH,
    "self-optimizing.quota": part(LARGEST),
}
"""For each property: texts that keep its rule, and texts that break it."""


MISTAKES = {
    "compaction.full.when-ready": ["yes", ""],
    "compaction.major.cold-after": ["-1", "soon"],
    "compaction.major.cold-at-most": ["-1", "never"],
    "compaction.full.window": ["", "22:00-06:00", "22:00-24:00 UTC", "22:00-06:00 Mars/Base"],
    "compaction.major.window": ["night", "22:00-06:00 UTC someday"],
    "self-optimizing.enabled": ["yes", ""],
    "compaction.enabled": ["yes", ""],
    "compaction.delta-rewrite.enabled": ["yes", ""],
    "self-optimizing.group": ["", "  "],
    # Only the columns of a table tell whether another text is understood.
    "self-optimizing.filter": ["", " "],
    "self-optimizing.priority": ["high", "1.5", "2147483648"],
    "self-optimizing.target-size": ["0", "-1", "128MB", "nan", "9" * 23],
    "self-optimizing.fragment-ratio": ["1", "0", "2.5", "inf", "2147483648"],
    "self-optimizing.min-target-size-ratio": ["0", "1.1", "nan", "inf", "-1"],
    "self-optimizing.minor.trigger.file-count": ["1", "x", "2147483648"],
    "self-optimizing.minor.trigger.total-size": ["0", "nan", "9" * 23],
    "self-optimizing.minor.trigger.interval": ["-1", "1h", "9" * 40],
    "self-optimizing.min-plan-interval": ["-1", "inf"],
    "compaction.read-weight": ["0", "-1", "nan", "often"],
    "self-optimizing.major.trigger.duplicate-ratio": ["0", "-0.1", "nan", "inf"],
    "self-optimizing.full.trigger.interval": ["never", "nan", str(2**63)],
    "self-optimizing.full.rewrite-all-files": ["yes", ""],
    "self-optimizing.max-task-size-bytes": ["0", "x", "9" * 23],
    "self-optimizing.max-file-count": ["0", "x", "2147483648"],
    "self-optimizing.execute.num-retries": ["-1", "x", "1001"],
    "self-optimizing.commit.interval": ["-1", "x"],
    "compaction.task.memory": ["134217727", "1g", "9" * 23],
    "compaction.respec.quiet-interval": ["-1", "x"],
    "compaction.conversions.enabled": ["yes", ""],
    "compaction.catalog-may-roll-back": ["yes", ""],
    "self-optimizing.quota": ["0", "-1", "nan", "inf"],
}
"""Values that people write. Each of them is tried every time."""


def test_every_property_has_its_bounds_here() -> None:
    assert set(BOUNDS) == set(MISTAKES) == {item.key for item in PROPERTIES if item.stops}


@given(st.data())
def test_a_value_out_of_bounds_names_key_value_and_rule_and_each_other_value_is_taken(data: st.DataObject) -> None:
    for item in PROPERTIES:
        if not item.stops:
            continue
        good, bad = (data.draw(texts, label=item.key) for texts in BOUNDS[item.key])
        resolve_properties({item.key: good}, {})
        check_refused(item.key, bad)


def test_a_value_that_people_mistake_names_key_value_and_rule() -> None:
    for key, values in MISTAKES.items():
        for value in values:
            check_refused(key, value)


def check_refused(key: str, value: str) -> None:
    rule = next(item.rule.text for item in PROPERTIES if item.key == key)
    with pytest.raises(ConfigError) as raised:
        resolve_properties({key: value}, {})
    assert key in str(raised.value)
    assert value.strip() in str(raised.value)
    assert rule in str(raised.value)


def test_a_value_out_of_bounds_names_the_table_who_set_it_and_how_to_mend_it() -> None:
    key, orders = "self-optimizing.fragment-ratio", TableIdentifier("lake", ("shop",), "orders")
    rule = f"lake.shop.orders: '{key}' is 1 but must be ≥ 2 and < 2^31; "
    with pytest.raises(ConfigError) as of_table:
        resolve_properties({key: "1"}, {f"table.{key}": "4"}, orders)
    assert str(of_table.value) == f"{rule}the table sets it: ALTER TABLE shop.orders SET TBLPROPERTIES ('{key}' = '…')"
    with pytest.raises(ConfigError) as of_catalog:
        resolve_properties({}, {f"table.{key}": "1"}, orders)
    assert str(of_catalog.value) == (
        f"{rule}the catalog sets it for all its tables, by -p table.{key}=…: `catalog change lake -p table.{key}=…` with a right value"
    )


def test_the_table_outranks_the_catalog_and_the_catalog_the_default() -> None:
    catalog = {"table.self-optimizing.priority": "2", "table.self-optimizing.quota": "3", "self-optimizing.fragment-ratio": "4"}
    found = resolve_properties({"self-optimizing.priority": "1"}, catalog)
    assert (found.priority, found.quota, found.fragment_ratio) == (1, 3.0, 8)


def test_the_tables_write_target_is_the_target_where_nothing_else_is_set() -> None:
    assert resolve_properties({"write.target-file-size-bytes": "1000"}, {}).target_size_bytes == 1000
    both = {"write.target-file-size-bytes": "1000", "self-optimizing.target-size": "2000"}
    assert resolve_properties(both, {}).target_size_bytes == 2000
    assert (
        resolve_properties({"write.target-file-size-bytes": "1000"}, {"table.self-optimizing.target-size": "3000"}).target_size_bytes
        == 3000
    )


def test_the_minor_total_size_follows_the_target() -> None:
    assert resolve_properties({"self-optimizing.target-size": "5000"}, {}).minor_total_size_bytes == 5000


def test_written_defaults_are_the_defaults() -> None:
    texts = {item.key: item.default_text for item in PROPERTIES if item.default_text not in ("target-size", "none")}
    assert resolve_properties(texts, {}) == TableProperties() == resolve_properties({}, {})


def test_a_negative_full_interval_is_off() -> None:
    assert resolve_properties({"self-optimizing.full.trigger.interval": "-7"}, {}).full_interval is None
    assert resolve_properties({"self-optimizing.full.trigger.interval": "1000"}, {}).full_interval == timedelta(seconds=1)


@pytest.mark.parametrize("value", [str(2**63 - 1), str(10**15)])
def test_a_very_long_interval_counts_as_a_hundred_years(value: str) -> None:
    found = resolve_properties({"self-optimizing.minor.trigger.interval": value, "self-optimizing.full.trigger.interval": value}, {})
    assert found.minor_interval == found.full_interval == timedelta(days=36_500)


def test_properties_of_upkeep_are_shown_and_what_is_wrong_with_them_stops_no_compaction() -> None:
    table = {"table-expire.enabled": "true", "data-expire.level": "X", "table-expire.enabeld": "true", "clean-orphan-file.enable": "true"}
    found = resolve_properties(table, {})
    assert found.upkeep == {"table-expire.enabled": "true", "data-expire.level": "X"}
    assert found.unknown == ("clean-orphan-file.enable", "table-expire.enabeld")
    (problem,) = found.problems
    assert "'data-expire.level' is X but must be PARTITION or FILE" in problem


def test_known_keys_without_a_meaning_here_are_ignored_and_typos_unknown() -> None:
    found = resolve_properties(
        {"self-optimizing.execute.timeout": "1", "self-optimizing.prio": "1", "compaction.delta-rewrite.enabled": "true"}, {}
    )
    assert list(found.ignored) == ["compaction.delta-rewrite.enabled", "self-optimizing.execute.timeout"]
    assert "COMPACTION_TASK_TIMEOUT_SECONDS" in found.ignored["self-optimizing.execute.timeout"]
    assert found.unknown == ("self-optimizing.prio",)


def test_what_to_use_instead_of_a_key_of_amoro_exists() -> None:
    properties = {item.key for item in PROPERTIES}
    settings = {f"COMPACTION_{name.upper()}" for name in Settings.model_fields}
    for key, instead in AMORO_KEYS_NOT_HONOURED.items():
        assert key.startswith("self-optimizing.")
        assert key not in properties
        named = re.findall(r"`([^`]+)`", instead)
        assert named or instead.startswith("nothing instead: ")
        for name in named:
            assert name in properties | settings or (ROOT / name).is_file(), name


KEYED = {"table-format": "MIXED_ICEBERG", "mixed-format.table-store": "base", "mixed-format.primary-key-fields": "id"}
REWRITE = {"compaction.delta-rewrite.enabled": "true"}


def test_a_table_is_compacted_when_both_switches_are_on() -> None:
    for amoros, ours in itertools.product((True, False), repeat=2):
        found = resolve_properties({"self-optimizing.enabled": str(amoros), "compaction.enabled": str(ours)}, {})
        assert found.enabled is (amoros and ours)
    assert found.disabled_by == "'compaction.enabled' is false"
    assert resolve_properties({"self-optimizing.enabled": "false"}, {}).disabled_by == "'self-optimizing.enabled' is false"


def test_with_delta_rewrite_only_our_own_switch_counts() -> None:
    table = {**KEYED, **REWRITE, "self-optimizing.enabled": "false"}
    assert (resolve_properties(table, {}).delta_rewrite, resolve_properties(table, {}).enabled) == (True, True)
    off = resolve_properties({**table, "compaction.enabled": "false"}, {})
    assert (off.enabled, off.disabled_by) == (False, "'compaction.enabled' is false")


@pytest.mark.parametrize("amoros", [{}, {"self-optimizing.enabled": "true"}])
def test_amoro_must_not_compact_a_table_with_delta_rewrite(amoros: dict[str, str]) -> None:
    with pytest.raises(ConfigError, match=r"'self-optimizing.enabled' is true but must be false.*ALTER TABLE shop.orders SET"):
        resolve_properties({**KEYED, **REWRITE, **amoros}, {}, TableIdentifier("lake", ("shop",), "orders"))


def test_delta_rewrite_is_a_property_of_one_keyed_table() -> None:
    key = "compaction.delta-rewrite.enabled"
    for found in (resolve_properties(REWRITE, {}), resolve_properties(KEYED, {f"table.{key}": "true"})):
        assert (found.delta_rewrite, found.enabled, list(found.ignored)) == (False, True, [key])


def test_a_bad_asset_key_stops_nothing_and_is_told() -> None:
    table = TableIdentifier("lake", ("shop",), "orders")
    good = resolve_properties({ASSET_KEY: "analytics/ orders"}, {})
    assert (good.dagster_asset_key, good.problems) == (("analytics", "orders"), ())
    bad = resolve_properties({ASSET_KEY: "a//b", "self-optimizing.quota": "2"}, {}, table)
    assert (bad.dagster_asset_key, bad.quota) == ((), 2.0)
    said = f"lake.shop.orders: '{ASSET_KEY}' is 'a//b' but must be levels separated by '/', none of them empty; the table sets it: "
    assert bad.problems == (said + f"ALTER TABLE shop.orders SET TBLPROPERTIES ('{ASSET_KEY}' = '…')",)
    assert asset_key_of({ASSET_KEY: "a//b"}, {}, table) == ((), bad.problems[0])
    assert asset_key_of({}, {f"table.{ASSET_KEY}": "x"}, table) == (("x",), None)
    assert asset_key_of({}, {}, table) == ((), None)
