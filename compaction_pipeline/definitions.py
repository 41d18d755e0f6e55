"""The Dagster code location: all definitions, made of the environment alone.

Loading it opens no database, no catalog and no JVM. `defs` is made when somebody asks for it, so importing the module reads no setting.
"""

from __future__ import annotations

from functools import cache

import dagster as dg

from compaction_pipeline.defs.choices import Choices
from compaction_pipeline.defs.location import definitions

__all__ = ["Choices", "definitions", "defs"]

defs: dg.Definitions
"""What Dagster loads. Python calls `__getattr__` for it."""


@cache
def _of_environment() -> dg.Definitions:
    return definitions()


def __getattr__(name: str) -> dg.Definitions:
    if name != "defs":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return _of_environment()


def __dir__() -> list[str]:
    return sorted({*globals(), "defs"})
