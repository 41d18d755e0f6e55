"""A small lake, and clients that do not wait."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from compaction_pipeline.optimizer import client
from compaction_pipeline_tests.services.house import House


@pytest.fixture
def house(tmp_path: Path) -> Iterator[House]:
    made = House(tmp_path)
    yield made
    made.services.close()


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Polls do not wait for tasks, and a client that was not answered asks again at once."""
    monkeypatch.setattr(client, "WAIT_SECONDS", 0)
    monkeypatch.setattr(client, "_PAUSE_SECONDS", 0)
