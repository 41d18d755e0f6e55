"""Decides which properties a person may put into the summaries of the snapshots that this program commits."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from compaction_pipeline.core.errors import ConfigError

_COUNTED = "Iceberg counts this and writes it itself"
_STAGED = "Iceberg uses this key to mark snapshots that are staged or made from others"
_PROGRESS = "a streaming writer reads its own progress from it, and would skip data or write data twice"

# Maps the beginning of a key to the reason why only its owner may write the key.
_RESERVED: Mapping[str, str] = {
    "added-": _COUNTED,
    "deleted-": _COUNTED,
    "removed-": _COUNTED,
    "total-": _COUNTED,
    "changed-partition-count": _COUNTED,
    "partitions.": _COUNTED,
    "partition-summaries-included": _COUNTED,
    "manifests-": _COUNTED,
    "entries-processed": _COUNTED,
    "operation": _COUNTED,
    "replace-partitions": _COUNTED,
    "wap.": _STAGED,
    "published-wap-id": _STAGED,
    "source-snapshot-id": _STAGED,
    "flink.": _PROGRESS,
    "kafka.connect.": _PROGRESS,
    "spark.sql.streaming.": _PROGRESS,
    "compaction-pipeline.": "this program finds its own snapshots by it",
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
        for beginning, why in _RESERVED.items():
            if key.startswith(beginning) if beginning[-1] in "-." else key == beginning:
                rule = f"keys that begin with {beginning!r} are reserved" if beginning[-1] in "-." else "this key is reserved"
                raise ConfigError(f"snapshot property {key!r} is {value!r} but {rule}: {why}; choose another key")
        if properties.setdefault(key, value) != value:
            raise ConfigError(f"snapshot property {key!r} is given as {properties[key]!r} and as {value!r} but must have one value")
    return properties
