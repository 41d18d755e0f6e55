"""Lets all SQLite databases of a test process share the SQL that SQLAlchemy compiled.

An engine has a cache of its own, and most tests open two databases: the state and a catalog. Compiling the same statements anew for each
was a seventeenth of the CPU time of the tests of services.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy.dialects.sqlite.pysqlite import SQLiteDialect_pysqlite
from sqlalchemy.engine import Engine
from sqlalchemy.util import LRUCache

_CACHE = "_compiled_cache"
"""The attribute of an engine that holds its cache."""
_MOST = 4_000
"""The number of statements that are kept. The tests of `fast` use fewer."""


class _Shared:
    """The cache of an engine: one for all engines of SQLite, and for each other engine its own."""

    def __init__(self) -> None:
        self._kept: LRUCache[Any, Any] = LRUCache(_MOST)

    def __get__(self, engine: Any, of: type) -> Any:
        return self._kept if type(engine.dialect) is SQLiteDialect_pysqlite else vars(engine)[_CACHE]

    def __set__(self, engine: Any, own: Any) -> None:
        vars(engine)[_CACHE] = own


def share_compiled_statements() -> None:
    # The key of a compiled statement holds the dialect, which by itself equals no other one.
    own = {"__eq__": lambda one, other: type(one) is type(other), "__hash__": lambda one: hash(type(one))}
    for name, method in own.items():
        setattr(SQLiteDialect_pysqlite, name, method)
    setattr(Engine, _CACHE, _Shared())
