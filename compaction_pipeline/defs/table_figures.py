"""The figures of `table_figures`, which Dagster plots over time: of all tables together, and of the worst ones by name.

Pure. Plots of a partitioned asset run across its partitions, never over time. So these figures stand on an asset without partitions, and a
table is a part of the names of its figures. These names never change, because Dagster plots figures by their names.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import dagster as dg

from compaction_pipeline.core.insight.files_over_time import FilesPoint
from compaction_pipeline.core.insight.overview import SHOWN, TableOverview, worst_first
from compaction_pipeline.core.tables.figures import NodeMetrics
from compaction_pipeline.defs.metadata import table_of

ALL = "all tables"


def table_figures(tables: Iterable[TableOverview], history: Sequence[FilesPoint]) -> dict[str, dg.MetadataValue]:
    """The figures of all tables, and those of the 20 worst tables with their health scores. `health_scores` says what each score means."""
    found = [table for table in tables if table.is_read]
    worst = worst_first(found)[:SHOWN]
    figures = {f"{ALL} without_us_files_count": dg.MetadataValue.int(history[-1].without_us)} if history else {}
    return {
        **_figures(ALL, [table.metrics for table in found]),
        **figures,
        **{name: value for table in worst for name, value in _figures(str(table.table), [table.metrics]).items()},
        **{
            f"{table.table} health_score_points": dg.MetadataValue.int(table.score.total)
            for table in worst
            if table.score.total is not None
        },
        "health_scores": table_of(
            worst,
            (
                ("table", "string", "catalog.namespace.table", lambda table: str(table.table)),
                ("score", "string", "the points of 100, what costs the most, and what to do", lambda table: table.score.text),
            ),
        ),
    }


def _figures(name: str, metrics: Sequence[NodeMetrics]) -> dict[str, dg.MetadataValue]:
    return {
        f"{name} files_count": dg.MetadataValue.int(sum(each.files for each in metrics)),
        f"{name} small_files_count": dg.MetadataValue.int(sum(each.small_files for each in metrics)),
        f"{name} delete_files_count": dg.MetadataValue.int(sum(each.delete_files for each in metrics)),
    }
