"""Keeps Apache Iceberg tables fast.

`dg` looks for the component `CompactionPipeline` here. It is imported when somebody asks for it, because Dagster takes seconds to import
and the command line does without it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from compaction_pipeline.component import CompactionPipeline

__all__ = ["CompactionPipeline"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from compaction_pipeline.component import CompactionPipeline

    return CompactionPipeline


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
