"""What every store of the state database does: one statement in a transaction of its own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

from sqlalchemy import Engine, Executable, Select

from compaction_pipeline.storage.columns import StoredRow
from compaction_pipeline.storage.engine import asking, writing

T = TypeVar("T")


class SqlStore:
    """A part of the state database."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def _rows(self, query: Executable, **given: Any) -> Sequence[StoredRow]:
        """All rows. `given` has the values of parameters that the query names."""
        with asking(self._engine) as connection:
            return connection.execute(query, given).all()

    def _first(self, query: Executable, **given: Any) -> StoredRow | None:
        with asking(self._engine) as connection:
            return connection.execute(query, given).first()

    def _values(self, query: Select[tuple[T]]) -> Sequence[T]:
        """The only column of each row."""
        with asking(self._engine) as connection:
            return connection.execute(query).scalars().all()

    def _write(self, statement: Executable) -> int:
        """Return how many rows were changed."""
        with writing(self._engine) as connection:
            return connection.execute(statement).rowcount
