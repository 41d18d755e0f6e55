"""Facts of the inbox as they are stored, also those that this program cannot read."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any

from pydantic import TypeAdapter, ValidationError
from sqlalchemy import Connection, Select, Text, select, type_coerce

from compaction_pipeline.core.dependencies.center.inbox import Fact, SetAside
from compaction_pipeline.core.errors import NotFoundError
from compaction_pipeline.storage import schema

FACT = schema.center_fact.c
TEXT = type_coerce(FACT.value, Text).label("text")
"""What is stored of a fact, whatever it is."""
_AT, _FACT = TypeAdapter(datetime), TypeAdapter(Fact)


def set_aside(most: int) -> Select[tuple[int, str, str]]:
    """A query for the oldest facts that were set aside."""
    return select(FACT.id, TEXT, FACT.problem).where(FACT.problem.is_not(None)).order_by(FACT.id).limit(most)


def set_aside_of(number: int, text: str, problem: str) -> SetAside:
    """What can be read of a fact that was set aside."""
    named = _named(text)
    subject, source = (value if isinstance(value, str) else None for value in (named.get("key"), named.get("source")))
    return SetAside(number, subject, source, said_at(text), problem, text)


def one_set_aside(connection: Connection, number: int) -> SetAside:
    """A fact that was set aside, which this transaction keeps to itself. Raises NotFoundError."""
    found = select(TEXT, FACT.problem).where(FACT.id == number, FACT.problem.is_not(None)).with_for_update()
    row = connection.execute(found).first()
    if row is None:
        raise NotFoundError(f"no fact {number} is set aside: 'compaction-pipeline dependencies set-aside' lists those that are")
    return set_aside_of(number, row.text, row.problem)


def said_at(text: str) -> datetime | None:
    """When somebody said this; None when that cannot be read."""
    try:
        at = _AT.validate_python(_named(text).get("at"))
    except ValidationError:
        return None
    return at if at.tzinfo is not None else None


def fact_of(text: str) -> Fact | None:
    """The fact; None when this program cannot read it."""
    try:
        return _FACT.validate_json(text)
    except ValidationError:
        return None


def _named(text: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}
