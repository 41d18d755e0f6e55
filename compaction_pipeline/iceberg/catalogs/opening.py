"""Opens one catalog with PyIceberg, and says what is wrong with the properties of one that cannot be opened."""

from __future__ import annotations

import os
import re
from typing import Any

from pydantic import ValidationError as Malformed
from pyiceberg.catalog import Catalog, CatalogType, load_catalog
from pyiceberg.catalog.sql import IcebergTables, SqlCatalog
from sqlalchemy import Engine, event, inspect
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError

from compaction_pipeline.core.catalogs.keys import OWN_KEYS
from compaction_pipeline.core.errors import ConfigError
from compaction_pipeline.core.tables.table import CatalogEntry
from compaction_pipeline.file_io.object_io import OBJECT_FILE_IO
from compaction_pipeline.iceberg.failures import translated

CATALOG_NAME_PROPERTY = "catalog-name"
"""The value of this property is passed to PyIceberg as the catalog's name.
The rows of a SQL catalog carry the name that the writing engine gave it."""

_HTTP = re.compile(r"https?://[^/\s]+", re.IGNORECASE)
_TELLS_TYPE = re.compile(r"https?:|thrift:|sqlite|postgresql", re.IGNORECASE)
"""The beginnings by which PyIceberg knows the kind of a catalog."""

_BUSY_TIMEOUT_MS = 30_000
"""How long a writer waits for another writer's lock on a SQLite catalog. Several processes commit at once."""


def open_catalog(entry: CatalogEntry) -> Catalog:
    """Open a catalog as its entry says. Raises ConfigError, StorageUnavailable, AccessDenied."""
    properties = {key: value for key, value in entry.properties.items() if key not in OWN_KEYS}
    name = properties.pop(CATALOG_NAME_PROPERTY, entry.name)
    # PyIceberg would create tables in any database that a misspelled uri names, and SQLite would even create the file.
    creates = properties.setdefault("init_catalog_tables", "false").lower() == "true"
    if not creates:
        _check_database_file(entry)
    _check_type(entry)
    properties.setdefault("py-io-impl", OBJECT_FILE_IO)
    with translated(f"catalog {entry.name!r}"):
        try:
            catalog = load_catalog(name, **properties)
        except Malformed:
            # A REST catalog sent an answer that breaks the rules. pydantic's error is a ValueError too, but the properties may be right.
            # `translated` says what is wrong.
            raise
        except (ImportError, ArgumentError) as error:
            _check_database(entry, error)
            raise
        except ValueError as error:
            raise ConfigError(f"catalog {entry.name!r} cannot be opened: {_reason(error)}") from error
        if isinstance(catalog, SqlCatalog):
            _prepare(entry, catalog)
    return catalog


def _reason(error: ValueError) -> str:
    """What is wrong with the properties of a catalog, and what to do."""
    text = str(error)
    if "URI missing" in text:
        return "'uri' is missing: add -p uri=…"
    if "header" in text.lower():
        # The message repeats the header, and the header may have a token or a password.
        return "a property that is sent as a header, such as 'token', begins with a blank or has a line break; correct its properties"
    if "failed to parse" in text.lower():
        # The message repeats a part of the URL, which may be its password.
        return (
            "'uri' is no URL that can be read: write '/', '#', '?' and '@' of a password as %2F, %23, %3F and %40; correct its properties"
        )
    return f"{text}; correct its properties"


def _check_type(entry: CatalogEntry) -> None:
    kind = entry.properties.get("type")
    known = [one.value for one in CatalogType]
    uri = entry.properties.get("uri")
    if kind is not None and kind.lower() not in known:
        raise ConfigError(f"catalog {entry.name!r}: 'type' is {kind!r} but must be one of {', '.join(known)}; correct it with -p type=…")
    # The message does not repeat the uri, which may hold a password in an unexpected place.
    if kind is not None and kind.lower() == CatalogType.REST.value and uri and not _HTTP.match(uri):
        raise ConfigError(
            f"catalog {entry.name!r}: the 'uri' of a REST catalog must begin with http:// or https:// and name a host; "
            "correct it with -p uri=https://host/path"
        )
    if kind is None and "py-catalog-impl" not in entry.properties and uri and not _TELLS_TYPE.match(uri):
        raise ConfigError(f"catalog {entry.name!r}: 'uri' does not tell the kind of catalog: add -p type=…, one of {', '.join(known)}")


def _check_database(entry: CatalogEntry, error: Exception) -> None:
    """Raise an error that names the supported databases, if the uri names another one."""
    kind = entry.properties.get("type", CatalogType.SQL.value)
    uri = entry.properties.get("uri", "")
    if kind.lower() == CatalogType.SQL.value and not uri.startswith(("sqlite:", "sqlite+", "postgresql:", "postgresql+")):
        raise ConfigError(
            f"catalog {entry.name!r}: 'uri' must name a SQLite or a PostgreSQL database, sqlite:////path/catalog.db or "
            "postgresql://user:password@host/database; no other is supported: correct it with -p uri=…"
        ) from error


def _check_database_file(entry: CatalogEntry) -> None:
    uri = str(entry.properties.get("uri", ""))
    if not uri.startswith("sqlite"):
        return
    with translated(f"catalog {entry.name!r}"):
        path = make_url(uri).database
    if path and path != ":memory:" and not os.path.isfile(path.removeprefix("file:")):
        # NotFoundError would be wrong here: if a disk is not mounted, its tables are not gone, and what is known of them must stay.
        raise ConfigError(f"catalog {entry.name!r} cannot be opened: 'uri' is {uri} but there is no database file {path}: correct the path")


def _prepare(entry: CatalogEntry, catalog: SqlCatalog) -> None:
    if catalog.engine.dialect.name == "sqlite" and catalog.engine.url.database not in (None, "", ":memory:"):
        _wait_for_locks(catalog.engine)
    if not inspect(catalog.engine).has_table(IcebergTables.__tablename__):
        raise ConfigError(
            f"catalog {entry.name!r}: the database of 'uri' has no table {IcebergTables.__tablename__!r}: "
            "it is no Iceberg SQL catalog; correct 'uri', or set init_catalog_tables=true to make it one"
        )


def _wait_for_locks(engine: Engine) -> None:
    @event.listens_for(engine, "connect")
    def configure(connection: Any, record: Any) -> None:
        connection.execute(f"PRAGMA busy_timeout = {_BUSY_TIMEOUT_MS}")
        # A connection that sqlite3.connect opened waits for 5 s by default. A read-only database keeps its journal mode.
        try:
            connection.execute("PRAGMA journal_mode = WAL")
        except Exception:
            return

    # Connections that PyIceberg opened earlier do not have these settings.
    engine.dispose()
