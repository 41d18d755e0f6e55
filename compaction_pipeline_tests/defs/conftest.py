"""A small real deployment: SQLite state, an Iceberg table of several days with small files, merges in this process."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pytest

from compaction_pipeline.bootstrap import Services, open_services
from compaction_pipeline.core.model.table import CatalogEntry
from compaction_pipeline.settings import load_settings
from compaction_pipeline_tests.defs.lake import Lake


@pytest.fixture
def lake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lake:
    """A registered catalog with `shop.orders`: days 1–3 with 4, 4 and 1 small files; 3 make a minor due; commits at once."""
    monkeypatch.setenv("COMPACTION_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("COMPACTION_MERGE_ENGINE", "in-process")
    monkeypatch.setenv("COMPACTION_LINGER_SECONDS", "0")
    made = Lake(tmp_path / "lake")
    made.create_orders()
    for day, files in ((1, 4), (2, 4), (3, 1)):
        made.append_small_files(day, files)
    services = open_services(load_settings())
    services.explore_catalogs.register(CatalogEntry("lake", made.properties))
    services.close()
    return made


@pytest.fixture
def services(lake: Lake) -> Iterator[Services]:
    """Services on the lake's state, as another process would open them."""
    opened = open_services(load_settings())
    yield opened
    opened.close()


@pytest.fixture
def instance() -> Iterator[dg.DagsterInstance]:
    with dg.DagsterInstance.ephemeral() as made:
        yield made
