"""The properties that say where the writers of a table put its watermark."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress

from compaction_pipeline.core.tables.summary_keys import OF_OTHERS, owner_of

WATERMARK_KEYS_KEY, WATERMARK_WRITERS_KEY = "compaction.watermark-keys", "compaction.watermark-writers"

WATERMARK_KEYS = ("watermark", "flink.watermark", "kafka.connect.valid-through-ts")
"""The keys of a snapshot's summary under which writers that set none of these properties are looked for: our own sinks and other programs,
Flink sinks with Netflix's addition, and Apache's Kafka Connect."""

WATERMARK_KEYS_RULE = (
    "keys of summaries without spaces, each once, separated by commas; none that says something else, such as `flink.job-id`"
)
WATERMARK_WRITERS_RULE = (
    "`writer:key` pairs separated by commas, each writer and each key once; no key with spaces, and none that says something else"
)


_OF_TABULAR = "kafka.connect.vtts"
"""Kafka Connect wrote it before the connector was Apache's. Nobody looks for it unless a table names it, but expiry keeps it."""

_NOTHING = frozenset({"-1", str(-(2**63)), "null"})
"""What writers say before they know a watermark."""


def says_watermark(summary: Mapping[str, str], key: str) -> bool:
    """Whether a snapshot or a table with this summary, or these properties, says something under this key."""
    return key in summary and summary[key].strip() not in _NOTHING


def keys_that_may_count(properties: Mapping[str, str]) -> tuple[str, ...]:
    """Every key that may hold a watermark of a table with these properties in force, now or when a person changes them. A bad value names
    no key."""
    found = dict.fromkeys((*WATERMARK_KEYS, _OF_TABULAR))
    with suppress(ValueError):
        found |= dict.fromkeys(watermark_keys(properties.get(WATERMARK_KEYS_KEY, "")))
    with suppress(ValueError):
        found |= dict.fromkeys(watermark_writers(properties.get(WATERMARK_WRITERS_KEY, "")).values())
    return tuple(found)


def watermark_keys(text: str) -> tuple[str, ...]:
    """Read a value of `compaction.watermark-keys`. Raises ValueError when it breaks its rule."""
    return _keys(part.strip() for part in text.split(","))


def watermark_writers(text: str) -> Mapping[str, str]:
    """Read a value of `compaction.watermark-writers`: the key of each writer. Raises ValueError when it breaks its rule."""
    pairs = [part.partition(":") for part in text.split(",")]
    writers = {writer.strip(): key.strip() for writer, _, key in pairs}
    if len(writers) != len(pairs) or not all(writers):
        raise ValueError(text)
    _keys(writers.values())
    return writers


def _keys(found: Iterable[str]) -> tuple[str, ...]:
    keys = tuple(found)
    if len(set(keys)) != len(keys) or any(not key or len(key.split()) != 1 or owner_of(key, OF_OTHERS) for key in keys):
        raise ValueError(keys)
    return keys
