"""`self-optimizing.filter`: no partition with a row that matches is left out, and a text that is not understood is refused."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date, datetime, timedelta
from decimal import Decimal

import duckdb
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import (
    BucketTransform,
    DayTransform,
    HourTransform,
    IdentityTransform,
    MonthTransform,
    Transform,
    TruncateTransform,
    VoidTransform,
    YearTransform,
)
from pyiceberg.types import (
    BooleanType,
    DateType,
    DecimalType,
    IntegerType,
    LongType,
    NestedField,
    PrimitiveType,
    StringType,
    StructType,
    TimestampType,
    TimestamptzType,
)

from compaction_pipeline.core.errors import ConfigError
from compaction_pipeline.core.tables.node import Partition, PartitionValue
from compaction_pipeline.core.tables.table import TableIdentifier, TableLayout
from compaction_pipeline.iceberg.partition_filter import partition_filter, why_no_condition
from compaction_pipeline.merging.single_values import single_value

_TABLE = TableIdentifier("lake", ("shop",), "orders")
_TYPES: dict[str, PrimitiveType] = {
    "day": DateType(),
    "moment": TimestampType(),
    "zoned": TimestamptzType(),
    "region": StringType(),
    "number": IntegerType(),
    "big": LongType(),
    "price": DecimalType(6, 2),
    "done": BooleanType(),
}
_SCHEMA = Schema(
    *[NestedField(number, name, kind) for number, (name, kind) in enumerate(_TYPES.items(), 1)],
    NestedField(20, "inner", StructType(NestedField(21, "city", StringType()))),
)
Field = tuple[str, Transform]


def layout(*specs: Sequence[Field], schema: Schema = _SCHEMA) -> TableLayout:
    """The last spec is the current one."""
    texts = {
        number: PartitionSpec(
            *[
                PartitionField(_SCHEMA.find_field(name).field_id, 1000 + place, transform, f"{name}_{transform}".replace("[", "_"))
                for place, (name, transform) in enumerate(fields)
            ],
            spec_id=number,
        ).model_dump_json()
        for number, fields in enumerate(specs)
    }
    own = {"self-optimizing.filter": ""}
    return TableLayout("s3://lake/orders", 2, 0, {0: schema.model_dump_json()}, len(specs) - 1, texts, 0, {}, frozenset(), own)


def partition(fields: Sequence[Field], *values: object) -> Partition:
    """The partition of a row with these values of the source columns, which are Iceberg's internal ones."""
    found = []
    for (name, transform), value in zip(fields, values, strict=True):
        source = _SCHEMA.find_field(name).field_type
        kind = transform.result_type(source)
        assert isinstance(kind, PrimitiveType)
        result = transform.transform(source)(value)
        found.append(PartitionValue(f"{name}_{transform}".replace("[", "_"), str(kind), single_value(kind, result)))
    return tuple(found)


_DAY: Field = ("day", IdentityTransform())
_REGION: Field = ("region", IdentityTransform())
_NUMBER: Field = ("number", IdentityTransform())


@pytest.mark.parametrize(
    ("text", "left_in"),
    [
        ("number = 2", [2]),
        ("number <> 2", [1, 3, None]),
        ("2 < number", [3]),
        ("2 >= number", [1, 2]),
        ("number between 2 AND 3", [2, 3]),
        ("number NOT BETWEEN 2 and 3", [1]),
        ("NOT (number between 2 and 3)", [1]),
        ("number in (1, 3)", [1, 3]),
        ("number not in (1, 3)", [2, None]),
        ("number is null or number = 1", [1, None]),
        ("number IS NOT NULL and not number = 1", [2, 3]),
        ("number = 1 or number = 2 and number = 3", [1]),
        ("(number = 1 or number = 2) and number = 2", [2]),
        ('"number" = -1', []),
        ("number < 3000000000", [1, 2, 3, None]),
        ("true", [1, 2, 3, None]),
        ("false", []),
    ],
)
def test_conditions_of_amoro_are_understood(text: str, left_in: Sequence[int | None]) -> None:
    lets_in = partition_filter(_TABLE, layout([_NUMBER]), text)
    # NULL is not in "not in" in SQL. It is left in, as Iceberg's scans do.
    assert [value for value in (1, 2, 3, None) if lets_in((0, partition([_NUMBER], value)))] == left_in


