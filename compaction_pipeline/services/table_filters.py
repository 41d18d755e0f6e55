"""Matches the names of tables with the filters of their catalog. RE2 does it in linear time, so no expression can make a server hang."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache

import re2

from compaction_pipeline.core.catalogs.keys import DATABASE_FILTER, TABLE_FILTER
from compaction_pipeline.core.errors import ConfigError
from compaction_pipeline.core.tables.table import TableIdentifier

_MOST_BYTES = 1 << 20
"""RE2 refuses an expression whose automaton needs more memory than this, and matches with no more than it."""


def why_no_pattern(text: str) -> str | None:
    """Say why a text is no regular expression that RE2 can match; None when it is one."""
    try:
        _compiled(text)
    except ValueError as error:
        return str(error)
    return None


def passing(tables: Iterable[TableIdentifier], properties: Mapping[str, str]) -> tuple[TableIdentifier, ...]:
    """Return those of the tables of a catalog that its filters leave in, in their order.

    `database-filter` must match the namespace, and `table-filter` the namespace and the name with a dot between, each as a whole. Levels of
    a nested namespace have a dot between too. Raises ConfigError when a filter is no expression: nobody knows then which tables it means.
    """
    patterns = _patterns(properties)
    return tuple(one for one in tables if _left_out_by(one, patterns) is None)


def why_left_out(table: TableIdentifier, properties: Mapping[str, str]) -> str | None:
    """Say which filter of its catalog leaves a table out; None when all leave it in. A filter that is no expression leaves nothing out."""
    try:
        key = _left_out_by(table, _patterns(properties))
    except ConfigError:
        return None
    return None if key is None else f"'{key}' of catalog {table.catalog} leaves it out: `catalog change {table.catalog}` changes the filter"


def _patterns(properties: Mapping[str, str]) -> Mapping[str, re2._Regexp]:
    return {key: pattern for key in (DATABASE_FILTER, TABLE_FILTER) if (pattern := _pattern(properties, key)) is not None}


def _left_out_by(table: TableIdentifier, patterns: Mapping[str, re2._Regexp]) -> str | None:
    namespace = ".".join(table.namespace)
    names = {DATABASE_FILTER: namespace, TABLE_FILTER: f"{namespace}.{table.name}"}
    return next((key for key, pattern in patterns.items() if not pattern.fullmatch(names[key])), None)


def _pattern(properties: Mapping[str, str], key: str) -> re2._Regexp | None:
    text = properties.get(key)
    if text is None:
        return None
    try:
        return _compiled(text)
    except ValueError as error:
        raise ConfigError(f"'{key}' is no regular expression that RE2 can match: {error}; correct it with `catalog change`") from error


@lru_cache(256)
def _compiled(text: str) -> re2._Regexp:
    options = re2.Options()
    options.log_errors = False
    options.max_mem = _MOST_BYTES
    try:
        return re2.compile(text, options)
    except re2.error as error:
        reason = error.args[0] if error.args else b""
        raise ValueError(reason.decode(errors="replace") if isinstance(reason, bytes) else str(reason)) from None
    except UnicodeEncodeError:
        raise ValueError("it has a character that is no character of Unicode") from None
