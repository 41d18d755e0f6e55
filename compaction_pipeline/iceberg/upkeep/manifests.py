"""Reads what the manifest list of a snapshot says of its manifests, for the rules of `core/upkeep/manifests.py`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from pyiceberg.conversions import from_bytes
from pyiceberg.manifest import ManifestContent, ManifestFile, PartitionFieldSummary
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.transforms import VoidTransform
from pyiceberg.types import IcebergType, PrimitiveType, StructType, UnknownType, UUIDType

from compaction_pipeline.core.upkeep.manifests import DATA, DELETES, FieldRange, Manifest
from compaction_pipeline.iceberg.manifests.partition_statistics import partition_order
from compaction_pipeline.iceberg.manifests.partitions import partition_struct


def listed(metadata: TableMetadata, manifests: Sequence[ManifestFile]) -> tuple[Manifest, ...]:
    """These manifests of a table, in their order."""
    structs = {spec_id: partition_struct(metadata, spec_id) for spec_id in metadata.specs()}
    return tuple(_listed(metadata, one, structs.get(one.partition_spec_id)) for one in manifests)


def _listed(metadata: TableMetadata, one: ManifestFile, struct: StructType | None) -> Manifest:
    counts = (one.added_files_count, one.existing_files_count)
    return Manifest(
        one.manifest_path,
        one.manifest_length,
        DELETES if one.content == ManifestContent.DELETES else DATA,
        one.partition_spec_id,
        None if None in counts else sum(count or 0 for count in counts),
        one.deleted_files_count,
        None if struct is None else _ranges(struct, one.partitions),
        _stays_because(metadata, one, struct),
    )


def _stays_because(metadata: TableMetadata, one: ManifestFile, struct: StructType | None) -> str | None:
    """Why a manifest cannot be rewritten. Its entries could not be proved to say the same afterwards."""
    if struct is None:
        return f"its partition spec {one.partition_spec_id} is not in the metadata"
    if one.key_metadata:
        return "it is encrypted"
    for field, kind in zip(metadata.specs()[one.partition_spec_id].fields, struct.fields, strict=True):
        if isinstance(kind.field_type, UnknownType) and not isinstance(field.transform, VoidTransform):
            return f"it is partitioned by column id {field.source_id}, which is in no schema of the metadata any more"
    return None


def _ranges(struct: StructType, summaries: Sequence[PartitionFieldSummary] | None) -> tuple[FieldRange, ...] | None:
    if summaries is None or len(summaries) != len(struct.fields):
        return None if struct.fields else ()
    ranges = [_range(field.field_type, one) for field, one in zip(struct.fields, summaries, strict=True)]
    known = tuple(one for one in ranges if one is not None)
    return known if len(known) == len(ranges) else None


def _range(kind: IcebergType, one: PartitionFieldSummary) -> FieldRange | None:
    """The range of one field; None when its bounds cannot be told, or have no order that all readers share."""
    try:
        lower, upper = (_value(kind, bound) for bound in (one.lower_bound, one.upper_bound))
        has_null = bool(one.contains_null or one.contains_nan)
        in_order = lower is None or upper is None or lower <= upper
    except Exception:
        # Bounds of a column that was promoted since may have another length. Nothing is pruned by them here.
        return None
    if (lower is None) != (upper is None) or not in_order or (isinstance(kind, UUIDType) and lower != upper):
        return None
    return FieldRange(lower, upper, has_null)


def _value(kind: IcebergType, bound: bytes | None) -> Any:
    if bound is None:
        return None
    assert isinstance(kind, PrimitiveType)
    value = from_bytes(kind, bound)
    if isinstance(value, float) and math.isnan(value):
        raise ValueError("NaN is no bound")
    return partition_order([value])[0]
