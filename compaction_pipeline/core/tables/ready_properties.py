"""Lists the properties that say when a partition of a table is ready, each with its rule, its default and its meaning.

`core/dependencies/ready_when.py` and `core/dependencies/ready_time.py` make values of them. A table has them of itself, of its namespace,
or of its catalog. The table in `docs/settings.md` is generated from `READY_PROPERTIES`.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta

from compaction_pipeline.core.tables.expiry_properties import duration_with_unit
from compaction_pipeline.core.tables.property_rules import DURATION_RULE, Property, Rule
from compaction_pipeline.core.tables.time_pattern import PATTERN_RULE, pattern_parts

READY_WHEN_KEY, READY_TIME_KEY = "compaction.ready-when", "compaction.ready-time"
STANDS_KEY = "compaction.watermark-stands-at-most"
MOST_STANDING = timedelta(hours=24)

WATERMARK, QUIET, EXISTS, FLAG, REPORTED = "watermark", "quiet", "exists", "flag", "reported"
READY_WHEN_RULE = (
    f"one of {WATERMARK}, {QUIET}:<duration>, {EXISTS}, {FLAG}:<key> and {REPORTED}, e.g. {QUIET}:2h; a duration is {DURATION_RULE}; "
    "more than 0"
)
READY_TIME_RULE = (
    "the name of a partition field, and for texts and whole numbers a format down to at most the hour and a time zone, e.g. "
    "dt,yyyyMMdd,Europe/Berlin"
)
_HOUR = 3


def ready_when_parts(text: str) -> tuple[str, timedelta | str | None]:
    """Read a value of `compaction.ready-when`: the rule's word, and the duration or the key behind it. Raises ValueError."""
    word, colon, rest = (part.strip() for part in text.partition(":"))
    if word in (WATERMARK, EXISTS, REPORTED) and not colon:
        return word, None
    if word == QUIET and (duration := duration_with_unit(rest)) > timedelta(0):
        return word, duration
    if word == FLAG and rest:
        return word, rest
    raise ValueError(text)


def ready_time_parts(text: str) -> tuple[str, str, str]:
    """Read a value of `compaction.ready-time`: the field, the format and the zone; the last two may be empty. Raises ValueError.

    Whether the zone exists is not known here: the time zones of a host are no part of this program.
    """
    parts = [part.strip() for part in text.split(",")]
    field, form, zone = parts[0], ",".join(parts[1:-1]), parts[-1] if len(parts) > 1 else ""
    if not field or len(parts) == 2 or (len(parts) > 2 and not zone):
        raise ValueError(text)
    if form and max(unit for unit, _ in pattern_parts(form) if unit is not None) > _HOUR:
        raise ValueError(f"{text}: {PATTERN_RULE}")
    return field, form, zone


def may_stand(properties: Mapping[str, str]) -> timedelta:
    """For how long the watermark of a table with these properties in force may stand. A bad value counts as none."""
    try:
        return duration_with_unit(properties[STANDS_KEY])
    except (KeyError, ValueError):
        return MOST_STANDING


READY_PROPERTIES: tuple[Property, ...] = (
    Property(
        READY_WHEN_KEY,
        "ready_when",
        Rule(ready_when_parts, READY_WHEN_RULE, bool),
        WATERMARK,
        f"when a partition is ready: `{WATERMARK}`, when the table's watermark has reached its end; `{QUIET}:2h`, when no snapshot added "
        f"files to it for two hours; `{FLAG}:KEY`, when a property or a snapshot says so under KEY; `{REPORTED}`, when somebody told it "
        f"over HTTP; `{EXISTS}`, as soon as it has a file, which is mostly before its data is there (`docs/readiness.md`)",
        stops=False,
    ),
    Property(
        READY_TIME_KEY,
        "ready_time",
        Rule(ready_time_parts, READY_TIME_RULE, bool),
        "the only partition field by day, hour, month or year",
        "which partition field has the time of a partition; texts and whole numbers also need their format, in the letters of Java's "
        "DateTimeFormatter, and a time zone: `dt,yyyyMMdd,Europe/Berlin`",
        stops=False,
    ),
    Property(
        STANDS_KEY,
        "watermark_stands_at_most",
        Rule(duration_with_unit, f"{DURATION_RULE}; more than 0", lambda value: isinstance(value, timedelta) and value > timedelta(0)),
        "24h",
        "for how long the watermark of each writer may stand before the check `watermarks_move` is red; `8d` fits a writer that commits "
        "once a week; a bad value has no effect",
        stops=False,
    ),
)
