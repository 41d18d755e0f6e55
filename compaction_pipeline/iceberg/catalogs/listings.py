"""Lists the tables of a catalog, with its namespaces asked in threads. A namespace that fails is reported, and hides no other.

A table is never asked for. Hive, Glue and SQL catalogs tell the place of each table's metadata in the listing itself.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from typing import Any

from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import NoSuchNamespaceError
from pyiceberg.typedef import Identifier

from compaction_pipeline.core.errors import CompactionError, ConfigError
from compaction_pipeline.core.tables.listing import CatalogListing, Namespace
from compaction_pipeline.core.tables.table import TableIdentifier
from compaction_pipeline.iceberg.catalogs.glue_tables import told_tables
from compaction_pipeline.iceberg.catalogs.hive_tables import is_iceberg, kind_in_words, metadata_location
from compaction_pipeline.iceberg.catalogs.http_answers import http_answer
from compaction_pipeline.iceberg.catalogs.sql_catalog import BoundedSqlCatalog
from compaction_pipeline.iceberg.failures import translated

THREADS = 10

_Located = Mapping[Identifier, str | None]
_Others = Mapping[Identifier, str]


@dataclass(frozen=True)
class Listed:
    """A listing, with the errors of the namespaces that failed in it."""

    listing: CatalogListing
    errors: Sequence[CompactionError] = ()

    def tables(self) -> tuple[TableIdentifier, ...]:
        """Every table, sorted. Raises the error of a namespace that failed: without it nobody can say that a table is nowhere."""
        for error in self.errors:
            raise error
        return tuple(sorted(self.listing.tables))


def list_catalog(name: str, catalog: Catalog, threads: int = THREADS) -> Listed:
    """List every namespace of an open catalog, nested ones included, with at most so many requests at a time.

    Raises CompactionError when the catalog does not tell
    its namespaces. When a namespace fails, the listing says why.
    """
    if isinstance(catalog, BoundedSqlCatalog):
        return Listed(_of_sql(name, catalog))
    return _Walk(name, catalog).run(threads)


def kind_of(catalog: Catalog) -> str:
    """The name of PyIceberg's class that this catalog is, or is made from."""
    names = [base.__name__ for base in type(catalog).__mro__]
    return next((each for each in ("HiveCatalog", "GlueCatalog", "SqlCatalog", "RestCatalog") if each in names), names[0])


def _of_sql(name: str, catalog: BoundedSqlCatalog) -> CatalogListing:
    with translated(f"catalog {name!r}"):
        located = catalog.located()
    return CatalogListing({TableIdentifier(name, tuple(levels[:-1]), levels[-1]): location for levels, location in located.items()})


@dataclass
class _Answer:
    """What one namespace answered: its tables and its lower namespaces, each or the reason why there is none."""

    namespace: Namespace
    tables: _Located = field(default_factory=dict)
    others: _Others = field(default_factory=dict)
    below: Sequence[Namespace] = ()
    failed: CompactionError | None = None
    failed_below: CompactionError | None = None
    missing: bool = False


