"""Opens the registered catalogs with PyIceberg and keeps them open, lists and loads their tables, and says when a table is gone.

A catalog is opened again when its properties change, or what their references stand for. Nothing is created: a database file that does not
exist is an error.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from hashlib import sha256
from threading import Lock
from typing import Any, TypeVar

from pyiceberg.catalog import Catalog
from pyiceberg.catalog.sql import IcebergNamespaceProperties, IcebergTables, SqlCatalog
from pyiceberg.exceptions import NoSuchNamespaceError
from pyiceberg.table import Table
from pyiceberg.typedef import Identifier
from sqlalchemy import select, union
from sqlalchemy.orm import Session

from compaction_pipeline.core.errors import AccessDenied, CompactionError, ConfigError, NotFoundError, StorageUnavailable
from compaction_pipeline.core.tables.listing import CatalogListing
from compaction_pipeline.core.tables.table import CatalogEntry, TableIdentifier
from compaction_pipeline.iceberg.catalogs.bounded_hive import use_bounded_hive_catalogs
from compaction_pipeline.iceberg.catalogs.etags import etags
from compaction_pipeline.iceberg.catalogs.glue_tables import is_glue, other_formats, use_bounded_glue_catalogs
from compaction_pipeline.iceberg.catalogs.http_answers import http_answer
from compaction_pipeline.iceberg.catalogs.inline_manifests import accept_inline_manifests
from compaction_pipeline.iceberg.catalogs.listings import THREADS, Listed, kind_of, list_catalog
from compaction_pipeline.iceberg.catalogs.opening import CATALOG_NAME_PROPERTY, open_catalog
from compaction_pipeline.iceberg.catalogs.raw_tables import RawTable, read_raw_table
from compaction_pipeline.iceberg.catalogs.rest_catalog import BoundedRestCatalog, RequestLimits, noted_etag, use_bounded_rest_catalogs
from compaction_pipeline.iceberg.catalogs.secret_values import SecretValues
from compaction_pipeline.iceberg.catalogs.sql_catalog import BoundedSqlCatalog, use_bounded_sql_catalogs
from compaction_pipeline.iceberg.failures import translated
from compaction_pipeline.iceberg.second_look import looked_at_twice

T = TypeVar("T")
R = TypeVar("R")


class Catalogs:
    """Opens catalogs and loads tables. Raises NotFoundError (for a table), ConfigError, StorageUnavailable, TableRefused."""

    def __init__(
        self,
        entry_of: Callable[[str], CatalogEntry],
        limits: RequestLimits = RequestLimits(),
        secrets: SecretValues | None = None,
        filled: Callable[[CatalogEntry], CatalogEntry] = lambda entry: entry,
        *,
        threads: int = THREADS,
    ) -> None:
        """`filled` puts stored site files in place of their names (`iceberg/catalogs/site_files.py`).

        `threads` is how many requests a listing has under way.
        """
        self._entry_of = entry_of
        self._secrets = secrets or SecretValues()
        self._filled = filled
        self._threads = threads
        self._etags = etags
        self._open: dict[str, tuple[Mapping[str, str], Catalog]] = {}
        self._opening: dict[str, Lock] = {}
        accept_inline_manifests()
        self._limits = limits
        use_bounded_rest_catalogs(limits)
        use_bounded_sql_catalogs(limits)
        use_bounded_hive_catalogs(limits)
        use_bounded_glue_catalogs(limits)

    def trying(self, entry: CatalogEntry) -> Catalogs:
        """The same catalogs, but for one that is as this entry says. It is opened anew."""
        return Catalogs(
            lambda name: entry if name == entry.name else self._entry_of(name),
            self._limits,
            self._secrets,
            self._filled,
            threads=self._threads,
        )

    def catalog(self, name: str) -> Catalog:
        """The open catalog with this registered name."""
        try:
            entry = self._filled(self._secrets.resolved(self._entry_of(name)))
        except NotFoundError:
            self._open.pop(name, None)
            self._opening.pop(name, None)
            self._secrets.forget(name)
            raise
        # Threads share an open catalog: its sessions of HTTP, its engine or its client of AWS. Our Hive catalog connects for each call.
        # One that is slow to open keeps nobody from another one. `setdefault` of a dict is atomic.
        with self._opening.setdefault(name, Lock()):
            opened = self._open.get(name)
            if opened is None or opened[0] != entry.properties:
                opened = (dict(entry.properties), open_catalog(entry))
                self._open[name] = opened
        return opened[1]

    def in_threads(self, ask: Callable[[T], R], items: Sequence[T]) -> list[R]:
        """The answers to questions about these items, in their order, with as many under way as there are threads."""
        with ThreadPoolExecutor(self._threads, thread_name_prefix="catalog") as pool:
            return list(pool.map(ask, items))

    def load(self, table: TableIdentifier) -> Table:
        """The table with its newest metadata. Raises NotFoundError only when the catalog does not list the table either."""
        catalog = self.catalog(table.catalog)
        with noted_etag() as given:
            loaded = _answered(catalog, table, catalog.load_table)
        self._secrets.vended(str(table), loaded.io.properties)
        if given:
            self._note(catalog, table, given[-1], loaded.metadata_location)
        return loaded

    def load_raw(self, table: TableIdentifier, known: str | None = None) -> RawTable | None:
        """The table's newest metadata as JSON, of any format and with any columns. Raises as `load`, but refuses nothing that it reads.

        `known` is a place of metadata that the caller has read before. None is returned when the newest metadata is still there.
        """
        catalog = self.catalog(table.catalog)
        etag = self._etags.etag(_identity(catalog), table, known) if known and isinstance(catalog, BoundedRestCatalog) else None
        raw = _answered(catalog, table, partial(read_raw_table, catalog, known=known, etag=etag))
        if raw is not None:
            self._secrets.vended(str(table), raw.io.properties)
            if raw.etag is not None and raw.location is not None:
                self._note(catalog, table, raw.etag, raw.location)
        return raw

    def namespace_properties(self, table: TableIdentifier, namespace: Identifier) -> Mapping[str, str]:
        """The properties of the namespace of a table that was loaded just now, or of a level above it. Empty where the catalog has none.

        A namespace that counted as empty for a moment would give its tables another rule for that moment. So this raises AccessDenied when
        we may not see it, and StorageUnavailable when the catalog has the table, or lists the level, and says that it does not exist.
        Raises NotFoundError when the table is gone too.
        """
        catalog, what = self.catalog(table.catalog), f"namespace {'.'.join(namespace)} of catalog {table.catalog!r}"
        found = _namespace_properties(catalog, what, namespace)
        if found is None:
            found = _namespace_properties(catalog, what, namespace)
        if found is not None:
            return found
        if namespace != table.namespace and not _is_level_listed(table.catalog, catalog, namespace):
            # The upper level of a namespace need not be there.
            return {}
        self.load_raw(table)
        raise StorageUnavailable(
            f"{what} has table {table}, and the catalog says that the namespace does not exist: its properties may say when the table is "
            "ready; see that the catalog is healthy, and try again later, or create the namespace if it is missing"
        )

    def _note(self, catalog: Catalog, table: TableIdentifier, etag: str, location: str) -> None:
        if isinstance(catalog, BoundedRestCatalog):
            self._etags.note(_identity(catalog), table, etag, location)

    def tables(self, name: str) -> tuple[TableIdentifier, ...]:
        """Every table of every namespace, nested ones included, sorted. Raises as `listing` does, and also when a namespace fails."""
        return self._listed(name).tables()

    def listing(self, name: str) -> CatalogListing:
        """What the catalog answers when it is asked for its namespaces and for the tables of each, several at a time.

        A namespace that fails is in the listing, with the reason. Raises ConfigError for a SQL catalog without any namespace under its
        name, if its database holds other names. Most likely Spark or Flink gave the catalog one of these.
        """
        return self._listed(name).listing

    def _listed(self, name: str) -> Listed:
        catalog = self.catalog(name)
        listed = list_catalog(name, catalog, self._threads)
        if isinstance(catalog, BoundedSqlCatalog) and not listed.listing.tables and not self._has_namespaces(name, catalog):
            others = self.other_names(name)
            if others:
                raise ConfigError(
                    f"catalog {name!r} holds nothing under the name {catalog.name!r}, but its database holds tables of "
                    f"{', '.join(map(repr, others))}: register it with -p {CATALOG_NAME_PROPERTY}={others[0]}"
                )
        return listed

    def _has_namespaces(self, name: str, catalog: BoundedSqlCatalog) -> bool:
        with translated(f"catalog {name!r}"):
            return bool(catalog.namespaces_and_tables())

    def unmoved(self, name: str, known: Mapping[TableIdentifier, str]) -> frozenset[TableIdentifier]:
        """Those of these tables of a REST catalog whose newest metadata is at the known place. Other catalogs answer in `locations`.

        One request is sent for each table, with its ETag if one is known. A table whose question fails is left out. A place with a blank
        may stand for several files, so such a table is left out too.
        """
        catalog = self.catalog(name)
        if not isinstance(catalog, BoundedRestCatalog):
            return frozenset()
        identity = _identity(catalog)

        def is_unmoved(table: TableIdentifier) -> bool:
            location = known[table]
            before = self._etags.etag(identity, table, location)
            try:
                with translated(f"table {table}"):
                    unmoved, etag = catalog.unchanged(iceberg_identifier(table), location, before)
            except CompactionError:
                # The look at the table itself says what is wrong.
                return False
            if etag is not None and etag != before:
                self._etags.note(identity, table, etag, location)
            return unmoved

        asked = [table for table, location in known.items() if location and " " not in location]
        return frozenset(table for table, unmoved in zip(asked, self.in_threads(is_unmoved, asked), strict=True) if unmoved)

    def still_at(self, name: str, known: Mapping[TableIdentifier, str]) -> frozenset[TableIdentifier]:
        """Those of these tables of a catalog whose newest metadata is at the known place.

        A SQL catalog is asked by one query for some hundreds of tables, and others for each table, a REST catalog as in `unmoved`. A table
        whose question fails is left out.
        """
        catalog = self.catalog(name)
        if isinstance(catalog, BoundedRestCatalog):
            return self.unmoved(name, known)
        if isinstance(catalog, BoundedSqlCatalog):
            with translated(f"catalog {name!r}"):
                found = catalog.locations_of([iceberg_identifier(table) for table in known])
            return frozenset(table for table, location in known.items() if found.get(iceberg_identifier(table)) == location)

        def is_there(table: TableIdentifier) -> bool:
            try:
                return self.load_raw(table, known[table]) is None
            except CompactionError:
                return False

        tables = list(known)
        return frozenset(table for table, there in zip(tables, self.in_threads(is_there, tables), strict=True) if there)

    def is_absent(self, table: TableIdentifier) -> bool:
        """Whether the catalog says of this table itself that it does not exist. No namespace is asked. Raises when it does not tell."""
        try:
            _asked(table, self.catalog(table.catalog).load_table)
        except NotFoundError:
            return True
        return False

    def every_table(self, name: str) -> tuple[TableIdentifier, ...]:
        """Every table as `tables` lists them, for those who delete what no table needs. So a fault must not hide a table.

        A server, or a proxy before it, may answer "not found" for a moment, or an empty list. So a namespace, or a list of namespaces, that
        has nothing is asked for once more. Raises StorageUnavailable for a namespace that is listed, and does not exist when it is asked.
        """
        catalog = self.catalog(name)
        if isinstance(catalog, SqlCatalog):
            # A query of a database tells all or fails.
            return self.tables(name)
        found: set[TableIdentifier] = set()
        with translated(f"catalog {name!r}"):
            waiting: list[Identifier] = _surely(lambda: _top_namespaces(name, catalog)) or []
            asked: set[Identifier] = set()
            while waiting:
                namespace = tuple(waiting.pop())
                if namespace in asked:
                    continue
                asked.add(namespace)
                tables = _surely(partial(catalog.list_tables, namespace))
                children = _surely(partial(_children, catalog, namespace))
                if tables is None or children is None:
                    if namespace in _listed_beside(name, catalog, namespace):
                        raise StorageUnavailable(
                            f"catalog {name!r} lists the namespace {'.'.join(namespace)}, and says that it does not exist when asked "
                            "for what is in it: tables there may be hidden; see that the catalog is healthy, and try again later"
                        )
                    continue
                found.update(TableIdentifier(name, tuple(levels[:-1]), levels[-1]) for levels in tables)
                waiting.extend(children)
        return tuple(sorted(found))

    def names_beside(self, table: TableIdentifier) -> tuple[str, ...]:
        """The names of all tables in the namespace of a table, its own name included, as the catalog lists them now."""
        with translated(f"namespace {'.'.join(table.namespace)} of catalog {table.catalog!r}"):
            return tuple(levels[-1] for levels in self.catalog(table.catalog).list_tables(table.namespace))

    def locations(self, name: str) -> Mapping[TableIdentifier, str]:
        """The metadata locations of all tables that a listing tells: SQL, Hive and Glue. Empty for REST."""
        if kind_of(self.catalog(name)) not in ("SqlCatalog", "HiveCatalog", "GlueCatalog"):
            return {}
        return {table: location for table, location in self._listed(name).listing.tables.items() if location}

    def hidden(self, name: str) -> Sequence[tuple[str, str]]:
        """The tables of other formats in a catalog of Hive or Glue, which it does not list: their names with their locations.

        Empty for other kinds of catalogs, which have Iceberg tables alone, or do not tell of others.
        """
        catalog: Any = self.catalog(name)
        of_hive = type(catalog).__name__ == _HIVE
        if not of_hive and not is_glue(catalog):
            return ()
        found: list[tuple[str, str | None]] = []
        with translated(f"catalog {name!r}"):
            if of_hive:
                found += [(table, location) for table, _, location in catalog.others()]
            else:
                found += [one for levels in _namespaces(name, catalog) for one in other_formats(catalog, levels[0])]
        return [(table, location) for table, location in found if location]

    def other_names(self, name: str) -> tuple[str, ...]:
        """The other catalog names in the database of a SQL catalog. Empty for other kinds."""
        catalog = self.catalog(name)
        if not isinstance(catalog, SqlCatalog):
            return ()
        with translated(f"catalog {name!r}"), Session(catalog.engine) as session:
            statement = union(select(IcebergTables.catalog_name), select(IcebergNamespaceProperties.catalog_name))
            return tuple(sorted(other for other in session.execute(statement).scalars() if other != catalog.name))


def _answered(catalog: Catalog, table: TableIdentifier, ask: Callable[[Identifier], R]) -> R:
    try:
        return _asked(table, ask)
    except NotFoundError as error:
        # A proxy or a catalog that starts may answer "not found" for a moment. The program must not forget the table for that.
        if _is_listed(catalog, table):
            raise StorageUnavailable(
                f"table {table}: its catalog lists it, or its namespace, and answers that it does not exist; "
                "try again later, and restore its metadata file if that is missing"
            ) from error
        if len(table.namespace) == 1:
            raise
        dotted = TableIdentifier(table.catalog, table.namespace[:1], ".".join((*table.namespace[1:], table.name)))
        raise NotFoundError(f"{error}; a level that holds a dot stands in backticks: {dotted}") from error


@looked_at_twice
def _asked(table: TableIdentifier, ask: Callable[[Identifier], R]) -> R:
    with translated(f"table {table}"):
        return ask(iceberg_identifier(table))


def _is_listed(catalog: Catalog, table: TableIdentifier) -> bool:
    """Whether the catalog lists the table, or lists its namespace and does not list the tables of that."""
    with translated(f"catalog {table.catalog!r}"):
        try:
            return iceberg_identifier(table) in map(tuple, catalog.list_tables(table.namespace))
        except NoSuchNamespaceError:
            return table.namespace in _namespaces(table.catalog, catalog)


def _namespace_properties(catalog: Catalog, what: str, namespace: Identifier) -> Mapping[str, str] | None:
    """The properties of a namespace, none in a catalog that knows no such properties; None when it says that there is no such namespace."""
    try:
        with translated(what):
            return dict(catalog.load_namespace_properties(namespace))
    except NotFoundError:
        return None
    except AccessDenied as error:
        raise AccessDenied(f"{error}; they must let its properties be read, which may say when a table is ready") from error
    except CompactionError as error:
        answer = http_answer(error.__cause__) if error.__cause__ is not None else None
        if isinstance(error.__cause__, NotImplementedError) or (answer is not None and answer.status == _NOT_ALLOWED):
            return {}
        raise


def _is_level_listed(name: str, catalog: Catalog, namespace: Identifier) -> bool:
    with translated(f"catalog {name!r}"):
        return namespace in _listed_beside(name, catalog, namespace)


def _identity(catalog: BoundedRestCatalog) -> Hashable:
    """What tells this catalog from every other, also after its properties were changed. Secrets are not kept: a digest stands for them."""
    return sha256(repr((catalog.name, sorted(catalog.properties.items()))).encode(errors="surrogatepass")).hexdigest()


def iceberg_identifier(table: TableIdentifier) -> Identifier:
    """The identifier of a table inside its catalog, which does not hold our name of the catalog."""
    return (*table.namespace, table.name)


_NOT_ALLOWED = 405
"""The HTTP status of a server that knows no such request."""

_HIVE = "BoundedHiveCatalog"
"""The class of our Hive catalog. Its module needs packages that are installed only where Hive is used."""


def _surely(ask: Callable[[], Sequence[Identifier]]) -> list[Identifier] | None:
    """What a catalog lists. It is asked twice when it answers with nothing, or that there is no such namespace; None for the latter."""
    answer: list[Identifier] | None = None
    for _ in range(2):
        try:
            answer = list(ask())
        except NoSuchNamespaceError:
            continue
        if answer:
            break
    return answer


def _listed_beside(name: str, catalog: Catalog, namespace: Identifier) -> list[Identifier]:
    """The namespaces that the level above a namespace lists now; none when that level is gone too."""
    if len(namespace) == 1:
        return [tuple(one) for one in _top_namespaces(name, catalog)]
    return _surely(partial(_children, catalog, namespace[:-1])) or []


def _children(catalog: Catalog, namespace: Identifier) -> list[Identifier]:
    """The namespaces of the next level. Hive and Glue answer the full list to every question, so only real children are told."""
    try:
        return [tuple(child) for child in catalog.list_namespaces(namespace) if len(child) > len(namespace)]
    except NotImplementedError:
        return []


def _namespaces(name: str, catalog: Catalog) -> list[Identifier]:
    found: list[Identifier] = []
    waiting = _top_namespaces(name, catalog)
    while waiting:
        namespace = tuple(waiting.pop())
        if namespace in found:
            continue
        found.append(namespace)
        try:
            waiting.extend(_children(catalog, namespace))
        except NoSuchNamespaceError:
            continue
    return found


def _top_namespaces(name: str, catalog: Catalog) -> list[Identifier]:
    try:
        return list(catalog.list_namespaces())
    except NoSuchNamespaceError as error:
        # Every REST catalog can list its namespaces. So a 'not found' here means that the configured path is wrong.
        answer = http_answer(error)
        if answer is None:
            raise
        raise ConfigError(
            f"catalog {name!r} answered {answer} when asked for its namespaces; correct 'uri', 'prefix' or 'warehouse'"
        ) from error
