"""Which partitions of a table `self-optimizing.filter` leaves in: those that may hold a row for which its condition is true.

The condition is SQL as Amoro understands it. PyIceberg parses it and projects it on the partition values, as a scan does. A condition that
would leave in what its author does not expect is refused: one on a column that tells nothing about a partition, one that compares a column
with a value of another kind, and LIKE, of which PyIceberg reads `_` as no wildcard.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from pyiceberg.expressions import (
    And,
    BooleanExpression,
    BoundPredicate,
    LiteralPredicate,
    Or,
    Reference,
    SetPredicate,
    UnboundPredicate,
)
from pyiceberg.expressions.literals import BooleanLiteral, DecimalLiteral, Literal, LongLiteral, StringLiteral
from pyiceberg.expressions.parser import parse
from pyiceberg.expressions.visitors import bind, expression_evaluator, inclusive_projection, rewrite_not
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import TruncateTransform
from pyiceberg.typedef import Record
from pyiceberg.types import (
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IcebergType,
    IntegerType,
    LongType,
    NestedField,
    StringType,
    TimestampType,
    TimestamptzType,
    TimeType,
    UUIDType,
)
from pyparsing import ParseBaseException

from compaction_pipeline.core.errors import ConfigError
from compaction_pipeline.core.tables.node import Partition, Place
from compaction_pipeline.core.tables.properties import broken_filter
from compaction_pipeline.core.tables.table import TableIdentifier, TableLayout
from compaction_pipeline.merging.single_values import internal_value

_VALUES: Mapping[type[IcebergType], tuple[type[Literal[Any]], ...]] = {
    BooleanType: (BooleanLiteral,),
    IntegerType: (LongLiteral,),
    LongType: (LongLiteral,),
    FloatType: (LongLiteral, DecimalLiteral),
    DoubleType: (LongLiteral, DecimalLiteral),
    DecimalType: (LongLiteral, DecimalLiteral),
    **dict.fromkeys((StringType, DateType, TimeType, TimestampType, TimestamptzType, UUIDType), (StringLiteral,)),
}
"""How the values of a column may be written. PyIceberg would read 2.5 as 2 beside a whole number, and 5 as microseconds beside a time."""
_LOWEST: Mapping[type[IcebergType], int] = {IntegerType: -(2**31), LongType: -(2**63)}
_WORDS = re.compile(
    r"""
    (?P<column>"[^"]+"|[\w.$]+)\s+not\s+between\b
    | (?P<quoted>'(?:[^']|'')*'|"[^"]*")
    | \b(?P<kind>date|timestamp|time)\s*(?=')
    | (?P<like>\blike\b)
    """,
    re.IGNORECASE | re.VERBOSE,
)
_LONGEST_REASON = 200
_LONGEST_QUOTE = 60


def partition_filter(table: TableIdentifier, layout: TableLayout, text: str) -> Callable[[Place], bool]:
    """Return what tells whether a partition of the table may hold a row for which the condition is true.

    Raises ConfigError when the condition is not understood, or when it tells nothing about partitions.
    """
    schema = Schema.model_validate_json(layout.schemas[layout.schema_id])
    specs = {number: PartitionSpec.model_validate_json(spec) for number, spec in layout.specs.items()}
    try:
        condition = _understood(text, schema, specs[layout.default_spec_id])
    except Exception as error:
        # PyIceberg and its parser raise errors of many types. Whatever is wrong, nothing is compacted by a guess.
        raise ConfigError(broken_filter(text, _reason(error), layout.properties, table)) from error
    of_specs = {number: _of_spec(condition, schema, spec) for number, spec in specs.items()}
    return lambda place: of_specs[place[0]](place[1])


def why_no_condition(text: str) -> str | None:
    """Say why a text is a condition for no table at all; None when a table may have the columns that it needs."""
    try:
        _parsed(text)
    except Exception as error:
        # The parser raises errors of many types, as above.
        return _reason(error)
    return None


def _reason(error: Exception) -> str:
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return lines[0][:_LONGEST_REASON]


def _parsed(text: str) -> BooleanExpression:
    """The condition as it is written. Raises an error of any type when it cannot be read."""
    known = _WORDS.sub(_as_pyiceberg_says, text)
    try:
        return parse(known)
    except ParseBaseException as error:
        # The parser's own words list its grammar, and do not say which part of the text is wrong.
        before, rest = known[: error.loc].strip(), known[error.loc :].strip()
        if rest:
            quote = rest if len(rest) <= _LONGEST_QUOTE else f"{rest[:_LONGEST_QUOTE]}…"
            raise ValueError(f"it cannot be read from {quote!r} on") from None
        raise ValueError(f"it ends too early, after {before[-_LONGEST_QUOTE:]!r}" if before else "it is empty") from None


def _understood(text: str, schema: Schema, spec: PartitionSpec) -> BooleanExpression:
    """The condition without NOT. Raises an error of any type when it is not to be used."""
    condition: BooleanExpression = rewrite_not(_parsed(text))
    for unbound in _comparisons(condition):
        if isinstance(unbound, UnboundPredicate):
            _check_values(unbound, schema)
    for bound in _comparisons(bind(schema, condition, case_sensitive=True)):
        # Where no value of its type can be on one side, PyIceberg has put "always" or "never" in place of a comparison.
        if not isinstance(bound, BoundPredicate):
            continue
        column = bound.term.ref().field
        # What no field can tell is taken as true by a projection, so it would leave in every partition.
        if not any(field.transform.project(field.name, bound) is not None for field in spec.fields_by_source_id(column.field_id)):
            known = {schema.find_column_name(field.source_id): str(field.transform) for field in spec.fields}
            partitioned = ", ".join(f"{transform}({name})" for name, transform in known.items() if name is not None)
            raise ValueError(
                f"a condition of this kind on column {schema.find_column_name(column.field_id)} tells nothing about partitions, "
                f"which are by {partitioned or 'nothing'}"
            )
    return condition


def _as_pyiceberg_says(found: re.Match[str]) -> str:
    """Turn the words of Amoro's language that PyIceberg's parser does not know into words that it knows. Quoted texts stay as they are."""
    if found["like"]:
        raise ValueError("LIKE is not supported: compare with =, <, >, BETWEEN or IN")
    if found["column"]:
        return f"not {found['column']} between"
    return found["quoted"] or ""


def _comparisons(condition: BooleanExpression) -> Iterator[BooleanExpression]:
    """The comparisons of a condition. It is made of these, AND and OR."""
    if isinstance(condition, (And, Or)):
        yield from _comparisons(condition.left)
        yield from _comparisons(condition.right)
    else:
        yield condition


def _check_values(predicate: UnboundPredicate, schema: Schema) -> None:
    assert isinstance(predicate.term, Reference)
    name = predicate.term.name
    kind = schema.find_field(name).field_type
    values: set[Literal[Any]] = set(predicate.literals) if isinstance(predicate, SetPredicate) else set()
    if isinstance(predicate, LiteralPredicate):
        values = {predicate.literal}
    for value in values:
        if not isinstance(value, _VALUES.get(type(kind), ())):
            raise ValueError(f"column {name} is a {kind}, which cannot be compared with {value.value!r}")


def _of_spec(condition: BooleanExpression, schema: Schema, spec: PartitionSpec) -> Callable[[Partition], bool]:
    """Tell the same of the partitions of one spec. The values of columns that the table has lost tell nothing."""
    known = [field for field in spec.fields if field.source_id in schema.field_ids]
    types = [field.transform.result_type(schema.find_type(field.source_id)) for field in known]
    fields = [NestedField(field.field_id, field.name, kind, required=False) for field, kind in zip(known, types, strict=True)]
    projected = inclusive_projection(schema, spec, case_sensitive=True)(condition)
    evaluate = expression_evaluator(Schema(*fields), projected, case_sensitive=True)
    pairs = zip(known, types, strict=True)
    ends = [_LOWEST.get(type(kind)) if isinstance(field.transform, TruncateTransform) else None for field, kind in pairs]

    def may_match(partition: Partition) -> bool:
        told = {value.name: value.value for value in partition}
        if not all(field.name in told for field in fields):
            return True
        values = [internal_value(field.field_type, told[field.name]) for field in fields]
        if any(
            lowest is not None and _is_at_an_end(value, field, lowest) for value, field, lowest in zip(values, known, ends, strict=True)
        ):
            return True
        return evaluate(Record(*values))

    return may_match


def _is_at_an_end(value: object, field: PartitionField, lowest: int) -> bool:
    """Whether a truncated whole number is so near an end of its type that nobody knows what it was made of.

    The lowest numbers have no multiple of the width below them in their type: Java wraps around, and PyIceberg leaves the type.
    """
    assert isinstance(field.transform, TruncateTransform)
    return isinstance(value, int) and not lowest + field.transform.width <= value < -lowest - field.transform.width