@pytest.mark.parametrize(
    ("field", "text", "inside", "outside"),
    [
        (_DAY, "day >= '2026-01-02'", 20455, 20454),
        (_DAY, "day = DATE '2026-01-02'", 20455, 20454),
        (("moment", DayTransform()), "moment > TIMESTAMP '2026-01-01T23:59:59'", 20455 * 86_400_000_000, 20453 * 86_400_000_000),
        (("moment", HourTransform()), "moment < '1970-01-01T01:00:00'", 0, 3_600_000_000),
        (("zoned", MonthTransform()), "zoned < '1970-02-01T00:00:00+00:00'", 0, 45 * 86_400_000_000),
        (("zoned", YearTransform()), "zoned < '1971-01-01T00:00:00+00:00'", 0, 400 * 86_400_000_000),
        (_REGION, "region = 'it''s -- not between x and DATE ''y'''", "it's -- not between x and DATE 'y'", "its"),
        (("region", TruncateTransform(2)), "region > 'eu'", "eu-north", "ap"),
        (("big", BucketTransform(4)), "big in (1)", 1, 3),
        (("price", IdentityTransform()), "price = 1.50", Decimal("1.50"), Decimal("1.51")),
        (("done", IdentityTransform()), "done = true", True, False),
    ],
)
def test_every_kind_of_partition_can_be_chosen(field: Field, text: str, inside: object, outside: object) -> None:
    lets_in = partition_filter(_TABLE, layout([field]), text)
    assert lets_in((0, partition([field], inside)))
    assert not lets_in((0, partition([field], outside)))


def test_a_column_inside_another_is_named_with_a_dot() -> None:
    lets_in = partition_filter(_TABLE, layout([("inner.city", IdentityTransform())]), "inner.city = 'x'")
    assert [lets_in((0, (PartitionValue("inner.city_identity", "string", city),))) for city in "xy"] == [True, False]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "it is empty"),
        ("day >", "it cannot be read from 'day >' on"),
        ("day > 2026-01-01", "it cannot be read from '-01-01' on"),
        ("day > '2026-01-01' and", "it ends too early, after \"day > '2026-01-01' and\""),
        ("day > '2026-01-01' -- later", "it cannot be read from '-- later' on"),
        ("days('2026-01-01') < day", "it cannot be read from \"days('2026-01-01') < day\" on"),
        ("day > '2026-01-01'; drop table x", "it cannot be read from '; drop table x' on"),
        ("`day` > '2026-01-01'", "it cannot be read from \"`day` > '2026-01-01'\" on"),
        ("day > 'yesterday'", "yesterday"),
        ("day > '2026-01-01' and true", "valid"),
        ("DAY > '2026-01-01'", "Could not find field with name DAY"),
        ("nothing = 1", "Could not find field with name nothing"),
        ("day = 5", "column day is a date, which cannot be compared with 5"),
        ("day in ('2026-01-01') or big > 2.5", "column big is a long, which cannot be compared with Decimal('2.5')"),
        ("region = 5", "column region is a string, which cannot be compared with 5"),
        ("region LIKE 'e_%'", "LIKE is not supported"),
        ("moment > '2026-01-01 00:00:00'", "must be ISO-8601"),
        ("zoned > '2026-01-01T00:00:00'", "Missing zone offset"),
        (
            "big > 5",
            "column big tells nothing about partitions, which are by identity(day), identity(region), bucket[4](big)",
        ),
        ("region = 'eu' or price = 1.50", "column price tells nothing about partitions"),
        ("region = 'eu' and price = 1.50", "column price tells nothing about partitions"),
    ],
)
def test_what_is_not_understood_is_refused_with_the_name_of_the_property(text: str, why: str) -> None:
    of = layout([_DAY, _REGION, ("big", BucketTransform(4))])
    if "column" not in why:
        of = layout([_DAY, ("moment", DayTransform()), ("zoned", DayTransform())])
    with pytest.raises(ConfigError) as raised:
        partition_filter(_TABLE, of, text)
    told = str(raised.value)
    assert told.startswith(f"lake.shop.orders: 'self-optimizing.filter' is {text!r} but must be a SQL condition without functions, ")
    assert why in told
    assert told.endswith("the table sets it: ALTER TABLE shop.orders SET TBLPROPERTIES ('self-optimizing.filter' = '…')")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("day >", "it cannot be read from 'day >' on"),
        ("upper(day) = 'X'", "it cannot be read from \"upper(day) = 'X'\" on"),
        ("day like 'x'", "LIKE is not supported: compare with =, <, >, BETWEEN or IN"),
        ("day > '2026-01-01' and not region in ('eu')", None),
        ("day not between '2026-01-01' and date '2026-02-01'", None),
    ],
)
def test_what_no_table_can_follow_is_known_without_a_table(text: str, why: str | None) -> None:
    assert why_no_condition(text) == why


