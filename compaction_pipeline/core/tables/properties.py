"""The properties of a table that control its compaction: their keys, defaults and rules, and how they are resolved.

Where Amoro has a key for something, this program uses the same key. The table's own property counts first, then the catalog's property
with the prefix `table.`, then the default. The properties and their rules are in `property_rules.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any

from compaction_pipeline.core.errors import ConfigError
from compaction_pipeline.core.tables.asset_key import ASSET_KEY_RULE, asset_key_levels
from compaction_pipeline.core.tables.expiry_properties import UPKEEP_PROPERTIES
from compaction_pipeline.core.tables.group_name import DEFAULT_GROUP
from compaction_pipeline.core.tables.kinds import is_keyed
from compaction_pipeline.core.tables.property_rules import (
    AMORO_KEYS_NOT_HONOURED,
    ASSET_KEY,
    DELTA_REWRITE_KEY,
    ENABLED_KEY,
    FILTER_KEY,
    FILTER_RULE,
    GROUP_KEY,
    OWN_ENABLED_KEY,
    PROPERTIES,
    TEAM_KEY,
    Property,
)
from compaction_pipeline.core.tables.ready_properties import READY_PROPERTIES
from compaction_pipeline.core.tables.table import TableIdentifier
from compaction_pipeline.core.tables.team_name import UNASSIGNED
from compaction_pipeline.core.tables.watermark_keys import WATERMARK_KEYS
from compaction_pipeline.core.windows import Window, WindowError

MIB = 1024 * 1024


@dataclass(frozen=True, slots=True)
class TableProperties:
    """The properties in force on one table.

    `amoros_switch` is `self-optimizing.enabled`, and `switched_on` is `compaction.enabled`. `dagster_asset_key` has the levels of an
    asset's key; it is empty when the table names no asset. `ignored` are known keys that the table sets but that have no effect on it,
    each with what to use instead. `unknown` are set keys that nobody knows, which are likely typing mistakes. `problems` has a sentence
    for each bad value that stops nothing. `forbidden` says which policy of the catalog forbids to compact the table.
    """

    amoros_switch: bool = True
    group: str = DEFAULT_GROUP
    team: str = UNASSIGNED
    filter: str = ""
    priority: int = 0
    read_weight: float = 1.0
    target_size_bytes: int = 128 * MIB
    fragment_ratio: int = 8
    min_target_size_ratio: float = 0.75
    minor_file_count: int = 12
    minor_total_size_bytes: int = 128 * MIB
    minor_interval: timedelta = timedelta(hours=1)
    min_plan_interval: timedelta = timedelta(minutes=1)
    major_duplicate_ratio: float = 0.1
    full_interval: timedelta | None = None
    full_when_ready: bool = False
    full_rewrites_all: bool = False
    major_cold_after: timedelta | None = None
    full_window: Window | None = None
    major_window: Window | None = None
    major_cold_at_most: timedelta = timedelta(hours=24)
    catalog_may_roll_back: bool = False
    max_task_size_bytes: int = 128 * MIB
    max_change_files: int = 10_000
    num_retries: int = 3
    commit_interval: timedelta = timedelta(minutes=5)
    task_memory_bytes: int = 1024 * MIB
    respec_quiet_interval: timedelta = timedelta(days=1)
    conversions_enabled: bool = True
    switched_on: bool = True
    forbidden: str = ""
    delta_rewrite: bool = False
    quota: float = 0.5
    min_health_score: int = 50
    watermark_keys: tuple[str, ...] = WATERMARK_KEYS
    watermark_writers: Mapping[str, str] = field(default_factory=dict)
    dagster_asset_key: tuple[str, ...] = ()
    ignored: Mapping[str, str] = field(default_factory=dict)
    unknown: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()
    upkeep: Mapping[str, str] = field(default_factory=dict)
    """The properties of upkeep that are set, as texts. The works of upkeep read them."""
    readiness: Mapping[str, str] = field(default_factory=dict)
    """The properties of readiness that the table itself sets, as texts. What it inherits of them depends on its namespace, too."""

    @property
    def enabled(self) -> bool:
        """Whether the table is compacted: when both switches are on, and its catalog does not forbid it.

        In a keyed table with `delta_rewrite` Amoro's switch is off, so only ours counts.
        """
        return not self.forbidden and self.switched_on and (self.amoros_switch or self.delta_rewrite)

    def forced(self) -> TableProperties:
        """The same, for work that is done whatever the switches say."""
        return replace(self, amoros_switch=True, switched_on=True)

    @property
    def disabled_by(self) -> str:
        """Which policy forbids it, or the key of the switch that is off, in quotes, when the table is not `enabled`."""
        return self.forbidden or f"'{ENABLED_KEY if self.switched_on else OWN_ENABLED_KEY}' is false"

    @property
    def left_out_by(self) -> str:
        """Why `filter` leaves a node out. The text changes with the condition, so a node that another condition left out is judged anew."""
        return f"'{FILTER_KEY}' leaves it out: {self.filter}"

    @property
    def undersized_bytes(self) -> int:
        """A data file that is not small is undersized when it has at most this many bytes."""
        return int(self.min_target_size_ratio * self.target_size_bytes)

    @property
    def oversized_bytes(self) -> int:
        """A FULL splits a file of more than this many bytes: 1.8 × the target size. Each half is nearer to the target than the file."""
        return self.target_size_bytes * 9 // 5

    @property
    def fragment_size_bytes(self) -> int:
        """A file is small when it has at most this many bytes. A small data file is called a fragment."""
        return self.target_size_bytes // self.fragment_ratio

    @property
    def task_size_bytes(self) -> int:
        """A task reads at most this many bytes of data files, unless it has only one input."""
        return max(self.target_size_bytes, self.max_task_size_bytes)


# The code of keyed tables reads these: `core/tables/keyed/` has `creation.py`, `transactions.py` and `changes.py`.
OF_KEYED_TABLES = ("compaction.upsert", "compaction.transaction.timeout", "compaction.sink.")
PREFIXES = ("self-optimizing.", "compaction.")
UPKEEP_PREFIXES = ("table-expire.", "clean-orphan-file.", "data-expire.", "snapshot.keep.", "change.data.")
CATALOG_PREFIX = "table."
_NOT_OF_COMPACTION = (*UPKEEP_PROPERTIES, *READY_PROPERTIES)
WRITE_TARGET_KEY = "write.target-file-size-bytes"
_ONLY_KEYED = "`KeyedTable.create` sets it for a keyed table (`docs/keyed.md`)"


def in_force(table: Mapping[str, str], catalog: Mapping[str, str]) -> Mapping[str, str]:
    """The properties of a table, with those that its catalog sets for all its tables and the table does not set itself."""
    inherited = {key.removeprefix(CATALOG_PREFIX): value for key, value in catalog.items() if key.startswith(CATALOG_PREFIX)}
    return {**inherited, **table}


def values_of(
    items: Iterable[Property], table: Mapping[str, str], catalog: Mapping[str, str], of: TableIdentifier | None
) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Return the values of those of these properties that are set, by attribute, and a sentence for each bad value that stops nothing.

    Raises ConfigError for the first one that `stops` and breaks its rule.
    """
    merged = in_force(table, catalog)
    # Each property has its own type, and its reader returns a value of that type.
    values: dict[str, Any] = {}
    problems: list[str] = []
    for item in items:
        if item.key not in merged:
            continue
        try:
            values[item.attribute] = _value(item, item.key, merged[item.key], item.key in table, of)
        except ConfigError as error:
            if item.stops:
                raise
            problems.append(str(error))
    return values, tuple(problems)


