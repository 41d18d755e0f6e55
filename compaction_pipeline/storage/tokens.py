"""The TokenStore: the tokens of the HTTP service."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime

from sqlalchemy import Row, bindparam, delete, func, insert, or_, select, update

from compaction_pipeline.core.access.token import Token
from compaction_pipeline.storage import schema
from compaction_pipeline.storage.columns import Moment
from compaction_pipeline.storage.engine import batches, reading, writing
from compaction_pipeline.storage.sql_store import SqlStore

_token = schema.token.c


class SqlTokenStore(SqlStore):
    """Tokens in the state database."""

    def add(self, token: Token) -> None:
        values = {column.name: getattr(token, column.name) for column in schema.token.columns}
        self._write(insert(schema.token).values(values))

    def token(self, token_id: str) -> Token | None:
        row = self._first(select(schema.token).where(_token.token_id == token_id))
        return None if row is None else _of(row)

    def tokens(self) -> Sequence[Token]:
        return tuple(map(_of, self._rows(select(schema.token).order_by(_token.created_at, _token.token_id))))

    def revoke(self, token_id: str, now: datetime) -> bool:
        family = or_(_token.token_id == token_id, _token.parent_id == token_id)
        with writing(self._engine) as connection:
            if connection.execute(select(_token.token_id).where(_token.token_id == token_id)).first() is None:
                return False
            connection.execute(update(schema.token).where(family, _token.revoked_at.is_(None)).values(revoked_at=now))
        return True

    def block(self, token_id: str, now: datetime) -> bool:
        values = {"blocked_at": func.coalesce(_token.blocked_at, bindparam("now", now, type_=Moment))}
        return self._write(update(schema.token).where(_token.token_id == token_id).values(values)) == 1

    def allow(self, token_id: str, now: datetime) -> bool:
        allowed = update(schema.token).where(_token.token_id == token_id).values(blocked_at=None, allowed_at=now)
        return self._write(allowed) == 1

    def optimizers_of(self, token_id: str) -> Sequence[str]:
        query = select(_token.optimizer_id).where(_token.parent_id == token_id, _token.optimizer_id.is_not(None))
        with reading(self._engine) as connection:
            return tuple(sorted(connection.execute(query).scalars()))

    def issuer_of(self, optimizer_id: str) -> str | None:
        query = select(_token.parent_id).where(_token.optimizer_id == optimizer_id, _token.parent_id.is_not(None))
        with reading(self._engine) as connection:
            return connection.execute(query).scalars().first()

    def expire(self, before: datetime, optimizers: Collection[str]) -> int:
        old = select(_token.token_id, _token.revoked_at, _token.optimizer_id).where(_token.created_at < before)
        with writing(self._engine) as connection:
            gone = [
                row.token_id
                for row in connection.execute(old)
                if (row.revoked_at is not None and row.revoked_at < before)
                or (row.optimizer_id is not None and row.optimizer_id not in optimizers)
            ]
            for batch in batches(gone):
                connection.execute(delete(schema.token).where(_token.token_id.in_(batch)))
        return len(gone)


def _of(row: Row[tuple[object, ...]]) -> Token:
    return Token(**row._mapping)
