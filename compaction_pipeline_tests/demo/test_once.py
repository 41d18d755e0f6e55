from __future__ import annotations

from typing import Any, cast

from compaction_pipeline.demo.once import _committed
from compaction_pipeline.demo.pipeline import RecordsBySensors


def test_sensors_are_named_only_when_their_runs_committed_something() -> None:
    records = cast(Any, ("one", "two", "three"))
    assert _committed(RecordsBySensors(records, {})) == "3 records committed"
    assert _committed(RecordsBySensors(records, {"one": "b", "two": "a"})) == "3 records committed, 2 of them by runs of a, b"
