"""Reads how the dependency center does, for metrics and for the pages of Dagster."""

from __future__ import annotations

from datetime import datetime, timedelta

from compaction_pipeline.core.dependencies.center.figures import CenterFigures, CenterFiguresReader
from compaction_pipeline.core.leases.ports import Clock


class ReadCenter:
    """One verb: figures."""

    def __init__(self, reader: CenterFiguresReader, clock: Clock) -> None:
        self._reader = reader
        self._clock = clock

    def figures(self) -> CenterFigures:
        """Return the figures of now."""
        return self._reader.figures()

    def age(self, since: datetime | None) -> timedelta:
        """How long ago that was; nothing for None."""
        return timedelta(0) if since is None else max(self._clock() - since, timedelta(0))
