"""Finds the tables that SQL statements read and write, by their full names.

Names of CTEs and of views are none of them: a view stands for what its statement reads. A statement that changes rows by what is in the
table (MERGE, UPDATE, DELETE) reads it, too. What is not understood is returned as such, and never left out.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from sqlglot import TokenType, exp, parse_one, tokenize
from sqlglot.dialects.dialect import Dialect
from sqlglot.errors import SqlglotError

Name = tuple[str, ...]
"""The parts of a table's full name: its catalog, its namespaces, and its own name."""

MOST_CHARACTERS = 200_000
_QUERIES = (exp.Select, exp.SetOperation, exp.Subquery, exp.Values)
_MOVE_NO_ROWS = (exp.Alter, exp.Comment, exp.Describe, exp.Drop, exp.Refresh, exp.Set, exp.Show, exp.TruncateTable, exp.Uncache)
_MAKE_ROWS = {"explode", "generate_series", "inline", "json_tuple", "posexplode", "range", "sequence", "stack", "unnest"}
"""Functions that make rows from their arguments alone."""
_FILES = {"avro", "binaryfile", "csv", "delta", "iceberg", "json", "orc", "parquet", "text"}
"""What stands before the path of a file: parquet.`s3://…`."""
_METADATA = {
    "all_data_files", "all_delete_files", "all_entries", "all_files", "all_manifests", "data_files", "delete_files", "entries", "files",
    "history", "manifests", "metadata_log_entries", "partitions", "position_deletes", "refs", "snapshots",
}  # fmt: skip
_TEMPLATE = re.compile(r"\{\{.*?\}\}|\{%.*?%\}|\{#.*?#\}|\$\{.*?\}|\{\w+\}|%\(\w+\)s", re.DOTALL)
"""What is filled in before a statement runs: by Jinja, by a shell or Spark, or by Python."""
_FILLED_IN = "filled_in_before_it_runs"
"""A name that stands for a template, so that other names of its statement can be read, and one that it is a part of cannot."""
_VERSIONS = ("at_timestamp_", "branch_", "snapshot_id_", "tag_")


@dataclass(frozen=True, slots=True)
class SqlPlace:
    """Where names without a catalog or a namespace are: `catalogs` are all that exist, `catalog` ("" for none) and `namespace` are what
    counts until a USE says otherwise."""

    catalogs: frozenset[str] = frozenset()
    catalog: str = ""
    namespace: Name = ()


@dataclass(frozen=True, slots=True)
class SqlTables:
    """The tables that statements read and write. `unknown` has a sentence for each thing that was not understood."""

    reads: frozenset[Name]
    writes: frozenset[Name]
    unknown: tuple[str, ...]


def dialects() -> list[str]:
    """The names of dialects that are understood."""
    return sorted(name for name in Dialect.classes if name)


def tables_of(sql: str, dialect: str, place: SqlPlace) -> SqlTables:
    """The tables of a script of statements. Raises ValueError for an unknown dialect, and for a script that is too long."""
    if dialect not in Dialect.classes or not dialect:
        raise ValueError(f"the dialect {dialect!r} is unknown; there are {', '.join(dialects())}")
    if len(sql) > MOST_CHARACTERS:
        raise ValueError(f"the SQL has {len(sql)} characters but may have {MOST_CHARACTERS}: name the tables by hand")
    script = _Script(place)
    try:
        statements = list(_statements(sql, dialect))
    except SqlglotError as error:
        return SqlTables(frozenset(), frozenset(), (f"{_start(sql)}: {_first_line(error)}",))
    for text in statements:
        script.take(text, dialect)
    return SqlTables(frozenset(script.reads), frozenset(script.writes), tuple(script.unknown))


def _statements(sql: str, dialect: str) -> Iterator[str]:
    """The texts of the statements, so that one with an error does not hide the others."""
    start, is_empty = 0, True
    for token in tokenize(sql, dialect=dialect):
        if token.token_type is not TokenType.SEMICOLON:
            is_empty = False
            continue
        if not is_empty:
            yield sql[start : token.start]
        start, is_empty = token.end + 1, True
    if not is_empty:
        yield sql[start:]


def _names(text: str, dialect: str, name: str) -> bool:
    """Whether a name, or a part of one, stands in a statement outside of texts and comments."""
    try:
        return any(name in token.text for token in tokenize(text, dialect=dialect) if token.token_type is not TokenType.STRING)
    except SqlglotError:
        return False


