"""Says by which rule a table's partitions are ready: the values of `compaction.ready-when`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from compaction_pipeline.core.errors import ConfigError
from compaction_pipeline.core.tables.expiry_properties import duration_in_unit
from compaction_pipeline.core.tables.properties import CATALOG_PREFIX
from compaction_pipeline.core.tables.ready_properties import (
    EXISTS,
    FLAG,
    QUIET,
    READY_WHEN_KEY,
    READY_WHEN_RULE,
    REPORTED,
    WATERMARK,
    ready_when_parts,
)
from compaction_pipeline.core.tables.watermark_keys import WATERMARK_KEYS_KEY, WATERMARK_WRITERS_KEY


@dataclass(frozen=True, slots=True)
class ByWatermark:
    """A partition is ready when the table's watermark has reached its end. This counts where nothing is set."""

    def __str__(self) -> str:
        return WATERMARK


@dataclass(frozen=True, slots=True)
class Quiet:
    """A partition is ready when it has files, and no snapshot but compactions added one for so long."""

    duration: timedelta

    def __str__(self) -> str:
        return f"{QUIET}:{duration_in_unit(self.duration)}"


@dataclass(frozen=True, slots=True)
class Exists:
    """A partition is ready as soon as it has a file."""

    def __str__(self) -> str:
        return EXISTS


@dataclass(frozen=True, slots=True)
class Flag:
    """A partition is ready when a snapshot of main, or a property of the table, says so under this key."""

    key: str

    def __str__(self) -> str:
        return f"{FLAG}:{self.key}"


@dataclass(frozen=True, slots=True)
class Reported:
    """A partition is ready when somebody reported it over HTTP."""

    def __str__(self) -> str:
        return REPORTED


ReadyWhen = ByWatermark | Quiet | Exists | Flag | Reported


def ready_when(properties: Mapping[str, str]) -> ReadyWhen:
    """The rule of a table with these properties in force. Raises ConfigError for a value that breaks the rule of the property."""
    text = properties.get(READY_WHEN_KEY)
    if text is None:
        return ByWatermark()
    try:
        word, rest = ready_when_parts(text)
    except ValueError:
        raise ConfigError(
            f"'{READY_WHEN_KEY}' is {text!r} but must be {READY_WHEN_RULE}: correct the property of the table, of its namespace or of its "
            "catalog"
        ) from None
    made: dict[str, Any] = {WATERMARK: ByWatermark, QUIET: Quiet, EXISTS: Exists, FLAG: Flag, REPORTED: Reported}
    found: ReadyWhen = made[word]() if rest is None else made[word](rest)
    return found


def ready_properties_in_force(table: Mapping[str, str], namespace: Mapping[str, str], catalog: Mapping[str, str]) -> Mapping[str, str]:
    """The properties of a table, with those that only its namespace sets, and then those that its catalog sets for all its tables.

    A namespace writes them as a table does (`compaction.ready-when`), a catalog with the prefix `table.`. Raises ConfigError when a
    namespace says where watermarks are, and the table does not: commits and expiries ask no namespace, so they would neither copy nor
    keep them.
    """
    inherited = {key.removeprefix(CATALOG_PREFIX): value for key, value in catalog.items() if key.startswith(CATALOG_PREFIX)}
    ours = {key: value for key, value in namespace.items() if key.startswith("compaction.")}
    for key in (WATERMARK_KEYS_KEY, WATERMARK_WRITERS_KEY):
        if key in ours and key not in table:
            raise ConfigError(
                f"'{key}' is {ours[key]!r} in the namespace, where commits and expiries do not look, so these watermarks would be lost: "
                f"set it on the table, or take it from the namespace and set '{CATALOG_PREFIX}{key}' on the catalog"
            )
    return {**inherited, **ours, **table}
