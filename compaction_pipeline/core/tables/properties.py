"""The properties of a table that control its compaction: their keys, defaults and rules, and how they are resolved.

Where Amoro has a key for something, this program uses the same key. The table's own property counts first, then the catalog's property
with the prefix `table.`, then the default. The table in `docs/settings.md` is generated from `PROPERTIES`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from math import isfinite
from typing import Any

from compaction_pipeline.core.errors import ConfigError
from compaction_pipeline.core.tables.asset_key import ASSET_KEY_RULE, asset_key_levels
from compaction_pipeline.core.tables.group_name import DEFAULT_GROUP, GROUP_NAME_RULE, is_group_name
from compaction_pipeline.core.tables.table import TableIdentifier

MIB = 1024 * 1024
_NEVER_MS = 100 * 365 * 86_400_000
_LONG_MOST = 2**63 - 1


@dataclass(frozen=True, slots=True)
class TableProperties:
    """The properties in force on one table.

    `dagster_asset_key` has the levels of an asset's key; it is empty when the table names no asset. `ignored` are keys of Amoro that the
    table sets but that have no effect here. `unknown` are set keys that nobody knows, which are likely typing mistakes. `problems` has
    a sentence for each bad value that stops nothing.
    """

    enabled: bool = True
    group: str = DEFAULT_GROUP
    priority: int = 0
    target_size_bytes: int = 128 * MIB
    fragment_ratio: int = 8
    min_target_size_ratio: float = 0.75
    minor_file_count: int = 12
    minor_total_size_bytes: int = 128 * MIB
    minor_interval: timedelta = timedelta(hours=1)
    min_plan_interval: timedelta = timedelta(minutes=1)
    major_duplicate_ratio: float = 0.1
    full_interval: timedelta | None = None
    max_task_size_bytes: int = 128 * MIB
    max_change_files: int = 10_000
    num_retries: int = 3
    commit_interval: timedelta = timedelta(minutes=5)
    task_memory_bytes: int = 1024 * MIB
    respec_quiet_interval: timedelta = timedelta(days=1)
    conversions_enabled: bool = True
    quota: float = 0.5
    dagster_asset_key: tuple[str, ...] = ()
    ignored: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()

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


@dataclass(frozen=True, slots=True)
class Property:
    """One property: its key, the attribute of TableProperties that holds it, and its rule.

    `read` turns the text into a value, and raises ValueError or OverflowError. `holds` says whether the value keeps the `rule`. A bad
    value of a property that `stops` keeps the table from being compacted. Any other bad value is told, and counts as not set.
    """

    key: str
    attribute: str
    read: Callable[[str], object]
    rule: str
    holds: Callable[[object], bool]
    default_text: str
    meaning: str
    stops: bool = True


def _boolean(text: str) -> bool:
    lowered = text.strip().lower()
    if lowered not in ("true", "false"):
        raise ValueError(text)
    return lowered == "true"


def _milliseconds(text: str) -> timedelta:
    if abs(int(text)) > _LONG_MOST:
        raise OverflowError(text)
    # Many people write Long.MAX_VALUE for "never", but Python cannot add so long a duration to a date.
    return timedelta(milliseconds=min(int(text), _NEVER_MS))


def _optional_milliseconds(text: str) -> timedelta | None:
    return None if int(text) < 0 else _milliseconds(text)


def _positive(value: object) -> bool:
    # float() accepts the texts "inf" and "nan".
    return isinstance(value, (int, float)) and value > 0 and isfinite(value)


def _whole(least: int, most: int) -> Callable[[object], bool]:
    return lambda value: isinstance(value, int) and least <= value <= most


def _not_negative(value: object) -> bool:
    return isinstance(value, timedelta) and value >= timedelta(0)


# The state database and Java can hold these numbers too.
_MOST, _MOST_BYTES = 2**31 - 1, 2**60
_BYTES_RULE = "≥ 1 and ≤ 2^60"

ASSET_KEY = "compaction.dagster-asset-key"
GROUP_KEY = "self-optimizing.group"

PROPERTIES: tuple[Property, ...] = (
    Property(
        "self-optimizing.enabled",
        "enabled",
        _boolean,
        "true or false",
        lambda v: True,
        "true",
        "false: the table is measured, but never compacted",
    ),
    Property(
        GROUP_KEY,
        "group",
        str.strip,
        GROUP_NAME_RULE,
        is_group_name,
        DEFAULT_GROUP,
        "the resource group, which must exist; the table's tasks wait in its queue",
    ),
    Property(
        "self-optimizing.priority",
        "priority",
        int,
        "a whole number of 32 bits",
        _whole(-_MOST, _MOST),
        "0",
        "tasks of a table with a higher number are merged first; an hour of waiting makes up for one step",
    ),
    Property(
        "self-optimizing.target-size",
        "target_size_bytes",
        int,
        _BYTES_RULE,
        _whole(1, _MOST_BYTES),
        "134217728",
        "the size that merged files should have, in bytes; where it is not set, `write.target-file-size-bytes` counts",
    ),
    Property(
        "self-optimizing.fragment-ratio",
        "fragment_ratio",
        int,
        "≥ 2 and < 2^31",
        _whole(2, _MOST),
        "8",
        "a file is small when it has at most target-size / ratio bytes",
    ),
    Property(
        "self-optimizing.min-target-size-ratio",
        "min_target_size_ratio",
        float,
        "> 0 and ≤ 1",
        lambda v: isinstance(v, float) and 0 < v <= 1,
        "0.75",
        "a file that is not small is undersized when it has at most ratio × target-size bytes",
    ),
    Property(
        "self-optimizing.minor.trigger.file-count",
        "minor_file_count",
        int,
        "≥ 2 and < 2^31",
        _whole(2, _MOST),
        "12",
        "a MINOR is due when a node has this many small data files, or this many small delete files",
    ),
    Property(
        "self-optimizing.minor.trigger.total-size",
        "minor_total_size_bytes",
        int,
        _BYTES_RULE,
        _whole(1, _MOST_BYTES),
        "target-size",
        "a MINOR is due when a node's small data files, or its small delete files, have this many bytes together",
    ),
    Property(
        "self-optimizing.minor.trigger.interval",
        "minor_interval",
        _milliseconds,
        "≥ 0 and < 2^63 ms",
        _not_negative,
        "3600000",
        "a MINOR is due this many ms after the node's last one, when the node has at least two small files",
    ),
    Property(
        "self-optimizing.min-plan-interval",
        "min_plan_interval",
        _milliseconds,
        "≥ 0 and < 2^63 ms",
        _not_negative,
        "60000",
        "after a plan that made tasks, sensors wait this many ms before they plan the table again; they wait less when that plan left out "
        "nodes because of the table's quota and the table may have a tenth of its tasks more, or because the queue was full and has room "
        "again",
    ),
    Property(
        "self-optimizing.major.trigger.duplicate-ratio",
        "major_duplicate_ratio",
        float,
        "> 0 and finite",
        _positive,
        "0.1",
        "a MAJOR is due when this share of one file's rows is deleted",
    ),
    Property(
        "self-optimizing.full.trigger.interval",
        "full_interval",
        _optional_milliseconds,
        "a whole number of ms < 2^63; negative is off",
        lambda v: True,
        "-1",
        "a FULL is due this many ms after the node's last one; a negative number switches this off",
    ),
    Property(
        "self-optimizing.max-task-size-bytes",
        "max_task_size_bytes",
        int,
        _BYTES_RULE,
        _whole(1, _MOST_BYTES),
        "134217728",
        "a task reads at most this many bytes, or target-size where that is larger",
    ),
    Property(
        "self-optimizing.max-file-count",
        "max_change_files",
        int,
        "≥ 1 and < 2^31",
        _whole(1, _MOST),
        "10000",
        "keyed tables only: one merge of a partition's changes reads at most this many change files, and the next merge reads those that "
        "came after them",
    ),
    Property(
        "self-optimizing.execute.num-retries",
        "num_retries",
        int,
        "≥ 0 and ≤ 1000",
        _whole(0, 1000),
        "3",
        "a task that fails is tried again at most this many times",
    ),
    Property(
        "self-optimizing.commit.interval",
        "commit_interval",
        _milliseconds,
        "≥ 0 and < 2^63 ms",
        _not_negative,
        "300000",
        "merged tasks of a table are committed together, once in this many ms",
    ),
    Property(
        "compaction.task.memory",
        "task_memory_bytes",
        int,
        "≥ 134217728 (128 MiB) and ≤ 2^60",
        _whole(128 * MIB, _MOST_BYTES),
        "1073741824",
        "one task uses at most this many bytes of memory, however many deletes it applies",
    ),
    Property(
        "compaction.conversions.enabled",
        "conversions_enabled",
        _boolean,
        "true or false",
        lambda v: True,
        "true",
        "false: deletes that apply to large data files wait for a MAJOR or a FULL, and every snapshot is then a `replace`, which streaming "
        "readers skip",
    ),
    Property(
        "compaction.respec.quiet-interval",
        "respec_quiet_interval",
        _milliseconds,
        "≥ 0 and < 2^63 ms",
        _not_negative,
        "86400000",
        "a FULL moves rows to the current partition spec only when the spec has not changed, and no delete of an older spec was committed, "
        "for this many ms",
    ),
    Property(
        "self-optimizing.quota",
        "quota",
        float,
        "> 0 and finite",
        _positive,
        "0.5",
        "how many of its group's slots a table may use: a value up to 1 is a share of them, a value above 1 is a number of slots",
    ),
    Property(
        ASSET_KEY,
        "dagster_asset_key",
        asset_key_levels,
        ASSET_KEY_RULE,
        bool,
        "none",
        "the asset of your own Dagster project that stands for the table, e.g. `analytics/orders`; it shows the table's health, its last "
        "compaction and a check; a bad value has no effect, and the table is compacted all the same",
        stops=False,
    ),
)

# Keys that Amoro documents and that have no effect here. They are shown as ignored, so that nobody waits for an effect.
AMORO_KEYS_NOT_HONOURED = frozenset(
    {
        "self-optimizing.allow-partial-commit",
        "self-optimizing.average-execution-time",
        "self-optimizing.evaluation.fallback-interval",
        "self-optimizing.evaluation.interval",
        "self-optimizing.evaluation.mse-tolerance",
        "self-optimizing.event-triggered.enabled",
        "self-optimizing.execute.timeout",
        "self-optimizing.filter",
        "self-optimizing.full.rewrite-all-files",
        "self-optimizing.major.trigger.file-count",
        "self-optimizing.major.trigger.interval",
        "self-optimizing.max-plan-size-bytes",
        "self-optimizing.max-retry",
        "self-optimizing.min-target-size-ratio.major",
        "self-optimizing.refresh-table.adaptive.enabled",
    }
)
_NOT_YET = frozenset({"compaction.delta-rewrite.enabled"})
# The code of keyed tables reads these: `core/tables/keyed/` has `creation.py`, `transactions.py` and `changes.py`.
_OF_KEYED_TABLES = ("compaction.upsert", "compaction.transaction.timeout", "compaction.sink.")
_PREFIXES = ("self-optimizing.", "compaction.")
_CATALOG_PREFIX = "table."
WRITE_TARGET_KEY = "write.target-file-size-bytes"


def resolve_properties(table: Mapping[str, str], catalog: Mapping[str, str], of: TableIdentifier | None = None) -> TableProperties:
    """Return the properties in force. `table` are the table's properties, `catalog` the catalog's, `of` the table for messages.

    Raises ConfigError for the first property that `stops` and breaks its rule: it names table, key, value and rule, and says who set
    the value and how to correct it.
    """
    inherited = {key.removeprefix(_CATALOG_PREFIX): value for key, value in catalog.items() if key.startswith(_CATALOG_PREFIX)}
    merged = {**inherited, **table}
    # Each property has its own type, and its reader returns a value of that type.
    values: dict[str, Any] = {}
    problems: list[str] = []
    for item in PROPERTIES:
        if item.key not in merged:
            continue
        try:
            values[item.attribute] = _value(item, item.key, merged[item.key], item.key in table, of)
        except ConfigError as error:
            if item.stops:
                raise
            problems.append(str(error))
    if "target_size_bytes" not in values and WRITE_TARGET_KEY in merged:
        target = next(item for item in PROPERTIES if item.attribute == "target_size_bytes")
        values["target_size_bytes"] = _value(target, WRITE_TARGET_KEY, merged[WRITE_TARGET_KEY], WRITE_TARGET_KEY in table, of)
    values.setdefault("minor_total_size_bytes", values.get("target_size_bytes", TableProperties().target_size_bytes))
    known = {item.key for item in PROPERTIES}
    ours = [key for key in merged if key.startswith(_PREFIXES) and key not in known and not key.startswith(_OF_KEYED_TABLES)]
    ignored = tuple(sorted(key for key in ours if key in AMORO_KEYS_NOT_HONOURED or key in _NOT_YET))
    unknown = tuple(sorted(key for key in ours if key not in ignored))
    return TableProperties(**values, ignored=ignored, unknown=unknown, problems=tuple(problems))


def properties_or_defaults(table: Mapping[str, str], catalog: Mapping[str, str]) -> TableProperties:
    """Return the properties in force, or all defaults when one breaks its rule. The reason of the table's plan names that property."""
    try:
        return resolve_properties(table, catalog)
    except ConfigError:
        return TableProperties()


