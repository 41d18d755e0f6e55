"""Decides which properties a person may put into the summaries of the snapshots that this program commits."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from compaction_pipeline.core.errors import ConfigError
from compaction_pipeline.core.tables.summary_keys import OF_OTHERS, owner_of

_STREAMS = "streaming writers own these keys; they read their progress from some of them"
_WATERMARK = "jobs downstream read it as the time up to which the table is complete"

_RESERVED: Mapping[str, str] = {
    **OF_OTHERS,
    "flink.": _STREAMS,
    "kafka.connect.": _STREAMS,
    "watermark": _WATERMARK,
    "watermark.": _WATERMARK,
}


def snapshot_properties(given: Iterable[str]) -> dict[str, str]:
    """Return the keys and values of texts of the form `key=value`. A value may contain `=` and may be empty.

    Raises ConfigError when a text has no key or no `=`, a key is reserved, or a key is given with two different values.
    """
    properties: dict[str, str] = {}
    for text in given:
        key, equals, value = text.partition("=")
        key = key.strip()
        if not key or not equals:
            raise ConfigError(f"snapshot property {text!r} must be key=value, for example --snapshot-property owner=nightly")
        owner = owner_of(key, _RESERVED)
        if owner is not None:
            beginning, why = owner
            rule = f"keys that begin with {beginning!r} are reserved" if beginning[-1] in "-." else "this key is reserved"
            raise ConfigError(f"snapshot property {key!r} is {value!r} but {rule}: {why}; choose another key")
        if properties.setdefault(key, value) != value:
            raise ConfigError(f"snapshot property {key!r} is given as {properties[key]!r} and as {value!r} but must have one value")
    return properties
