"""The whole program on a small real lake: SQLite state, real tables, the in-process engine, and a clock that only tests move."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest

from compaction_pipeline.core.tables.table import CatalogEntry
from compaction_pipeline.demo.row_delta import row_delta
from compaction_pipeline.services.tables import refresh_files
from compaction_pipeline.settings import Settings
from compaction_pipeline_tests.iceberg.lake import Lake, LakeTable
from compaction_pipeline_tests.services.in_hand import ServicesInHand
from compaction_pipeline_tests.state import new_home


class House:
    """Services over a lake. `now` is the clock, and a sleep moves it."""

    def __init__(
        self, folder: Path, observe: bool = False, properties: Mapping[str, str] | None = None, retry_interval_seconds: float = 0
    ) -> None:
        """Mostly a task that failed is tried again at once, because the clock stands still while a test drains the queue."""
        self.now = datetime.now(timezone.utc)
        self.lake = self.built_lake(folder, properties)
        self.services = ServicesInHand(
            Settings(home=new_home(folder / "home"), merge_engine="in-process", retry_interval_seconds=retry_interval_seconds),
            clock=lambda: self.now,
            sleep=lambda seconds: self.pass_time(seconds),
        )
        self.services.stores.catalogs.add(CatalogEntry("lake", self.product_properties, observe))

    def built_lake(self, folder: Path, properties: Mapping[str, str] | None) -> Lake:
        """The lake that the services work on."""
        return Lake(folder, properties=properties)

    @property
    def product_properties(self) -> Mapping[str, str]:
        """How the services reach the lake."""
        return self.lake.properties

    def pass_time(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)

    def before_sleep(self, act: Callable[[], object]) -> list[bool]:
        """Call `act` whenever the program sleeps, as if another process did something then. The returned list gets one entry each time."""
        waits: list[bool] = []

        def sleep(seconds: float) -> None:
            waits.append(True)
            act()
            self.pass_time(seconds)

        self.services.sleep = sleep
        return waits

    def fragmented(self, name: str = "t", files: int = 12, **properties: str) -> LakeTable:
        """A table of small files with the ids 0 to `files - 1`, one in each file. The state database knows the table."""
        table = self.lake.table(name, properties={key.replace("__", ".").replace("_", "-"): value for key, value in properties.items()})
        row_delta(table.table, table.one_row_files({"id": one, "name": f"n{one}"} for one in range(files)))
        self.services.explore_catalogs.explore()
        return table


def store_each_manifest_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a refresh store the files of each manifest in a transaction of its own. Those of a test are too few for two transactions else."""
    monkeypatch.setattr(refresh_files, "BATCH_FILES", 1)