def test_an_unpartitioned_table_has_no_partition_to_choose() -> None:
    with pytest.raises(ConfigError, match="column region tells nothing about partitions, which are by nothing"):
        partition_filter(_TABLE, layout([]), "region = 'eu'")


def test_partitions_of_older_specs_are_left_in_where_they_tell_nothing() -> None:
    older = [("big", BucketTransform(4)), ("day", VoidTransform()), _REGION]
    lets_in = partition_filter(_TABLE, layout([], older, [_DAY, _REGION]), "day = '2026-01-02' and region = 'eu'")
    assert lets_in((0, ()))
    assert [lets_in((1, partition(older, 1, None, region))) for region in ("eu", "us")] == [True, False]
    assert not lets_in((2, partition([_DAY, _REGION], 20454, "eu")))


def test_a_column_that_the_table_lost_tells_nothing() -> None:
    kept = Schema(*[field for field in _SCHEMA.fields if field.name != "day"])
    lets_in = partition_filter(_TABLE, layout([_DAY, _REGION], [_REGION], schema=kept), "region = 'eu'")
    assert [lets_in((0, partition([_DAY, _REGION], 1, region))) for region in ("eu", "us")] == [True, False]


# ---- a law, with DuckDB as the judge of SQL

_DUCKDB = duckdb.connect()
_ROWS = st.fixed_dictionaries(
    {
        "day": st.none() | st.dates(date(1969, 12, 20), date(1970, 1, 20)),
        "moment": st.none() | st.datetimes(datetime(1969, 12, 31), datetime(1970, 1, 3)),
        "region": st.none() | st.sampled_from(["", "e", "eu", "eu-north", "eu-south", "us", "it's"]),
        "number": st.none() | st.integers(-4, 4) | st.sampled_from([-(2**31), 2**31 - 1]),
        "price": st.none() | st.integers(-300, 300).map(lambda cents: Decimal(cents).scaleb(-2)),
        "done": st.none() | st.booleans(),
    }
)
_SPECS = st.fixed_dictionaries(
    {
        "day": st.sampled_from([IdentityTransform(), MonthTransform(), YearTransform()]),
        "moment": st.sampled_from([DayTransform(), HourTransform(), MonthTransform()]),
        "region": st.sampled_from([IdentityTransform(), TruncateTransform(2), BucketTransform(3)]),
        "number": st.sampled_from([IdentityTransform(), TruncateTransform(3), BucketTransform(3)]),
        "price": st.sampled_from([IdentityTransform(), TruncateTransform(70)]),
        "done": st.just(IdentityTransform()),
    }
)


