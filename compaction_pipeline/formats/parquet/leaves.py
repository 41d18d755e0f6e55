"""The leaf columns of an Iceberg schema, as a Parquet file has them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from pyiceberg.schema import Schema
from pyiceberg.types import IcebergType, ListType, MapType, NestedField, PrimitiveType, StructType


@dataclass(frozen=True)
class Leaf:
    """A primitive column of a schema. `name` is its name in Iceberg; `repeated` says whether it lies inside a list or map."""

    field_id: int
    name: str
    parquet_path: str
    type: PrimitiveType
    repeated: bool


def leaves(schema: Schema) -> list[Leaf]:
    """The primitive columns, in the order in which a Parquet file has them."""
    return [leaf for each in schema.fields for leaf in _leaves(each, each.name, each.name, False)]


def _leaves(each: NestedField, name: str, path: str, repeated: bool) -> Iterator[Leaf]:
    kind: IcebergType = each.field_type
    if isinstance(kind, StructType):
        for child in kind.fields:
            yield from _leaves(child, f"{name}.{child.name}", f"{path}.{child.name}", repeated)
    elif isinstance(kind, ListType):
        yield from _leaves(kind.element_field, f"{name}.element", f"{path}.list.element", True)
    elif isinstance(kind, MapType):
        yield from _leaves(kind.key_field, f"{name}.key", f"{path}.key_value.key", True)
        yield from _leaves(kind.value_field, f"{name}.value", f"{path}.key_value.value", True)
    elif isinstance(kind, PrimitiveType):
        yield Leaf(each.field_id, name, path, kind, repeated)
