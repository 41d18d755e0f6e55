"""What a test process does once, though each test asks for it anew: it compiles SQL, and reads the migrations of Dagster."""

from __future__ import annotations

from typing import Any

from alembic.config import Config
from alembic.script import ScriptDirectory
from sqlalchemy.dialects.sqlite.pysqlite import SQLiteDialect_pysqlite
from sqlalchemy.engine import Engine
from sqlalchemy.util import LRUCache

_CACHE = "_compiled_cache"
"""The attribute of an engine that holds its cache."""
_READ = "from_config"
"""The class method that reads migrations. It is called on the class alone."""
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


def compile_statements_once() -> None:
    """Let all SQLite databases of this process share the SQL that SQLAlchemy compiled.

    An engine has a cache of its own, and most tests open two databases: the state and a catalog. Compiling the same statements anew for
    each was a seventeenth of the CPU time of the tests of services.
    """
    # The key of a compiled statement holds the dialect, which by itself equals no other one.
    own = {"__eq__": lambda one, other: type(one) is type(other), "__hash__": lambda one: hash(type(one))}
    for name, method in own.items():
        setattr(SQLiteDialect_pysqlite, name, method)
    setattr(Engine, _CACHE, _Shared())


def read_migrations_once() -> None:
    """Let all instances of Dagster in this process share the migrations that alembic read.

    An instance compares the version of two or three databases with Dagster's newest migration. By itself it imports all migrations for
    each.
    """
    read, known = ScriptDirectory.from_config, dict[object, ScriptDirectory]()

    def from_config(config: Config) -> ScriptDirectory:
        places = config.config_file_name, config.get_main_option("script_location"), config.get_main_option("version_locations")
        if places not in known:
            known[places] = read(config)
        return known[places]

    setattr(ScriptDirectory, _READ, from_config)
