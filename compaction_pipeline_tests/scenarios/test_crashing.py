"""The list of writes that crash tests watch has names of methods that exist. A renamed method would else be watched no longer."""

from __future__ import annotations

from typing import get_type_hints

from compaction_pipeline.core.stores import Stores
from compaction_pipeline_tests.scenarios.crashing import WRITES


def test_every_watched_write_is_a_method_of_its_store() -> None:
    ports = get_type_hints(Stores)
    unknown = [f"{store}.{method}" for store, methods in WRITES.items() for method in methods if not hasattr(ports.get(store), method)]
    assert unknown == []
