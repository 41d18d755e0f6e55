"""Lists the properties of upkeep, each with its rule, its default and its meaning.

`core/upkeep/retention.py`, `core/upkeep/old_rows.py` and `core/upkeep/manifests.py` make values of them. The table in `docs/settings.md`
is generated from `UPKEEP_PROPERTIES`.
"""

from __future__ import annotations

from datetime import timedelta

from compaction_pipeline.core.tables.property_rules import BOOLEAN, DURATION_RULE, INTERVAL, NEVER, UNITS, Property, Rule, duration, whole
from compaction_pipeline.core.tables.time_pattern import PATTERN_RULE, pattern_parts


def duration_with_unit(text: str) -> timedelta:
    """Read a duration that has a unit. Raises ValueError. Amoro takes 90 for milliseconds, and who writes 90 for rows means days."""
    if text.strip().isdigit():
        raise ValueError(text)
    return duration(text)


def duration_in_unit(duration: timedelta) -> str:
    """Write a duration as `duration_with_unit` reads it, in the largest unit of which it is a whole number: 90min."""
    unit = next(unit for unit in reversed(UNITS) if duration % unit == timedelta(0))
    short = next(name for name in UNITS[unit] if name in ("ms", "s", "min", "h", "d"))
    return f"{duration // unit}{short}"


_DURATION = Rule(duration, DURATION_RULE, lambda value: True)
_MINUTES = Rule(lambda text: duration(f"{int(text)}min"), "a whole number of minutes, at least 0", lambda value: True)
_COUNT = whole("≥ 1 and < 2^31", 1, 2**31 - 1)


_MINUTES = Rule(
    lambda text: min(int(text) * timedelta(minutes=1), NEVER) if int(text) < 2**31 else NEVER,
    "a whole number of minutes ≥ 0",
    lambda value: isinstance(value, timedelta) and value >= timedelta(0),
)


def _names(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip())


ENABLED_KEY = "table-expire.enabled"
CLEANS_ORPHANS_KEY = "clean-orphan-file.enabled"

GC_ENABLED = Property(
    "gc.enabled",
    "gc_enabled",
    BOOLEAN,
    "true",
    "Iceberg's property: with `false` no file of the table is ever deleted, because other tables may have the same files; then no "
    "snapshot expires either, and no row",
)

EXPIRY_PROPERTIES: tuple[Property, ...] = (
    Property(
        "history.expire.max-snapshot-age-ms",
        "max_snapshot_age",
        INTERVAL,
        "432000000",
        "snapshots younger than this many ms are kept; a branch may say another time for itself",
    ),
    Property(
        "history.expire.min-snapshots-to-keep",
        "min_to_keep",
        _COUNT,
        "1",
        "the newest snapshots of each branch are kept, at least this many; a branch may say another number for itself",
    ),
    Property(
        "history.expire.max-ref-age-ms",
        "max_ref_age",
        INTERVAL,
        "never",
        "a tag or a branch whose snapshot is older than this many ms is dropped; the branch main never is, and a ref may say another time "
        "for itself",
    ),
    Property(
        "snapshot.keep.duration",
        "amoro_age",
        _DURATION,
        "0ms",
        "Amoro's property: snapshots younger than this are kept, where this is longer than Iceberg's own property says",
    ),
    Property(
        "snapshot.keep.min-count",
        "amoro_count",
        _COUNT,
        "1",
        "Amoro's property: at least this many snapshots of each branch are kept, where this is more than Iceberg's own property says",
    ),
    Property(
        "snapshot.keep.flink.checkpoint-retention",
        "writer_retention",
        _DURATION,
        "7d",
        "the newest snapshot of each streaming writer is kept for this long, with every snapshot after it: a job of Flink, Spark or Kafka "
        "Connect that starts again looks there for what it has committed, and would write it twice if it found nothing",
    ),
    Property(
        "compaction.expire.grace",
        "grace",
        _DURATION,
        "1h",
        "the files of removed snapshots are deleted this long after the snapshots left the metadata: readers that began before still "
        "need them, and a rollback or a cherry-pick that began before still lands",
    ),
    Property(
        "change.data.ttl.minutes",
        "change_ttl",
        _MINUTES,
        "10080",
        "Amoro's property, of the base store of a keyed table: change files leave the change store when they are in the base store and "
        "landed longer ago than this many minutes",
    ),
    Property(
        ENABLED_KEY,
        "enabled",
        BOOLEAN,
        "false",
        "Amoro's property: whether snapshots of the table, and merged change files of a keyed one, expire by themselves; "
        "`compaction-pipeline maintain expire` and `maintain changes` do it once, whatever this says",
    ),
    Property(
        "data-expire.enabled",
        "rows_expire",
        BOOLEAN,
        "false",
        "Amoro's property: with `true`, old rows of the table are deleted; their age may count from the newest snapshot that is no "
        "compaction, so that snapshot is kept; `compaction-pipeline maintain rows` does it once, whatever this says",
    ),
    GC_ENABLED,
    Property(
        "compaction.catalog-has-branches",
        "catalog_has_branches",
        BOOLEAN,
        "false",
        "set this in a catalog that has branches and tags of its own, as Nessie has: other branches of it need snapshots and files that "
        "this program cannot see, so nothing expires",
    ),
    Property(
        "compaction.writer-keys",
        "writer_keys",
        Rule(_names, "names of snapshot properties, with commas between them", lambda value: isinstance(value, tuple) and bool(value)),
        "none",
        "snapshot properties that name other streaming writers, e.g. `my-etl.job`; the newest snapshot with each of their values is kept "
        "like those of Flink",
    ),
    Property(
        CLEANS_ORPHANS_KEY,
        "cleans_orphans",
        BOOLEAN,
        "false",
        "Amoro's property: whether files that no snapshot names are deleted by themselves, once two looks at least 24 hours apart have "
        "found them; `compaction-pipeline maintain orphans --delete` does it once, whatever this says",
    ),
    Property(
        "clean-orphan-file.min-existing-time-minutes",
        "orphan_age",
        _MINUTES,
        "4320",
        "Amoro's property: a file that is younger than this many minutes is no orphan, because a writer may be about to commit it; less "
        "than 1440 (a day) counts as 1440, and where a streaming writer writes, 10080 (7 days) and "
        "`snapshot.keep.flink.checkpoint-retention` are the least",
    ),
)

