"""Whether two registered catalogs are one: the same database or service under two names.

A table of both would have two names here. It would be planned twice, and a pause of one name would not hold for the other.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Mapping
from urllib.parse import SplitResult, parse_qs, urlsplit

from compaction_pipeline.core.tables.catalog_types import catalog_type_of
from compaction_pipeline.core.tables.table import CatalogEntry

_PORTS = {"http": 80, "https": 443, "postgresql": 5432, "thrift": 9083}
_REGIONS = ("glue.region", "client.region", "region_name")


def same_catalog(entry: CatalogEntry, registered: Iterable[CatalogEntry]) -> tuple[CatalogEntry, str] | None:
    """Return the registered catalog of another name that is this one, and what both have in common, without secrets.

    None when there is none. Two texts may name one place in ways that only the place itself knows, so None proves nothing.
    """
    place = _place(entry)
    if place is None:
        return None
    return next(((other, place) for other in registered if other.name != entry.name and _place(other) == place), None)


def _place(entry: CatalogEntry) -> str | None:
    """Return where a catalog's list of tables is, in its normal form. None when the properties do not tell.

    Users, passwords and the warehouse of a SQL or Hive catalog do not belong to it: they do not change which tables there are.
    """
    if entry.unreadable is not None:
        return None
    properties = entry.properties
    uri = properties.get("uri", "").strip()
    kind = catalog_type_of(properties)
    if kind == "glue":
        region = next((properties[key] for key in _REGIONS if key in properties), "the default region")
        return f"the Glue catalog {properties.get('glue.id', 'of the account')} in {region}"
    if not uri or uri.endswith(":memory:"):
        return None
    if kind == "sql":
        return f"the database {_database(uri)} and the catalog name {properties.get('catalog-name', entry.name)}"
    if kind == "hive":
        return f"the metastore {','.join(sorted(_address(one) for one in uri.split(',')))}"
    return f"the address {_address(uri)}{_warehouse(properties)}"


def _warehouse(properties: Mapping[str, str]) -> str:
    named = [(key, properties[key].rstrip("/")) for key in ("warehouse", "prefix") if properties.get(key)]
    return "".join(f", the {key} {value}" for key, value in named)


def _database(uri: str) -> str:
    parts = _split(uri)
    if parts.scheme == "sqlite":
        path = parts.path.removeprefix("/").removeprefix("file:")
        return f"sqlite:///{posixpath.normpath(path)}"
    # libpq also takes the host and the port from the query.
    asked = {key: values[-1] for key, values in parse_qs(parts.query).items()}
    host = parts.hostname or asked.get("host", "localhost").lower()
    port = _port(parts) or asked.get("port") or _PORTS["postgresql"]
    return f"postgresql://{host}:{port}/{parts.path.strip('/') or parts.username or ''}"


def _address(uri: str) -> str:
    parts = _split(uri.strip())
    port = _port(parts) or _PORTS.get(parts.scheme)
    return f"{parts.scheme}://{parts.hostname or ''}{'' if port is None else f':{port}'}{posixpath.normpath(parts.path or '/').rstrip('/')}"


def _split(uri: str) -> SplitResult:
    """Split a URI whose scheme has no driver, and has its present name."""
    scheme, separator, rest = uri.partition("://")
    if not separator:
        scheme, separator, rest = uri.partition(":")
    scheme = scheme.lower().partition("+")[0]
    try:
        return urlsplit(f"{'postgresql' if scheme == 'postgres' else scheme}{separator}{rest}")
    except ValueError:
        # Brackets that are not closed. PyIceberg refuses such a URI later, with its own words.
        return SplitResult(scheme, "", rest, "", "")


def _port(parts: SplitResult) -> int | None:
    try:
        return parts.port
    except ValueError:
        return None