_SOME = {
    "day": date(1970, 1, 1),
    "moment": datetime(1970, 1, 1, 5),
    "region": "eu",
    "number": 0,
    "price": Decimal("1.00"),
    "done": True,
}


@st.composite
def _literals(draw: st.DrawFn, name: str) -> str:
    value = draw(_ROWS)[name]
    if value is None:
        value = _SOME[name]
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (int, Decimal)):
        return str(value)
    prefix = draw(st.sampled_from(["", {"day": "DATE ", "moment": "TIMESTAMP "}.get(name, "")]))
    text = value if isinstance(value, str) else value.isoformat()
    return prefix + "'" + text.replace("'", "''") + "'"


@st.composite
def _comparisons(draw: st.DrawFn) -> str:
    name = draw(st.sampled_from(["day", "moment", "region", "number", "price", "done"]))
    one, other = draw(_literals(name)), draw(_literals(name))
    sign = draw(st.sampled_from(["=", "<>", "!="] if name == "done" else ["=", "<>", "<", "<=", ">", ">="]))
    forms = [f"{name} {sign} {one}", f"{one} {sign} {name}", f"{name} is null", f"{name} IS NOT NULL", f"{name} in ({one}, {other})"]
    forms += [f"{name} not in ({one}, {other})"]
    forms += [] if name == "done" else [f"{name} between {one} and {other}", f"{name} NOT BETWEEN {one} and {other}"]
    return draw(st.sampled_from(forms))


_CONDITIONS = st.recursive(
    _comparisons(),
    lambda inner: st.one_of(
        inner.map(lambda one: f"not ({one})"),
        st.tuples(inner, st.sampled_from([" and ", " OR "]), inner).map(lambda parts: f"({parts[0]}){parts[1]}{parts[2]}"),
    ),
    max_leaves=4,
)


def _internal(value: object) -> object:
    if isinstance(value, datetime):
        return (value - datetime(1970, 1, 1)) // timedelta(microseconds=1)
    return (value - date(1970, 1, 1)).days if isinstance(value, date) else value


@pytest.mark.parametrize("value", [-(2**31) - 1, 2**31 - 1])
def test_a_partition_of_the_lowest_number_is_left_in_however_its_writer_truncated_it(value: int) -> None:
    # -2147483649 is what PyIceberg makes of the lowest number, and 2147483647 what Java makes of it, which wraps around.
    lets_in = partition_filter(_TABLE, layout([("number", TruncateTransform(3))]), "number in (0, -2147483648)")
    name = "number_truncate_3]"
    assert lets_in((0, (PartitionValue(name, "int", single_value(IntegerType(), value)),)))
    assert not lets_in((0, (PartitionValue(name, "int", single_value(IntegerType(), 300)),)))


@given(_CONDITIONS, _SPECS, st.lists(_ROWS, min_size=1, max_size=8))
def test_no_partition_with_a_row_that_matches_is_left_out(text: str, spec: dict[str, Transform], values: list[dict[str, object]]) -> None:
    fields, lets_in, refused = list(spec.items()), None, ""
    try:
        lets_in = partition_filter(_TABLE, layout(fields), text)
    except ConfigError as error:
        refused = str(error)
    if lets_in is None:
        assert "tells nothing about partitions" in refused
        return
    types = {"day": pa.date32(), "moment": pa.timestamp("us"), "region": pa.string(), "number": pa.int32(), "price": pa.decimal128(6, 2)}
    rows = pa.table({name: pa.array([row[name] for row in values], types.get(name, pa.bool_())) for name in spec})
    _DUCKDB.register("rows", rows.append_column("place", pa.array(range(len(values)))))
    matching = _DUCKDB.sql(f"select place from rows where {text}").fetchall()
    for (place,) in matching:
        assert lets_in((0, partition(fields, *[_internal(values[place][name]) for name in spec])))
