"""What a manifest list says of the partition values in a manifest (spec: `field_summary`).

Java prunes manifests by it, so bounds that are too narrow hide rows from a filtered scan. The order is Java's: -0.0 comes before 0.0. For
UUIDs it differs between versions of Java's library.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from pyiceberg.conversions import to_bytes
from pyiceberg.manifest import PartitionFieldSummary
from pyiceberg.types import PrimitiveType, StructType

from compaction_pipeline.iceberg.manifests.partitions import partition_types


class PartitionStatistics:
    """Collects the partition values of the entries of one manifest."""

    def __init__(self, struct: StructType) -> None:
        self._fields = [_Field(kind) for kind in partition_types(struct)]

    def add(self, values: Sequence[Any]) -> None:
        """Add the values of one entry, in the order of the spec's fields."""
        for place, field in enumerate(self._fields):
            field.add(values[place])

    def summaries(self) -> list[PartitionFieldSummary] | None:
        """A summary for each field. None if readers would understand the bounds in different ways; such a manifest is never pruned."""
        if any(field.ambiguous for field in self._fields):
            return None
        return [field.summary() for field in self._fields]


@dataclass
class _Field:
    kind: PrimitiveType
    contains_null: bool = False
    contains_nan: bool = False
    low: Any = None
    high: Any = None

    def add(self, value: Any) -> None:
        if value is None:
            self.contains_null = True
        elif isinstance(value, float) and math.isnan(value):
            self.contains_nan = True
        else:
            self.low = value if self.low is None or _order(value) < _order(self.low) else self.low
            self.high = value if self.high is None or _order(value) > _order(self.high) else self.high

    @property
    def ambiguous(self) -> bool:
        """Whether readers order the values in different ways.

        One version of Java compares UUIDs as two signed numbers, another as unsigned bytes. If all UUIDs are equal, both agree.
        """
        return isinstance(self.low, UUID) and self.low != self.high

    def summary(self) -> PartitionFieldSummary:
        low, high = (None if bound is None else to_bytes(self.kind, bound) for bound in (self.low, self.high))
        return PartitionFieldSummary(self.contains_null, self.contains_nan, low, high)


def partition_order(values: Sequence[Any]) -> tuple[Any, ...]:
    """The place of partition values among those of the same spec, for sorting: by the first field, then by the second, and so on.

    NULL comes first and NaN last.
    """
    return tuple(
        (0,) if value is None else (2,) if isinstance(value, float) and math.isnan(value) else (1, _order(value)) for value in values
    )


def _order(value: Any) -> Any:
    return (value, math.copysign(1, value)) if isinstance(value, float) else value
