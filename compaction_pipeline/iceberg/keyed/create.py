"""Creates the two stores of a keyed table (Amoro: `MixedTables`)."""

from __future__ import annotations

import time
from collections.abc import Mapping

from pyiceberg.exceptions import NoSuchNamespaceError, TableAlreadyExistsError
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.typedef import Identifier

from compaction_pipeline.core.errors import ConfigError, NotFoundError
from compaction_pipeline.core.tables.keyed.creation import KeyedOptions, PartitionColumn, check_new_table, store_properties
from compaction_pipeline.core.tables.kinds import is_store
from compaction_pipeline.core.tables.property_rules import DELTA_REWRITE_KEY
from compaction_pipeline.iceberg.catalogs import Catalog
from compaction_pipeline.iceberg.failures import translated


def create_stores(
    catalog: Catalog,
    identifier: Identifier,
    schema: Schema,
    spec: PartitionSpec,
    options: KeyedOptions,
    properties: Mapping[str, str],
) -> None:
    """Create both stores, or neither. The change store is called `<name>_change_`.

    Raises ConfigError for a table that must not be created, or whose names are taken, and NotFoundError when there is no such namespace.
    """
    columns = {field.name: str(field.field_type) for field in schema.fields}
    check_new_table(columns, [_partition_column(schema, field) for field in spec.fields], options)
    change_name = (*identifier[:-1], f"{identifier[-1]}_change_")
    base, change = store_properties(options, ".".join(change_name), int(time.time() * 1000))
    taken = [key for key in properties if key in base or key == DELTA_REWRITE_KEY or is_store({key: properties[key]})]
    if taken:
        raise ConfigError(f"property {taken[0]!r} of a keyed table is set by the program; leave it out, and use the arguments of `create`")
    # The change store is created first. If the second step fails, a change store is left that every reader refuses, and no half table.
    _create(catalog, change_name, schema, spec, {**properties, **change})
    try:
        _create(catalog, identifier, schema, spec, {**properties, **base})
    except BaseException:
        with translated(f"table {'.'.join(change_name)}"):
            catalog.drop_table(change_name)
        raise


def _create(catalog: Catalog, identifier: Identifier, schema: Schema, spec: PartitionSpec, properties: dict[str, str]) -> None:
    name = ".".join(identifier)
    with translated(f"table {name}"):
        try:
            catalog.create_table(identifier, schema, partition_spec=spec, properties=properties)
        except TableAlreadyExistsError as error:
            raise ConfigError(f"table {name} exists already in catalog {catalog.name!r}: choose another name, or drop it") from error
        except NoSuchNamespaceError as error:
            namespace = ".".join(identifier[:-1])
            raise NotFoundError(f"namespace {namespace} does not exist in catalog {catalog.name!r}: create it first") from error


def _partition_column(schema: Schema, field: PartitionField) -> PartitionColumn:
    source = schema.find_field(field.source_id)
    return PartitionColumn(field.name, str(field.transform), str(schema.find_column_name(field.source_id)), str(source.field_type))