TARGET_KEY, MIN_COUNT_KEY = "commit.manifest.target-size-bytes", "commit.manifest.min-count-to-merge"
REWRITE_KEY = "compaction.rewrite-manifests.enabled"

MANIFEST_PROPERTIES: tuple[Property, ...] = (
    Property(
        TARGET_KEY,
        "target_bytes",
        whole("≥ 1 and ≤ 2^60", 1, 2**60),
        "8388608",
        "the size that new manifests should have, in bytes; a manifest below half of it is small",
    ),
    Property(
        MIN_COUNT_KEY,
        "min_count",
        whole("≥ 1 and < 2^31", 1, 2**31 - 1),
        "100",
        "so many small manifests of one content and one partition spec make a rewrite of manifests due; 1 counts as 2",
    ),
    Property(
        REWRITE_KEY,
        "rewritten",
        BOOLEAN,
        "false",
        "whether small manifests of the table are rewritten by themselves; `compaction-pipeline maintain manifests` does it once, whatever "
        "this says",
    ),
)

FIELD_KEY, RETENTION_KEY = "data-expire.field", "data-expire.retention-time"
BY_PARTITION, BY_FILE = "PARTITION", "FILE"
BY_COMMIT, BY_CLOCK = "LAST_COMMIT_TIME", "CURRENT_TIME"


def _one_of(*names: str) -> Rule:
    return Rule(lambda text: text.strip().upper(), " or ".join(names), lambda value: value in names)


def _pattern(text: str) -> str:
    pattern_parts(text)
    return text


ROWS_PROPERTIES: tuple[Property, ...] = (
    Property(
        FIELD_KEY,
        "field",
        Rule(str.strip, "the name of a column", bool),
        "none",
        "the column that has the time of a row: a date, timestamp, timestamptz, long or string; a dot leads into a struct",
    ),
    Property(
        RETENTION_KEY,
        "retention",
        Rule(duration_with_unit, f"{DURATION_RULE}; more than 0", lambda value: isinstance(value, timedelta) and value > timedelta(0)),
        "none",
        "rows with an older time are old; without it no row is",
    ),
    Property(
        "data-expire.level",
        "level",
        _one_of(BY_PARTITION, BY_FILE),
        BY_PARTITION,
        "PARTITION: only whole partitions go; FILE: also single files whose rows are all old; of a keyed table always whole partitions",
    ),
    Property(
        "data-expire.base-on-rule",
        "base_on",
        _one_of(BY_COMMIT, BY_CLOCK),
        BY_COMMIT,
        "from where the age of rows counts: LAST_COMMIT_TIME from the newest snapshot that is no compaction, so a table that nobody writes "
        "keeps its rows; CURRENT_TIME from now",
    ),
    Property(
        "data-expire.datetime-string-pattern",
        "string_pattern",
        Rule(_pattern, PATTERN_RULE, bool),
        "yyyy-MM-dd",
        "how times are written in a string column, in the letters of Java's DateTimeFormatter; they are in UTC",
    ),
    Property(
        "data-expire.datetime-number-format",
        "number_format",
        _one_of("TIMESTAMP_MS", "TIMESTAMP_S"),
        "TIMESTAMP_MS",
        "whether a long column counts milliseconds or seconds since 1970; a number that would be a time before 1980 keeps its file",
    ),
)

UPKEEP_PROPERTIES = (*EXPIRY_PROPERTIES, *ROWS_PROPERTIES, *MANIFEST_PROPERTIES)