@dataclass
class _Script:
    """What the statements so far have said."""

    place: SqlPlace
    reads: set[Name] = field(default_factory=set)
    writes: set[Name] = field(default_factory=set)
    unknown: list[str] = field(default_factory=list)
    _views: dict[Name, frozenset[Name]] = field(default_factory=dict)
    """By full name; of one that is gone when the script has ended, by its name alone, in lower case."""
    _text: str = ""

    def take(self, text: str, dialect: str) -> None:
        filled_in = _TEMPLATE.sub(_FILLED_IN, text)
        # One in a comment or in a text names no table.
        template = _TEMPLATE.search(text) if _names(filled_in, dialect, _FILLED_IN) else None
        if template is None:
            self._take_text(text, dialect)
            return
        before = list(self.unknown)
        self._take_text(filled_in, dialect)
        # What else is not understood follows from it.
        self.unknown[:] = before
        self._text = text
        self._note(
            f"it is a template, and what {' '.join(template[0].split())} stands for is known only when it is filled in: give the SQL as it "
            "runs, or name its tables in 'reads' and 'produces'"
        )

    def _take_text(self, text: str, dialect: str) -> None:
        self._text = text
        try:
            self._take(parse_one(text, dialect=dialect))
        except SqlglotError as error:
            self._note(f"it cannot be read as SQL of {dialect}: {_first_line(error)}")
        except RecursionError:
            self._note("it is nested too deeply")
        except _NotKnownError as error:
            self._note(str(error))

    def _note(self, problem: str) -> None:
        self.unknown.append(f"{_start(self._text)}: {problem}")

    def _take(self, statement: exp.Expr) -> None:
        if isinstance(statement, exp.Use):
            self._use(statement)
        elif isinstance(statement, exp.MultitableInserts):
            self.reads |= self._read(statement, [_target(one) for one in statement.expressions])
            for one in statement.expressions:
                self._write(one)
        elif isinstance(statement, exp.Cache) or (isinstance(statement, exp.Create) and _is_view(statement)):
            reads, target = self._read(statement, [_target(statement)]), _parts(_target(statement))
            is_temporary = isinstance(statement, exp.Cache) or _has(statement, exp.TemporaryProperty)
            self._views[(target[-1].lower(),) if is_temporary else self._full(target)] = reads
        elif isinstance(statement, exp.Create):
            self._create(statement)
        elif isinstance(statement, exp.Insert | exp.LoadData):
            self.reads |= self._read(statement, [_target(statement)])
            self._write(statement)
        elif isinstance(statement, exp.Merge | exp.Update | exp.Delete):
            self.reads |= self._read(statement, [])
            self._write(statement)
        elif isinstance(statement, _QUERIES):
            self.reads |= self._read(statement, [])
        elif not isinstance(statement, _MOVE_NO_ROWS):
            raise _NotKnownError("this kind of statement is not understood")

    def _use(self, statement: exp.Use) -> None:
        target = statement.this
        if not isinstance(target, exp.Table):
            raise _NotKnownError("this kind of statement is not understood")
        kind = str(statement.args.get("kind") or "").upper()
        names = _parts(target)
        # Spark's USE NAMESPACE is read as a table with an alias.
        if names == ("NAMESPACE",) and target.alias:
            kind, names = "NAMESPACE", (target.alias,)
        catalogs = self.place.catalogs
        if kind == "CATALOG" or (not kind and len(names) == 1 and names[0] in catalogs):
            self.place = SqlPlace(catalogs, names[0])
        elif not kind and names[0] in catalogs:
            self.place = SqlPlace(catalogs, names[0], names[1:])
        else:
            self.place = SqlPlace(catalogs, self.place.catalog, names)

    def _create(self, statement: exp.Create) -> None:
        # A table that is made without rows waits for nothing.
        if statement.kind in ("TABLE", "VIEW") and (statement.expression is not None or statement.args.get("clone") is not None):
            self.reads |= self._read(statement, [_target(statement)])
            self._write(statement)

    def _write(self, statement: exp.Expr) -> None:
        target = _target(statement)
        if target is None:
            return
        name = self._full(_parts(target))
        if name != _plain(name):
            raise _NotKnownError(f"it writes {'.'.join(name)}, which becomes visible when somebody publishes it")
        self.writes.add(name)

    def _read(self, statement: exp.Expr, targets: list[exp.Table | None]) -> frozenset[Name]:
        found: set[Name] = set()
        for table in statement.find_all(exp.Table):
            if any(table is target for target in targets) or isinstance(table.parent, exp.LikeProperty | exp.Reference) or _is_cte(table):
                continue
            if isinstance(table.parent, exp.Schema) and isinstance(table.parent.parent, exp.Reference):
                continue
            try:
                found |= self._seen(table)
            except _NotKnownError as error:
                self._note(str(error))
        return frozenset(found)

    def _seen(self, table: exp.Table) -> frozenset[Name]:
        if isinstance(table.this, exp.Func):
            _check_function(table.this)
            return frozenset()
        parts = _parts(table)
        if len(parts) == 1 and (parts[0].lower(),) in self._views:
            return self._views[(parts[0].lower(),)]
        if len(parts) == 2 and parts[0].lower() in _FILES and ("/" in parts[1] or ":" in parts[1]):
            raise _NotKnownError(f"it reads files: {parts[1]}")
        name = _plain(self._full(parts))
        return self._views.get(name, frozenset({name}))

    def _full(self, parts: Name) -> Name:
        place = self.place
        if len(parts) > 2 and parts[0] in place.catalogs:
            return parts
        full = (place.catalog, *parts) if len(parts) > 1 else (place.catalog, *place.namespace, *parts)
        if not place.catalog or len(full) < 3 or parts[0] in place.catalogs:
            raise _NotKnownError(f"the name {'.'.join(parts)} has no catalog or no namespace: say which")
        return full


