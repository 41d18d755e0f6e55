"""What a test process does once, though each test asks for it anew: compiling SQL, reading migrations of Dagster, building validators."""

from __future__ import annotations

from typing import Any

from alembic.config import Config
from alembic.script import ScriptDirectory
from fastapi._compat import v2 as fields_of_fastapi
from pydantic import ConfigDict, TypeAdapter
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


def build_validators_once() -> None:
    """Let all FastAPI applications of this process share the validators of their parameters, bodies and answers.

    Each test of the HTTP interface makes an application, and FastAPI builds each of its routes twice.
    """
    known = dict[object, TypeAdapter[Any]]()

    def validator(kind: Any, config: ConfigDict | None = None) -> TypeAdapter[Any]:
        *rules, field = kind.__metadata__
        told = tuple((name, type(value), value) for name, value in field._attributes_set.items())
        key = kind.__origin__, tuple(rules), told
        try:
            found = known.get(key) if config is None else None
        except TypeError:
            # A default value that can be changed is no key.
            return TypeAdapter(kind, config=config)
        if found is None:
            found = TypeAdapter(kind, config=config)
            if config is None:
                known[key] = found
        return found

    vars(fields_of_fastapi)["TypeAdapter"] = validator