def group_of(table: Mapping[str, str], catalog: Mapping[str, str]) -> str:
    """Return the resource group that a table belongs to, whatever its other properties are. The name may break its rule."""
    return table.get(GROUP_KEY, catalog.get(_CATALOG_PREFIX + GROUP_KEY, DEFAULT_GROUP)).strip()


def asset_key_of(table: Mapping[str, str], catalog: Mapping[str, str], of: TableIdentifier) -> tuple[tuple[str, ...], str | None]:
    """Return the levels of the asset key that a table names, and a sentence when its value is bad. Other bad properties do not matter."""
    own = ASSET_KEY in table
    text = table[ASSET_KEY] if own else catalog.get(_CATALOG_PREFIX + ASSET_KEY)
    if text is None:
        return (), None
    try:
        return asset_key_levels(text), None
    except ValueError:
        return (), _broken(ASSET_KEY, repr(text), ASSET_KEY_RULE, own, of)


def _value(item: Property, key: str, text: str, own: bool, of: TableIdentifier | None) -> object:
    try:
        value = item.read(text)
    except (ValueError, OverflowError):
        raise ConfigError(_broken(key, repr(text), item.rule, own, of)) from None
    if not item.holds(value):
        raise ConfigError(_broken(key, text, item.rule, own, of))
    return value


def _broken(key: str, text: str, rule: str, own: bool, of: TableIdentifier | None) -> str:
    """Return the message for a bad value. `own` is True when the table sets it, False when its catalog does."""
    which = f"{of}: " if of is not None else ""
    broken = f"{which}'{key}' is {text} but must be {rule}"
    if own:
        name = ".".join((*of.namespace, of.name)) if of is not None else "…"
        return f"{broken}; the table sets it: ALTER TABLE {name} SET TBLPROPERTIES ('{key}' = '…')"
    catalog = of.catalog if of is not None else "NAME"
    return (
        f"{broken}; the catalog sets it for all its tables, by -p {_CATALOG_PREFIX}{key}=…: "
        f"`catalog remove {catalog}`, then `catalog add {catalog}` with a right value"
    )