class _NotKnownError(Exception):
    """Something in a statement is not understood."""


def _target(statement: exp.Expr) -> exp.Table | None:
    """The table that a statement writes; None when it writes files."""
    target = statement.this
    while isinstance(target, exp.Schema):
        target = target.this
    return target if isinstance(target, exp.Table) else None


def _is_view(statement: exp.Create) -> bool:
    return statement.kind == "VIEW" and not _has(statement, exp.MaterializedProperty)


def _has(statement: exp.Expr, kind: type[exp.Property]) -> bool:
    properties = statement.args.get("properties")
    return properties is not None and any(isinstance(one, kind) for one in properties.expressions)


def _parts(table: exp.Table | None) -> Name:
    """The name of a table as it is written."""
    if table is None or not all(isinstance(part, exp.Identifier) and _FILLED_IN not in part.name for part in table.parts):
        raise _NotKnownError(f"the name of a table is known only when it runs: {'nothing' if table is None else table.sql()}")
    return tuple(part.name for part in table.parts)


def _plain(name: Name) -> Name:
    """The table of a name that may add a snapshot, a branch or a metadata table: lake.db.t.branch_b, lake.db.t.files, lake.db.t$files."""
    own = name[-1].partition("$")
    if own[1] and own[2].lower() in _METADATA:
        return (*name[:-1], own[0])
    last = name[-1].lower()
    return name[:-1] if len(name) > 3 and (last in _METADATA or last.startswith(_VERSIONS)) else name


def _check_function(function: exp.Func) -> None:
    name = function.name if isinstance(function, exp.Anonymous) else function.sql_name()
    if name.lower() not in _MAKE_ROWS:
        raise _NotKnownError(f"it reads the function {name}, which may read tables")


def _is_cte(table: exp.Table) -> bool:
    """Whether a name is that of a CTE that can be seen from where it stands."""
    if len(table.parts) > 1 or not isinstance(table.this, exp.Identifier):
        return False
    inner: exp.Expr = table
    node, left = table.parent, None
    while node is not None:
        if isinstance(node, exp.With):
            left = node
            known = node.expressions if node.args.get("recursive") else _before(node, inner)
        else:
            found = node.args.get("with_")
            known = [] if found is None or found is left else found.expressions
        if any(one.alias.lower() == table.name.lower() for one in known):
            return True
        inner, node = node, node.parent
    return False


def _before(ctes: exp.With, inner: exp.Expr) -> list[exp.Expr]:
    """The CTEs that stand before one. It cannot see itself, nor those behind it."""
    return ctes.expressions[: next(place for place, one in enumerate(ctes.expressions) if one is inner)]


def _start(text: str) -> str:
    """How a statement begins, for people."""
    words = " ".join(text.split())
    return repr(words if len(words) <= 60 else words[:57] + "…")


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0].strip().rstrip(".")
