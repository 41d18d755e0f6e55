"""Keyed tables: Amoro's Mixed-Iceberg tables with a primary key, for programs that read and write them.

To import this package lets PyIceberg load such tables (`read_any_statistics`). Everything else is imported when somebody asks for it, so
that a program which only needs this does not import Spark.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from compaction_pipeline.iceberg.catalogs.statistics_blobs import read_any_statistics

if TYPE_CHECKING:
    from compaction_pipeline.keyed.merging_sink import MergingSink
    from compaction_pipeline.keyed.scan import KeyedScan
    from compaction_pipeline.keyed.table import KeyedTable

__all__ = ["KeyedScan", "KeyedTable", "MergingSink", "read_any_statistics"]

_MODULES = {"KeyedScan": "scan", "KeyedTable": "table", "MergingSink": "merging_sink"}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
