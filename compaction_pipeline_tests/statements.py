"""What the databases of this process are asked: the state database, Dagster's, and catalogs. Tests count it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from sqlalchemy import Engine, event


@contextmanager
def statements() -> Iterator[list[str]]:
    """The SQL statements that are executed meanwhile, each with its parameters."""
    asked: list[str] = []

    def note(_: object, __: object, statement: str, parameters: object, *___: Any) -> None:
        asked.append(f"{' '.join(statement.split())} {parameters}")

    event.listen(Engine, "before_cursor_execute", note)
    try:
        yield asked
    finally:
        event.remove(Engine, "before_cursor_execute", note)
