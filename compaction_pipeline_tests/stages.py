"""The stages of `make test`: each test runs in exactly one of them, that of its most expensive marker.

`pytest --stage=NAME` runs the tests of one stage. It imports only the folders and modules that `PLACES` names for that stage, because
to collect all tests takes as long as some stages do.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path

EVERYWHERE: tuple[str, ...] = ("",)

PLACES: Mapping[str, tuple[str, ...]] = {
    "fast": EVERYWHERE,
    "spark": ("spark", "defs/test_spark_run.py", "merging/test_memory.py", "scenarios/test_model.py"),
    "postgres": ("behaviours", "iceberg/test_sql_catalog.py", "storage"),
    "interop": ("interop",),
    "scenario": (
        "defs/test_other_host.py",
        "scenarios",
    ),
    "browser": ("browser",),
    "long": EVERYWHERE,
}
"""Where the tests of each stage lie, below the folder of this module. The stages are in the order of their cost. `fast` has no marker."""

TESTS = Path(__file__).parent


def stage_of(markers: Collection[str]) -> str:
    """The stage of a test with these markers."""
    return next((stage for stage in reversed(PLACES) if stage in markers), "fast")


def lies_in(stage: str, path: Path) -> bool:
    """Whether tests of this stage may lie in this module or folder."""
    return any(path.is_relative_to(TESTS / place) for place in PLACES[stage])


def leads_to(stage: str, path: Path) -> bool:
    """Whether this module or folder is in a place of the stage, or is a folder above such a place."""
    return lies_in(stage, path) or any((TESTS / place).is_relative_to(path) for place in PLACES[stage])


def misplaced(stage: str) -> str:
    """The message for a test that lies where its stage does not look."""
    return (
        f"No stage of `make test` would run this test: it has the marker {stage!r}, and PLACES[{stage!r}] in "
        "compaction_pipeline_tests/stages.py does not name its module. Move the test, or add its module there."
    )