def resolve_properties(table: Mapping[str, str], catalog: Mapping[str, str], of: TableIdentifier | None = None) -> TableProperties:
    """Return the properties in force. `table` are the table's properties, `catalog` the catalog's, `of` the table for messages.

    Raises ConfigError for the first property that `stops` and breaks its rule: it names table, key, value and rule, and says who set
    the value and how to correct it.
    """
    merged = in_force(table, catalog)
    values, problems = values_of(PROPERTIES, table, catalog, of)
    if "target_size_bytes" not in values and WRITE_TARGET_KEY in merged:
        target = next(item for item in PROPERTIES if item.attribute == "target_size_bytes")
        values["target_size_bytes"] = _value(target, WRITE_TARGET_KEY, merged[WRITE_TARGET_KEY], WRITE_TARGET_KEY in table, of)
    values.setdefault("minor_total_size_bytes", values.get("target_size_bytes", TableProperties().target_size_bytes))
    # What is written into the change files of a table is decided once for this table, and never for all tables of a catalog.
    asked = values.get("delta_rewrite", False)
    values["delta_rewrite"] = asked and DELTA_REWRITE_KEY in table and is_keyed(table)
    without_effect = {DELTA_REWRITE_KEY: _ONLY_KEYED} if asked and not values["delta_rewrite"] else {}
    if values["delta_rewrite"] and values.get("amoros_switch", True):
        raise ConfigError(_amoro_may_compact(of))
    problems += tuple(each for item in _NOT_OF_COMPACTION if item.key in merged for each in _problem_of(item, table, catalog, of))
    known = {item.key for item in (*PROPERTIES, *_NOT_OF_COMPACTION)}
    prefixes = (*PREFIXES, *UPKEEP_PREFIXES)
    ours = [key for key in merged if key.startswith(prefixes) and key not in known and not key.startswith(OF_KEYED_TABLES)]
    ignored = {key: AMORO_KEYS_NOT_HONOURED[key] for key in ours if key in AMORO_KEYS_NOT_HONOURED} | without_effect
    unknown = tuple(sorted(key for key in ours if key not in AMORO_KEYS_NOT_HONOURED))
    upkeep = {item.key: merged[item.key] for item in UPKEEP_PROPERTIES if item.key in merged}
    readiness = {item.key: table[item.key] for item in READY_PROPERTIES if item.key in table}
    return TableProperties(
        **values, ignored=dict(sorted(ignored.items())), unknown=unknown, problems=problems, upkeep=upkeep, readiness=readiness
    )


