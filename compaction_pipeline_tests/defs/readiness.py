"""A table whose watermark a test moves, in the place of services on a catalog, and the clock of a test."""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import datetime, timedelta, timezone
from types import SimpleNamespace

import pytest

from compaction_pipeline.core.dependencies.readiness import Readiness
from compaction_pipeline.core.dependencies.ready_time import Window, instant_text
from compaction_pipeline.core.errors import StorageUnavailable
from compaction_pipeline.core.tables.table import TableIdentifier


def utc(year: int, month: int, day: int, hour: int = 0, minute: int = 0) -> datetime:
    return datetime(year, month, day, hour, minute, tzinfo=timezone.utc)


class Tables:
    """Answers for every table as `ReadReadiness` does under the rule `watermark`."""

    def __init__(self) -> None:
        self.now = utc(2026, 1, 10)
        self.watermark = utc(2026, 1, 1)
        self.asked: list[tuple[TableIdentifier, int]] = []
        self.catalogs = ["lake"]
        self.slow: dict[str, float] = {}
        self.broken: set[str] = set()

    @property
    def watermark(self) -> datetime:
        return self._watermark

    @watermark.setter
    def watermark(self, at: datetime) -> None:
        self._watermark, self._since = at, self.now

    def windows(self, table: TableIdentifier, windows: Sequence[Window]) -> tuple[Readiness, ...]:
        self.asked.append((table, len(windows)))
        time.sleep(self.slow.get(table.name, 0.0))
        if table.name in self.broken:
            raise StorageUnavailable(f"{table}: the catalog does not answer")
        said = f"the watermark is {instant_text(self.watermark)}"
        return tuple(
            Readiness(
                table,
                str(one),
                one,
                one.end <= self.watermark,
                "watermark",
                said,
                self.now,
                (7,),
                self.watermark,
                watermark_since=self._since,
            )
            for one in windows
        )

    def services(self, *_: object) -> SimpleNamespace:
        explore = SimpleNamespace(entries=lambda: list(self.catalogs))
        return SimpleNamespace(read_readiness=self, clock=lambda: self.now, explore_catalogs=explore, close=lambda: None)


@pytest.fixture
def tables(monkeypatch: pytest.MonkeyPatch) -> Tables:
    made = Tables()
    monkeypatch.setattr("compaction_pipeline.defs.readiness.opened_services", made.services)
    return made


def later(tables: Tables, **amount: float) -> None:
    """Let time pass for the services."""
    tables.now += timedelta(**amount)
