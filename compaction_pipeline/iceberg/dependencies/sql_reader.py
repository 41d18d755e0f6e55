"""Finds the tables that SQL reads and writes, for the dependency center."""

from __future__ import annotations

import logging
from collections.abc import Iterable

from compaction_pipeline.core.dependencies.center.ports import SqlRules, SqlTables
from compaction_pipeline.core.dependencies.center.subjects import TABLE
from compaction_pipeline.core.errors import ConfigError
from compaction_pipeline.core.tables.table import TableIdentifier

# It logs each statement that it does not parse. The answer has them.
logging.getLogger("sqlglot").setLevel(logging.ERROR)


def read_sql(sql: str, rules: SqlRules) -> SqlTables:
    """Return the tables of statements. Raises as `SqlReader`."""
    try:
        from compaction_pipeline.formats.sql_tables import SqlPlace, tables_of
    except ModuleNotFoundError as error:
        if error.name != "sqlglot":
            raise
        raise ConfigError("'sql' is read by sqlglot, which is missing: install 'compaction-pipeline[lineage]', or write 'reads'") from None
    namespace = tuple(level for level in rules.namespace.split(".") if level)
    try:
        found = tables_of(sql, rules.dialect, SqlPlace(rules.catalogs, rules.catalog, namespace))
    except ValueError as error:
        raise ConfigError(str(error)) from None
    return SqlTables(_texts(found.reads), _texts(found.writes), found.unknown)


def _texts(names: Iterable[tuple[str, ...]]) -> tuple[str, ...]:
    return tuple(sorted(f"{TABLE}={TableIdentifier(name[0], name[1:-1], name[-1])}" for name in names))