def _problem_of(item: Property, table: Mapping[str, str], catalog: Mapping[str, str], of: TableIdentifier | None) -> tuple[str, ...]:
    """A sentence when a property of upkeep or of readiness breaks its rule. It stops those that ask for it, and no compaction."""
    try:
        return values_of((item,), table, catalog, of)[1]
    except ConfigError as error:
        return (str(error),)


def _amoro_may_compact(of: TableIdentifier | None) -> str:
    name = ".".join((*of.namespace, of.name)) if of is not None else "…"
    return (
        f"{f'{of}: ' if of is not None else ''}'{ENABLED_KEY}' is true but must be false, because '{DELTA_REWRITE_KEY}' is true: Amoro "
        "would read change files that were merged with each other by their names, and lose rows; ALTER TABLE "
        f"{name} SET TBLPROPERTIES ('{ENABLED_KEY}' = 'false'), and switch this program on and off by '{OWN_ENABLED_KEY}'"
    )


def rewrites_are_on(table: Mapping[str, str]) -> bool:
    """Whether a keyed table whose base store has these properties may have tasks that merge change files with each other."""
    return table.get(DELTA_REWRITE_KEY, "").strip().lower() == "true"


def properties_or_defaults(table: Mapping[str, str], catalog: Mapping[str, str]) -> TableProperties:
    """Return the properties in force, or all defaults when one breaks its rule. The reason of the table's plan names that property."""
    try:
        return resolve_properties(table, catalog)
    except ConfigError:
        return TableProperties()


def group_of(table: Mapping[str, str], catalog: Mapping[str, str]) -> str:
    """Return the resource group that a table belongs to, whatever its other properties are. The name may break its rule."""
    return table.get(GROUP_KEY, catalog.get(CATALOG_PREFIX + GROUP_KEY, DEFAULT_GROUP)).strip()


def named_team(of: TableIdentifier, table: Mapping[str, str], catalog: Mapping[str, str], mapped: Mapping[str, str]) -> str:
    """Return the team that a table names, which need not exist. `mapped` gives teams to names of tables and of catalogs.

    Who may write to a table may change its property, and so move its bill. A mapping is made by an administrator, so it wins.
    """
    by_property = table.get(TEAM_KEY, catalog.get(CATALOG_PREFIX + TEAM_KEY, UNASSIGNED)).strip()
    return mapped.get(str(of)) or mapped.get(of.catalog) or by_property or UNASSIGNED


def asset_key_of(table: Mapping[str, str], catalog: Mapping[str, str], of: TableIdentifier) -> tuple[tuple[str, ...], str | None]:
    """Return the levels of the asset key that a table names, and a sentence when its value is bad. Other bad properties do not matter."""
    own = ASSET_KEY in table
    text = table[ASSET_KEY] if own else catalog.get(CATALOG_PREFIX + ASSET_KEY)
    if text is None:
        return (), None
    try:
        return asset_key_levels(text), None
    except ValueError:
        return (), _broken(ASSET_KEY, f"{text!r} but must be {ASSET_KEY_RULE}", own, of)


def value_of(item: Property, text: str) -> object:
    """Return the value that a text gives a property. Raises ValueError with the text and the rule that it breaks."""
    try:
        value = item.rule.read(text)
    except WindowError as error:
        raise ValueError(f"{text!r} but must be {item.rule.text}: {error}") from None
    except (ValueError, OverflowError):
        raise ValueError(f"{text!r} but must be {item.rule.text}") from None
    if not item.rule.holds(value):
        raise ValueError(f"{text} but must be {item.rule.text}")
    return value


def broken_filter(text: str, why: str, table: Mapping[str, str], of: TableIdentifier) -> str:
    """Return the message for a filter that is not understood. `table` are the properties of the table itself."""
    return _broken(FILTER_KEY, f"{text!r} but must be {FILTER_RULE}: {why}", FILTER_KEY in table, of)


def _value(item: Property, key: str, text: str, own: bool, of: TableIdentifier | None) -> object:
    try:
        return value_of(item, text)
    except ValueError as error:
        raise ConfigError(_broken(key, str(error), own, of)) from None


def _broken(key: str, what: str, own: bool, of: TableIdentifier | None) -> str:
    """Return the message for a bad value. `own` is True when the table sets it, False when its catalog does."""
    which = f"{of}: " if of is not None else ""
    broken = f"{which}'{key}' is {what}"
    if own:
        name = ".".join((*of.namespace, of.name)) if of is not None else "…"
        return f"{broken}; the table sets it: ALTER TABLE {name} SET TBLPROPERTIES ('{key}' = '…')"
    catalog = of.catalog if of is not None else "NAME"
    return (
        f"{broken}; the catalog sets it for all its tables, by -p {CATALOG_PREFIX}{key}=…: "
        f"`catalog change {catalog} -p {CATALOG_PREFIX}{key}=…` with a right value"
    )
