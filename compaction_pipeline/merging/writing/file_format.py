"""How the data files of a merge are written: what both writers of them know, the one that encodes rows and the one that copies bytes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pyiceberg.schema import Schema

from compaction_pipeline.core.tables.bloom_filters import BloomFilter
from compaction_pipeline.formats.parquet.leaves import Leaf, leaves
from compaction_pipeline.merging.reading.evolution import arrow_schema
from compaction_pipeline.merging.writing.metrics import MetricsModes
from compaction_pipeline.merging.writing.parquet_options import ParquetOptions, filters_of


@dataclass(frozen=True)
class FileFormat:
    """The schema of the files, also as Arrow's and by its leaves, and what the table's properties say about files of this schema."""

    schema: Schema
    arrow: Any
    leaves: list[Leaf]
    modes: MetricsModes
    options: ParquetOptions
    filters: Mapping[str, BloomFilter]

    @classmethod
    def of(cls, schema: Schema, properties: Mapping[str, str], sort_column_ids: frozenset[int] = frozenset()) -> FileFormat:
        """Columns with `sort_column_ids` get bounds. Raises MergeFailed for a property that breaks its rule."""
        columns = leaves(schema)
        modes = MetricsModes.of(schema, properties, sort_column_ids)
        options, filters = ParquetOptions.of(properties), filters_of(properties, columns)
        return cls(schema, arrow_schema(schema.fields), columns, modes, options, filters)
