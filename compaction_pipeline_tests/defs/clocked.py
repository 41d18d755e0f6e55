"""The services of ticks, on a clock that a test moves."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from compaction_pipeline.bootstrap import Services
from compaction_pipeline.defs.resources import Compaction


def compaction_at(clock: Callable[[], datetime]) -> Compaction:
    """The resource `compaction`, whose services read this clock."""

    class Clocked(Compaction):
        def services(self) -> Services:
            services = super().services()
            services.clock = clock
            return services

    return Clocked()
