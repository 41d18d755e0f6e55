"""Column types of the state database: moments in UTC, enums by value, and frozen dataclasses as JSON.

A value that is read equals the value that was written, its type included. A naive datetime is refused.
"""

from __future__ import annotations

from datetime import datetime, timezone
from enum import Enum
from functools import lru_cache
from typing import Any, Generic, TypeVar

from pydantic import TypeAdapter
from sqlalchemy import DateTime, Dialect, Row, String, Text, TypeDecorator

from compaction_pipeline.core.insight.masking import masked_text

E = TypeVar("E", bound=Enum)
StoredRow = Row[Any]
"""A row of a query. Its columns are read by name."""


class Moment(TypeDecorator[datetime]):
    """An aware datetime. It is stored and returned in UTC. SQLite stores it as a text that sorts by time."""

    impl = DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        if value is None:
            return None
        if value.tzinfo is None:
            raise ValueError(f"the moment {value.isoformat()} has no time zone; the state keeps aware datetimes only")
        moment = value.astimezone(timezone.utc)
        return moment.replace(tzinfo=None) if dialect.name == "sqlite" else moment

    def process_result_value(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        if value is None:
            return None
        return value.replace(tzinfo=timezone.utc) if value.tzinfo is None else value.astimezone(timezone.utc)


class Member(TypeDecorator[E], Generic[E]):
    """A member of a `str` enum, by its value."""

    impl = String(32)
    cache_ok = True

    def __init__(self, kind: type[E]) -> None:
        super().__init__()
        self.kind = kind

    def process_bind_param(self, value: E | None, dialect: Dialect) -> str | None:
        return None if value is None else str(value.value)

    def process_result_value(self, value: str | None, dialect: Dialect) -> E | None:
        return None if value is None else self.kind(value)


class Said(TypeDecorator[str]):
    """What an error said, without the secrets that this process knows."""

    impl = Text
    cache_ok = True

    def process_bind_param(self, value: str | None, dialect: Dialect) -> str | None:
        return None if value is None else masked_text(value)


class Json(TypeDecorator[Any]):
    """A value of one type, as the JSON that pydantic makes of it."""

    impl = Text
    cache_ok = True

    def __init__(self, kind: Any, *, remembered: int = 0) -> None:
        """`remembered` is the number of values that stay in memory, so that the same text is not parsed again.

        Readers then share these values, so use it only for types that are immutable.
        """
        super().__init__()
        self.kind = kind
        self.remembered = remembered
        self._adapter: TypeAdapter[Any] = TypeAdapter(kind)
        self._read = lru_cache(remembered)(self._adapter.validate_json) if remembered else self._adapter.validate_json

    def process_bind_param(self, value: Any, dialect: Dialect) -> str | None:
        return None if value is None else self._adapter.dump_json(value).decode()

    def process_result_value(self, value: str | None, dialect: Dialect) -> Any:
        return None if value is None else self._read(value)
