"""Values as programs get them in an answer: in JSON, with names as texts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from datetime import date, timedelta
from enum import Enum

from compaction_pipeline.core.tables.node import TableNode
from compaction_pipeline.core.tables.table import TableIdentifier


def plain(value: object) -> object:
    """Return a value of the core in the form of JSON: names as texts, times in ISO 8601, durations in ms."""
    if isinstance(value, (TableIdentifier, TableNode)):
        return str(value)
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, timedelta):
        return round(value.total_seconds() * 1000)
    if is_dataclass(value) and not isinstance(value, type):
        return {item.name: plain(getattr(value, item.name)) for item in fields(value)}
    if isinstance(value, Mapping):
        return {str(plain(key)): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [plain(item) for item in value]
    return value
