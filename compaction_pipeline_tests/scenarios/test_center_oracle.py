"""The oracle test of the dependency center: a naive evaluator beside it hears everything that happens in random worlds.

Jobs of all periods in three zones, mostly while clocks change, wait for each other and for data; facts come in order, twice and in
disorder; leaders die between two transactions and lose their lease; receivers claim, ask again and report. After every transaction each
run is as `naive_center.Oracle` says: nothing is early, nothing is late, nothing is claimed that was withdrawn, no key starts twice.
STEPS in all (default 240). The seed is COMPACTION_SEED, or else random, and is always printed; WORLD runs one world of it alone.
"""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from random import SystemRandom

import pytest

from compaction_pipeline_tests.postgres import postgres_server, postgres_url
from compaction_pipeline_tests.scenarios.center_world import STEPS_PER_WORLD, run_on_postgres, run_on_sqlite

__all__ = ["postgres_server", "postgres_url"]

COUNTED = (
    "withdrawn before claim",
    "withdrawn after claim",
    "restart in the middle of a fan-out",
    "backfill beside scheduled",
    "released by its until",
    "released with a clock change",
)


@pytest.mark.scenario
@pytest.mark.timeout(0)
def test_the_center_does_what_the_oracle_says(tmp_path: Path) -> None:
    _run(lambda seed, number: run_on_sqlite(tmp_path, seed, number), 240)


@pytest.mark.scenario
@pytest.mark.postgres
@pytest.mark.timeout(0)
def test_the_center_does_what_the_oracle_says_on_postgresql(postgres_url: str) -> None:
    _run(lambda seed, number: run_on_postgres(postgres_url, seed, number), 120)


def _run(world: Callable[[int, int], Counter[str]], steps: int) -> None:
    steps = int(os.environ.get("STEPS", str(steps)))
    seed = int(os.environ.get("COMPACTION_SEED", SystemRandom().randrange(2**32)))
    sys.stdout.write(f"\ncenter oracle: COMPACTION_SEED={seed} STEPS={steps}\n")
    only = os.environ.get("WORLD")
    counts: Counter[str] = Counter()
    for number in [int(only)] if only else range(max(1, steps // STEPS_PER_WORLD)):
        counts += world(seed, number)
    sys.stdout.write(f"center oracle: {dict(sorted(counts.items()))}\n")
    if steps >= 10_000:
        few = {name: counts[name] for name in COUNTED if counts[name] < 200}
        assert not few, f"it happened too seldom in {steps:,} steps: {few}"
