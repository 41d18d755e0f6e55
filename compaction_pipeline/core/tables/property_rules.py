"""The list of the properties of a table: each with its key, its rule, its default and its meaning.

The table in `docs/settings.md` is generated from `PROPERTIES`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from math import isfinite

from compaction_pipeline.core.tables.asset_key import ASSET_KEY_RULE, asset_key_levels
from compaction_pipeline.core.tables.group_name import DEFAULT_GROUP, GROUP_NAME_RULE, is_group_name
from compaction_pipeline.core.tables.team_name import TEAM_NAME_RULE, UNASSIGNED, is_team_name
from compaction_pipeline.core.tables.watermark_keys import (
    WATERMARK_KEYS,
    WATERMARK_KEYS_KEY,
    WATERMARK_KEYS_RULE,
    WATERMARK_WRITERS_KEY,
    WATERMARK_WRITERS_RULE,
    watermark_keys,
    watermark_writers,
)
from compaction_pipeline.core.windows import WINDOW_RULE, Window

_MIB = 1024 * 1024
NEVER = timedelta(days=100 * 365)
"""Stands for a longer duration too. Many people write Long.MAX_VALUE for "never", but Python cannot add so long a duration to a date."""

_LONG_MOST = 2**63 - 1

UNITS = {
    timedelta(milliseconds=1): ("", "ms", "milli", "millis", "millisecond", "milliseconds"),
    timedelta(seconds=1): ("s", "sec", "secs", "second", "seconds"),
    timedelta(minutes=1): ("m", "min", "minute", "minutes"),
    timedelta(hours=1): ("h", "hour", "hours"),
    timedelta(days=1): ("d", "day", "days"),
}


def duration(text: str) -> timedelta:
    """Read a duration as Amoro writes it: a whole number and a unit, such as 720min. A number alone counts milliseconds."""
    found = re.fullmatch(r"([0-9]{1,18})\s*([a-z]*)", text.strip().lower())
    unit = next((unit for unit, names in UNITS.items() if found is not None and found[2] in names), None)
    if found is None or unit is None:
        raise ValueError(text)
    return int(found[1]) * unit if int(found[1]) <= NEVER / unit else NEVER


DURATION_RULE = "a whole number with one of the units ms, s, min, h and d, e.g. 720min"


@dataclass(frozen=True, slots=True)
class Rule:
    """What values a property may have. `read` turns the text into a value, and raises ValueError or OverflowError. `holds` says whether the
    value keeps the rule, which `text` tells people."""

    read: Callable[[str], object]
    text: str
    holds: Callable[[object], bool]


@dataclass(frozen=True, slots=True)
class Property:
    """One property: its key, the attribute of TableProperties that holds it, and its rule.

    A bad value of a property that `stops` keeps the table from being compacted. Any other bad value is told, and counts as not set.
    """

    key: str
    attribute: str
    rule: Rule
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
    return timedelta(milliseconds=int(text)) if int(text) <= NEVER / timedelta(milliseconds=1) else NEVER


def _optional_milliseconds(text: str) -> timedelta | None:
    return None if int(text) < 0 else _milliseconds(text)


def whole(text: str, least: int, most: int) -> Rule:
    """The rule of a whole number within bounds. `text` tells the bounds to people."""
    return Rule(int, text, lambda value: isinstance(value, int) and least <= value <= most)


# The state database and Java can hold these numbers too.
_MOST, _MOST_BYTES = 2**31 - 1, 2**60

BOOLEAN = Rule(_boolean, "true or false", lambda value: True)
_BYTES = whole("≥ 1 and ≤ 2^60", 1, _MOST_BYTES)
# float() accepts the texts "inf" and "nan".
_FINITE = Rule(float, "> 0 and finite", lambda value: isinstance(value, float) and value > 0 and isfinite(value))
INTERVAL = Rule(_milliseconds, "≥ 0 and < 2^63 ms", lambda value: isinstance(value, timedelta) and value >= timedelta(0))
"""The rule of a duration in milliseconds."""
_WINDOW = Rule(Window.parse, WINDOW_RULE, lambda v: True)


ENABLED_KEY, OWN_ENABLED_KEY = "self-optimizing.enabled", "compaction.enabled"
DELTA_REWRITE_KEY = "compaction.delta-rewrite.enabled"
ASSET_KEY = "compaction.dagster-asset-key"
GROUP_KEY = "self-optimizing.group"
TEAM_KEY = "compaction.team"
MAY_ROLL_BACK_KEY = "compaction.catalog-may-roll-back"
FILTER_KEY = "self-optimizing.filter"
FILTER_RULE = "a SQL condition without functions, on columns by which the table is partitioned"

PROPERTIES: tuple[Property, ...] = (
    Property(
        ENABLED_KEY,
        "amoros_switch",
        BOOLEAN,
        "true",
        "false: the table is measured, but never compacted; Amoro obeys it too",
    ),
    Property(
        OWN_ENABLED_KEY,
        "switched_on",
        BOOLEAN,
        "true",
        "false: the table is measured, but this program never compacts it",
    ),
    Property(
        GROUP_KEY,
        "group",
        Rule(str.strip, GROUP_NAME_RULE, is_group_name),
        DEFAULT_GROUP,
        "the resource group, which must exist; the table's tasks wait in its queue",
    ),
    Property(
        TEAM_KEY,
        "team",
        # A team that does not exist is no reason to leave a table alone, whatever its name: somebody is charged all the same.
        Rule(str.strip, TEAM_NAME_RULE, is_team_name),
        UNASSIGNED,
        "the team that is charged for the table's work, and whose limits bound it; `team map` wins over this",
        stops=False,
    ),
    Property(
        FILTER_KEY,
        "filter",
        # Only the columns of a table tell whether another text is such a condition: `TableScan.partition_filter`.
        Rule(str.strip, FILTER_RULE, bool),
        "none",
        "only partitions that may hold a row for which the condition is true are compacted, e.g. `day >= '2026-01-01' AND region IN ('eu', "
        "'us')`; partitions that a person names together with a type are compacted all the same; no condition ever changes a row",
    ),
    Property(
        "self-optimizing.priority",
        "priority",
        whole("a whole number of 32 bits", -_MOST, _MOST),
        "0",
        "tasks of a table with a higher number are merged first; an hour of waiting makes up for one step",
    ),
    Property(
        "compaction.read-weight",
        "read_weight",
        _FINITE,
        "1",
        "how much more than other tables this one is read: under a budget, `plan --budget` counts each file that readers open less so much",
    ),
    Property(
        "self-optimizing.target-size",
        "target_size_bytes",
        _BYTES,
        "134217728",
        "the size that merged files should have, in bytes; where it is not set, `write.target-file-size-bytes` counts",
    ),
    Property(
        "self-optimizing.fragment-ratio",
        "fragment_ratio",
        whole("≥ 2 and < 2^31", 2, _MOST),
        "8",
        "a file is small when it has at most target-size / ratio bytes",
    ),
    Property(
        "self-optimizing.min-target-size-ratio",
        "min_target_size_ratio",
        Rule(float, "> 0 and ≤ 1", lambda v: isinstance(v, float) and 0 < v <= 1),
        "0.75",
        "a file that is not small is undersized when it has at most ratio × target-size bytes",
    ),
    Property(
        "self-optimizing.minor.trigger.file-count",
        "minor_file_count",
        whole("≥ 2 and < 2^31", 2, _MOST),
        "12",
        "a MINOR is due when a node has this many small data files, or this many small delete files",
    ),
    Property(
        "self-optimizing.minor.trigger.total-size",
        "minor_total_size_bytes",
        _BYTES,
        "target-size",
        "a MINOR is due when a node's small data files, or its small delete files, have this many bytes together",
    ),
    Property(
        "self-optimizing.minor.trigger.interval",
        "minor_interval",
        INTERVAL,
        "3600000",
        "a MINOR is due this many ms after the node's last one, when the node has at least two small files",
    ),
    Property(
        "self-optimizing.min-plan-interval",
        "min_plan_interval",
        INTERVAL,
        "60000",
        "after a plan that made tasks, sensors wait this many ms before they plan the table again; they wait less when that plan left out "
        "nodes because of the table's quota and the table may have a tenth of its tasks more, or because the queue was full and has room "
        "again",
    ),
    Property(
        "self-optimizing.major.trigger.duplicate-ratio",
        "major_duplicate_ratio",
        _FINITE,
        "0.1",
        "a MAJOR is due when this share of one file's rows is deleted",
    ),
    Property(
        "self-optimizing.full.trigger.interval",
        "full_interval",
        Rule(_optional_milliseconds, "a whole number of ms < 2^63; negative is off", lambda v: True),
        "-1",
        "a FULL is due this many ms after the node's last one; a negative number switches this off",
    ),
    Property(
        "compaction.full.when-ready",
        "full_when_ready",
        BOOLEAN,
        "false",
        "true: a FULL of a partition waits until the partition is ready (`compaction.ready-when`); what a person launches does not wait",
    ),
    Property(
        "compaction.major.cold-after",
        "major_cold_after",
        Rule(duration, DURATION_RULE, lambda v: True),
        "none",
        "a MAJOR waits until no file was added to its partition for so long, so that a partition to which writers still write is not "
        "rewritten; what a person launches does not wait. Of keyed tables, only those with `compaction.delta-rewrite.enabled` obey it",
    ),
    Property(
        "compaction.major.cold-at-most",
        "major_cold_at_most",
        Rule(duration, DURATION_RULE, lambda v: True),
        "24h",
        "a MAJOR that has waited by `compaction.major.cold-after` for so long is planned all the same",
    ),
    Property(
        "compaction.full.window",
        "full_window",
        _WINDOW,
        "none",
        "a FULL is planned only within this window, which is a whole day when both times are equal; what was planned goes on, and what a "
        "person launches does not wait",
    ),
    Property(
        "compaction.major.window",
        "major_window",
        _WINDOW,
        "none",
        "a MAJOR is planned only within this window, as above. Of keyed tables, only those with `compaction.delta-rewrite.enabled` obey it",
    ),
    Property(
        "self-optimizing.full.rewrite-all-files",
        "full_rewrites_all",
        BOOLEAN,
        "false",
        "true: a FULL rewrites every data file of its node; false: only those whose rewrite gains something. Amoro's own default is true, "
        "but here a table gets this only when it sets it",
    ),
    Property(
        "self-optimizing.max-task-size-bytes",
        "max_task_size_bytes",
        _BYTES,
        "134217728",
        "a task reads at most this many bytes, or target-size where that is larger",
    ),
    Property(
        "self-optimizing.max-file-count",
        "max_change_files",
        whole("≥ 1 and < 2^31", 1, _MOST),
        "10000",
        "keyed tables only: one merge of a partition's changes reads at most this many change files, and the next merge reads those that "
        "came after them",
    ),
    Property(
        "self-optimizing.execute.num-retries",
        "num_retries",
        whole("≥ 0 and ≤ 1000", 0, 1000),
        "3",
        "a task that fails is tried again at most this many times",
    ),
    Property(
        "self-optimizing.commit.interval",
        "commit_interval",
        INTERVAL,
        "300000",
        "merged tasks of a table are committed together, once in this many ms",
    ),
    Property(
        "compaction.task.memory",
        "task_memory_bytes",
        whole("≥ 134217728 (128 MiB) and ≤ 2^60", 128 * _MIB, _MOST_BYTES),
        "1073741824",
        "one task uses at most this many bytes of memory, however many deletes it applies",
    ),
    Property(
        "compaction.conversions.enabled",
        "conversions_enabled",
        BOOLEAN,
        "true",
        "false: deletes that apply to large data files wait for a MAJOR or a FULL, and every snapshot is then a `replace`, which streaming "
        "readers skip",
    ),
    Property(
        DELTA_REWRITE_KEY,
        "delta_rewrite",
        BOOLEAN,
        "false",
        "keyed tables only, set when the table is created: a MINOR merges change files with each other. Amoro must not compact such a "
        "table, so `self-optimizing.enabled` must be false, and only `compaction.enabled` counts",
    ),
    Property(
        MAY_ROLL_BACK_KEY,
        "catalog_may_roll_back",
        BOOLEAN,
        "false",
        "true: the catalog may take back a compaction that is in the way of another writer (Polaris with "
        "`polaris.config.rollback.compaction.on-conflicts.enabled`); the nodes are then planned again. It has no effect on keyed tables",
    ),
    Property(
        "compaction.respec.quiet-interval",
        "respec_quiet_interval",
        INTERVAL,
        "86400000",
        "a FULL moves rows to the current partition spec only when the spec has not changed, and no delete of an older spec was committed, "
        "for this many ms",
    ),
    Property(
        "self-optimizing.quota",
        "quota",
        _FINITE,
        "0.5",
        "how many of its group's slots a table may use: a value up to 1 is a share of them, a value above 1 is a number of slots",
    ),
    Property(
        "compaction.health.min-score",
        "min_health_score",
        whole("≥ 0 and ≤ 100", 0, 100),
        "50",
        "the check `tables_healthy` warns when the table's health score is below this number; 0 switches the check off for the table; a "
        "bad value has no effect, and the table is compacted all the same",
        stops=False,
    ),
    Property(
        WATERMARK_KEYS_KEY,
        "watermark_keys",
        Rule(watermark_keys, WATERMARK_KEYS_RULE, bool),
        ",".join(WATERMARK_KEYS),
        "where writers put the watermark, the time up to which the table's data is complete: keys of a snapshot's summary, with ms since "
        "1970, or a time with an offset. The newest snapshot that has one of them counts; commits of this program copy it",
        stops=False,
    ),
    Property(
        WATERMARK_WRITERS_KEY,
        "watermark_writers",
        Rule(watermark_writers, WATERMARK_WRITERS_RULE, bool),
        "none",
        "several writers, each with a key of its own, e.g. `eu:flink.watermark.eu,us:flink.watermark.us`: the lowest of their watermarks "
        "counts, and there is none until each writer was seen; a writer ends when its name is removed",
        stops=False,
    ),
    Property(
        ASSET_KEY,
        "dagster_asset_key",
        Rule(asset_key_levels, ASSET_KEY_RULE, bool),
        "none",
        "the asset of your own Dagster project that stands for the table, e.g. `analytics/orders`; it shows the table's health, its last "
        "compaction and a check; a bad value has no effect, and the table is compacted all the same",
        stops=False,
    ),
)

_RECORDED = "nothing instead: each task is planned by the sizes of its files, and no record of former tasks counts"
_ROW_GROUPS = "nothing instead: a merge copies row groups wherever their rows stay as they are, and encodes the others anew"
_LOOKS = (
    "`COMPACTION_SENSOR_INTERVAL_SECONDS` says how often ticks look at all tables, and a report of a commit (`docs/dagster.md`) has its "
    "table looked at within seconds"
)
_SMALL_FILES = "`self-optimizing.minor.trigger.file-count` and `self-optimizing.minor.trigger.total-size` say when small files are merged"

AMORO_KEYS_NOT_HONOURED: Mapping[str, str] = {
    "self-optimizing.allow-partial-commit": "nothing instead: a commit takes what is merged by then, whatever becomes of other tasks; "
    "only tasks that must be committed together wait for each other",
    "self-optimizing.average-execution-time": _RECORDED,
    "self-optimizing.evaluation.fallback-interval": "nothing instead: each tick judges the nodes that have changed, and those of which an "
    "interval has ended",
    "self-optimizing.evaluation.file-size.mse-tolerance": _SMALL_FILES,
    "self-optimizing.evaluation.interval": _LOOKS,
    "self-optimizing.evaluation.mse-tolerance": _SMALL_FILES,
    "self-optimizing.event-triggered.enabled": _LOOKS,
    "self-optimizing.execute.timeout": "`COMPACTION_TASK_TIMEOUT_SECONDS` bounds the time of an attempt, for all tables",
    "self-optimizing.major.trigger.file-count": "`self-optimizing.min-target-size-ratio` says which files a MAJOR joins",
    "self-optimizing.major.trigger.interval": "`self-optimizing.major.trigger.duplicate-ratio` says which deletes make a MAJOR due, and "
    "`self-optimizing.full.trigger.interval` is an interval",
    "self-optimizing.max-file-size-bytes": "`self-optimizing.target-size` is the size that merged files should have",
    "self-optimizing.max-plan-size-bytes": "`self-optimizing.quota` bounds how much of a table waits or runs at a time, and "
    "`self-optimizing.max-task-size-bytes` bounds a task",
    "self-optimizing.max-retry": "`self-optimizing.execute.num-retries` says how often a task is tried again",
    "self-optimizing.min-target-size-ratio.major": "`self-optimizing.min-target-size-ratio` says which files a MAJOR joins",
    "self-optimizing.num-retries": "`self-optimizing.execute.num-retries` says how often a task is tried again",
    "self-optimizing.refresh-table.adaptive.enabled": _LOOKS,
    "self-optimizing.refresh-table.adaptive.increase-step-ms": _LOOKS,
    "self-optimizing.refresh-table.adaptive.max-interval-ms": _LOOKS,
    "self-optimizing.rewrite.use-parquet-row-group-merge.enabled": _ROW_GROUPS,
    "self-optimizing.rewrite.use-parquet-row-group-merge.min-avg-row-group-size-bytes": _ROW_GROUPS,
}
"""Keys of Amoro that have no effect here, each with what does the same here. They are shown, so that nobody waits for an effect.

They are those of Amoro 0.4 to 0.9, and some that people take for keys of Amoro. Each sentence is right after "it has no effect here; ".
"""
