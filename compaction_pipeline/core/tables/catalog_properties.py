"""What is wrong with the properties of a catalog that count for its tables: those with the prefix `table.`.

PyIceberg judges the other properties when it opens the catalog.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from difflib import get_close_matches

from compaction_pipeline.core.errors import ConfigError
from compaction_pipeline.core.tables.expiry_properties import UPKEEP_PROPERTIES
from compaction_pipeline.core.tables.properties import CATALOG_PREFIX, OF_KEYED_TABLES, PREFIXES, WRITE_TARGET_KEY, value_of
from compaction_pipeline.core.tables.property_rules import AMORO_KEYS_NOT_HONOURED, DELTA_REWRITE_KEY, FILTER_KEY, FILTER_RULE, PROPERTIES
from compaction_pipeline.core.tables.ready_properties import READY_PROPERTIES

_BY_KEY = {item.key: item for item in (*PROPERTIES, *UPKEEP_PROPERTIES, *READY_PROPERTIES)}
_TARGET = next(item for item in PROPERTIES if item.attribute == "target_size_bytes")
_HONOURED = frozenset({*_BY_KEY, WRITE_TARGET_KEY})
_ALIKE = 0.8
"""A key without one of our prefixes is a typing mistake when it is so much like one of ours, from 0 to 1."""


def nearest_key(key: str) -> str | None:
    """Return the property that an unknown key most likely means. Its prefix need not be ours. None when none is near."""
    found = get_close_matches(key, sorted(_HONOURED), 1, 0 if key.startswith(PREFIXES) else _ALIKE)
    return found[0] if found else None


def check_catalog_properties(
    catalog: str, properties: Mapping[str, str], why_no_condition: Callable[[str], str | None] = lambda text: None
) -> None:
    """Raise one ConfigError for everything that is wrong: each key, its value, its rule, and the nearest key for one that nobody knows.

    `why_no_condition` says why a text is no filter for any table. Without it, every filter passes that is not empty.
    """
    problems = [
        problem for key, value in sorted(properties.items()) if (problem := property_problem(key, value, why_no_condition)) is not None
    ]
    if problems:
        raise ConfigError(f"catalog {catalog!r}: {'; '.join(problems)}; correct the properties of the catalog")


def without_effect(properties: Mapping[str, str]) -> tuple[str, ...]:
    """Return a sentence for each property that is right, but that does nothing when a catalog sets it for its tables."""
    inherited = {key: key.removeprefix(CATALOG_PREFIX) for key in sorted(properties) if key.startswith(CATALOG_PREFIX)}
    return tuple(f"'{key}' has no effect: {why}" for key, own in inherited.items() if (why := _why_without_effect(own)) is not None)


def property_problem(key: str, value: str, why_no_condition: Callable[[str], str | None]) -> str | None:
    """Return what is wrong with one property, if it counts for tables, or lacks the prefix with which it would; None when nothing is."""
    if not key.startswith(CATALOG_PREFIX):
        return _without_prefix(key)
    own = key.removeprefix(CATALOG_PREFIX)
    if own in _HONOURED:
        try:
            value_of(_BY_KEY.get(own, _TARGET), value)
        except ValueError as error:
            return f"'{key}' is {error}"
        why = why_no_condition(value.strip()) if own == FILTER_KEY else None
        return f"'{key}' is {value!r} but must be {FILTER_RULE}: {why}" if why is not None else None
    if own in AMORO_KEYS_NOT_HONOURED or own.startswith(OF_KEYED_TABLES):
        return None
    near = nearest_key(own)
    return None if near is None else f"there is no property '{key}'; do you mean '{CATALOG_PREFIX}{near}'?"


def _without_prefix(key: str) -> str | None:
    """Say that a property of tables lacks the prefix. PyIceberg would take the key, and nobody would read it."""
    if key in _HONOURED or key.startswith(PREFIXES):
        near: str | None = key if key in _HONOURED else nearest_key(key)
        return f"'{key}' is a property of tables: write '{CATALOG_PREFIX}{near}' to set it for all tables of the catalog"
    return None


def _why_without_effect(key: str) -> str | None:
    if key == DELTA_REWRITE_KEY or key.startswith(OF_KEYED_TABLES):
        return "only a table itself can set it"
    if key in AMORO_KEYS_NOT_HONOURED:
        return f"this program does not follow this property of Amoro; {AMORO_KEYS_NOT_HONOURED[key]}"
    if key not in _HONOURED:
        return f"of its catalog's properties a table inherits only those that begin with {_listed(PREFIXES)}, and '{WRITE_TARGET_KEY}'"
    return None


def _listed(texts: Collection[str]) -> str:
    return " or ".join(f"'{text}'" for text in texts)
