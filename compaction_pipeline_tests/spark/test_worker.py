"""What a Spark worker keeps in memory between two tasks."""

from __future__ import annotations

import gc
import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from zipfile import ZipFile
from zipimport import zipimporter

import pytest

from compaction_pipeline.spark import worker


@pytest.fixture
def thawed() -> Iterator[None]:
    """A Spark worker lets the garbage collector pass over all objects that it has. The process of the tests takes this back."""
    yield
    gc.unfreeze()


def test_archives_are_not_read_again_and_their_modules_still_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, thawed: None) -> None:
    archive = tmp_path / "modules.zip"
    with ZipFile(archive, "w") as file:
        file.writestr("rested_before.py", "value = 1")
        file.writestr("rested_after.py", "value = 2")
    monkeypatch.syspath_prepend(str(archive))
    assert importlib.import_module("rested_before").value == 1
    assert any(isinstance(importer, zipimporter) for importer in sys.path_importer_cache.values())
    worker.tidy_up_after_task()
    assert not any(isinstance(importer, zipimporter) for importer in sys.path_importer_cache.values())
    assert importlib.import_module("rested_after").value == 2