class _Walk:
    """One listing of a catalog from its upper namespaces down."""

    def __init__(self, name: str, catalog: Catalog) -> None:
        self._name = name
        self._catalog = catalog
        self._kind = kind_of(catalog)
        self._listed = _WITH_LOCATIONS.get(self._kind, _names_alone)

    def run(self, threads: int) -> Listed:
        with translated(f"catalog {self._name!r}"):
            first = self._namespaces(())
        found: dict[Namespace, _Answer] = {}
        asked: set[Namespace] = set()
        with ThreadPoolExecutor(threads, thread_name_prefix="listing") as pool:
            waiting: set[Future[_Answer]] = set()

            def ask(namespaces: Sequence[Namespace]) -> None:
                for namespace in namespaces:
                    if namespace not in asked:
                        asked.add(namespace)
                        waiting.add(pool.submit(self._ask, namespace))

            ask(first)
            while waiting:
                done, _ = wait(waiting, return_when=FIRST_COMPLETED)
                waiting -= done
                for each in done:
                    answer = each.result()
                    found[answer.namespace] = answer
                    ask(answer.below)
        answers = found.values()
        errors = [error for answer in answers for error in (answer.failed, answer.failed_below) if error is not None]
        empty = {each.namespace for each in answers if not each.tables and each.failed is None and not each.missing}
        listing = CatalogListing(
            tables={
                TableIdentifier(self._name, tuple(levels[:-1]), levels[-1]): location
                for answer in answers
                for levels, location in answer.tables.items()
            },
            failed={each.namespace: str(error) for each in answers if (error := each.failed or each.failed_below) is not None},
            denied_below=frozenset(each.namespace for each in answers if each.failed_below is not None),
            missing=frozenset(each.namespace for each in answers if each.missing),
            empty=frozenset(empty if first else {()}),
            others={".".join((self._name, *levels)): kind for answer in answers for levels, kind in sorted(answer.others.items())},
        )
        return Listed(listing, errors)

    def _namespaces(self, above: Namespace) -> Sequence[Namespace]:
        catalog = self._catalog
        try:
            listed = catalog.list_namespaces(above) if above else catalog.list_namespaces()
        except NoSuchNamespaceError as error:
            if above:
                return ()
            # Every REST catalog can list its namespaces. So a 'not found' here means that the configured path is wrong.
            answer = http_answer(error)
            if answer is None:
                raise
            raise ConfigError(
                f"catalog {self._name!r} answered {answer} when asked for its namespaces; correct 'uri', 'prefix' or 'warehouse'"
            ) from error
        except NotImplementedError:
            return ()
        # Hive and Glue answer the full list to every question, so only real children are followed.
        return [each for each in map(tuple, listed) if len(each) > len(above)]

    def _ask(self, namespace: Namespace) -> _Answer:
        answer = _Answer(namespace)
        what = f"namespace {'.'.join(namespace)} of catalog {self._name!r}"
        try:
            with translated(what):
                try:
                    answer.tables, answer.others = self._listed(self._catalog, namespace)
                except NoSuchNamespaceError:
                    # The namespace was dropped meanwhile, or is only the upper level of another one, or its catalog errs.
                    answer.missing = True
        except CompactionError as error:
            answer.failed = error
        if self._kind in _FLAT:
            return answer
        try:
            with translated(what):
                answer.below = self._namespaces(namespace)
        except CompactionError as error:
            answer.failed_below = error
        return answer


_FLAT = ("HiveCatalog", "GlueCatalog")
"""Their namespaces have one level."""


def _names_alone(catalog: Any, namespace: Namespace) -> tuple[_Located, _Others]:
    return {tuple(levels): None for levels in catalog.list_tables(namespace)}, {}


def _of_hive(catalog: Any, namespace: Namespace) -> tuple[_Located, _Others]:
    located: dict[Identifier, str | None] = {}
    others: dict[Identifier, str] = {}
    for row in catalog.rows(namespace):
        name = (row.dbName, row.tableName)
        if is_iceberg(row):
            located[name] = metadata_location(row)
        else:
            others[name] = kind_in_words(row)
    return located, others


def _of_glue(catalog: Any, namespace: Namespace) -> tuple[_Located, _Others]:
    try:
        located, others = told_tables(catalog, namespace[0])
        return (
            {(namespace[0], table): location for table, location in located.items()},
            {(namespace[0], table): kind for table, kind in others.items()},
        )
    except catalog.glue.exceptions.EntityNotFoundException as error:
        raise NoSuchNamespaceError(f"Database does not exist: {namespace[0]}") from error


_WITH_LOCATIONS: Mapping[str, Callable[[Any, Namespace], tuple[_Located, _Others]]] = {"HiveCatalog": _of_hive, "GlueCatalog": _of_glue}
