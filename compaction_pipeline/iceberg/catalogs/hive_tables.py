"""What a Hive metastore says of its tables: which are Iceberg's, what the others are, and what a commit changes in the row of a table."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata

METADATA_LOCATION = "metadata_location"
PREVIOUS_METADATA_LOCATION = "previous_metadata_location"
_TABLE_TYPE = "table_type"
_ICEBERG = "iceberg"

_OTHERS: tuple[tuple[str, str], ...] = (
    ("iceberg-view", "a view of Iceberg"),
    ("mixed_hive", "a MIXED_HIVE table of Amoro"),
    ("arctic", "a MIXED_HIVE table of Amoro"),
    ("paimon", "a Paimon table"),
    ("hudi", "a Hudi table"),
    ("hoodie", "a Hudi table"),
    ("delta", "a Delta table"),
    ("kudu", "a Kudu table"),
    ("hbase", "a table of HBase"),
    ("jdbc", "a table of another database"),
)
"""Words by which formats are known, in the marks of a table."""


def is_iceberg(table: Any) -> bool:
    """Whether this table of a metastore is Iceberg's."""
    return str(_parameters(table).get(_TABLE_TYPE, "")).lower() == _ICEBERG


def metadata_location(table: Any) -> str | None:
    """Where the newest metadata of an Iceberg table is. None when the metastore does not say."""
    location: str | None = _parameters(table).get(METADATA_LOCATION)
    return location or None


def uuid_of(table: Any) -> str | None:
    """The uuid that Iceberg's Java library keeps in the row of a table. None when the metastore does not say."""
    return _parameters(table).get("uuid") or None


def kind_in_words(table: Any) -> str:
    """What a table is that is not Iceberg's, for example "a Paimon table"."""
    library = getattr(getattr(table.sd, "serdeInfo", None), "serializationLib", None)
    return kind_of_marks(_parameters(table), str(table.tableType or ""), getattr(table.sd, "inputFormat", None) or "", library or "")


def kind_of_marks(parameters: Mapping[str, str], table_type: str, input_format: str, library: str) -> str:
    """What a table of Hive or Glue is that is not Iceberg's, by its parameters, its type and the classes that read it."""
    marks = [
        str(parameters.get(key, "")) for key in (_TABLE_TYPE, "spark.sql.sources.provider", "provider", "storage_handler", "table-format")
    ]
    # Amoro marks its tables by keys, not by values.
    marks += [key for key in parameters if key.startswith(("arctic.", "mixed-hive."))]
    text = " ".join([*marks, input_format, library]).lower()
    for word, kind in _OTHERS:
        if word in text:
            return kind
    if table_type.endswith("VIEW"):
        return "a materialized view" if table_type.startswith("MATERIALIZED") else "a view"
    return f"a table of Hive ({input_format.rpartition('.')[2]})" if input_format else "a table of Hive"


def set_committed(table: Any, before: Table, after: TableMetadata, location: str) -> None:
    """Change the row of a table to what it is after a commit. `table` was loaded when its metadata was `before`.

    The columns, formats and serialization libraries stay as they are: they belong to the engine that made the table. Only what a commit
    has changed is changed, and figures only where another writer keeps them.
    """
    parameters = dict(_parameters(table))
    _set_properties(parameters, before.metadata.properties, after.properties)
    parameters[METADATA_LOCATION] = location
    parameters[PREVIOUS_METADATA_LOCATION] = before.metadata_location
    _set_figures(parameters, after)
    for key, changed in (
        ("current-schema", after.current_schema_id != before.metadata.current_schema_id),
        ("default-partition-spec", after.default_spec_id != before.metadata.default_spec_id),
        ("default-sort-order", after.default_sort_order_id != before.metadata.default_sort_order_id),
    ):
        if changed:
            # Java leaves these out too where they are too long. To say nothing is better than to say what was.
            parameters.pop(key, None)
    table.parameters = parameters


_NAMED_OTHERWISE = {"gc.enabled": "external.table.purge"}
"""Properties that the metastore has under another name. Source: Iceberg, `HMSTablePropertyHelper`."""
_OF_THE_METASTORE = frozenset({"EXTERNAL", _TABLE_TYPE, METADATA_LOCATION, PREVIOUS_METADATA_LOCATION})


def _set_properties(parameters: dict[str, str], before: Mapping[str, str], after: Mapping[str, str]) -> None:
    for key in before.keys() | after.keys():
        own = _NAMED_OTHERWISE.get(key, key)
        if own in _OF_THE_METASTORE or before.get(key) == after.get(key):
            continue
        if key in after:
            parameters[own] = str(after[key])
        else:
            parameters.pop(own, None)


def _set_figures(parameters: dict[str, str], after: TableMetadata) -> None:
    """Bring up to date what Iceberg's Java library says about the current snapshot."""
    snapshot = after.current_snapshot()
    summary = dict(snapshot.summary.additional_properties) if snapshot is not None and snapshot.summary is not None else {}
    now: dict[str, str | None] = {
        "numFiles": summary.get("total-data-files"),
        "numRows": summary.get("total-records"),
        "totalSize": summary.get("total-files-size"),
        "current-snapshot-id": str(snapshot.snapshot_id) if snapshot else None,
        "current-snapshot-timestamp-ms": str(snapshot.timestamp_ms) if snapshot else None,
        "current-snapshot-summary": json.dumps(summary) if snapshot else None,
        "snapshot-count": str(len(after.snapshots)),
    }
    for key, value in now.items():
        if key not in parameters:
            continue
        if value is not None and len(value) <= _LONGEST:
            parameters[key] = value
        else:
            del parameters[key]


_LONGEST = 4_000
"""As many characters fit into a parameter of a metastore whose schema was not widened."""


def _parameters(table: Any) -> Mapping[str, str]:
    return table.parameters or {}
