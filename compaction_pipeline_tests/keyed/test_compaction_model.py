"""The model test of change → base: whatever writers and other compactions do between plan, merge and commit, every reader sees the rows
that a dictionary holds which applied the same changes."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from compaction_pipeline.core.work.kinds import CompactionType
from compaction_pipeline_tests.keyed.base_merges import small_batches
from compaction_pipeline_tests.keyed.compactions import Compactions
from compaction_pipeline_tests.keyed.modelled import SPECS, Modelled
from compaction_pipeline_tests.keyed.written import Keyed
from compaction_pipeline_tests.reference_reader import bag_difference, reference_rows


@pytest.fixture(autouse=True, scope="module")
def _small_batches() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        small_batches(patch)
        yield


def modelled(folder: Path, seed: int) -> Modelled:
    chosen = random.Random(seed)
    spec = SPECS[chosen.choice(list(SPECS))]
    keyed = Keyed(folder, key=("id", "region"), spec=spec, upsert=True, buckets=chosen.choice([1, 2, 8]))
    properties = {"type": "sql", "uri": f"sqlite:///{folder}/catalog.db", "warehouse": f"file://{folder}/wh"}
    return Modelled(keyed, Compactions(keyed.catalog, properties), chosen)


def run(folder: Path, seed: int, steps: int) -> Modelled:
    model = modelled(folder, seed)
    verbs: list[Any] = [*[model.write, model.plan, model.merge_and_commit] * 3, model.overwrite]
    for _ in range(steps):
        model.random.choice(verbs)()
        model.check()
    while model.under_way:
        model.merge_and_commit()
        model.check()
    # A FULL to the head of the changes leaves all rows in the base store.
    model.compactions.compact(CompactionType.FULL)
    model.check()
    base = reference_rows(model.keyed.catalog.load_table("db.t").metadata_location)
    assert bag_difference(base, model.keyed.table.scan().to_arrow().to_pylist()) == "", "the base store alone"
    return model


def test_every_row_stays_whatever_happens_between_plan_and_commit(tmp_path: Path) -> None:
    done = [run(tmp_path / str(seed), seed, steps=14) for seed in range(6)]
    assert sum(model.landed for model in done) > 10
    assert sum(model.conflicts for model in done) > 2


@pytest.mark.long
@pytest.mark.timeout(0)
def test_every_row_stays_for_many_seeds(tmp_path: Path, pytestconfig: pytest.Config) -> None:
    steps, seed, landed = 0, random.randrange(10**9), 0
    while steps < pytestconfig.getoption("--steps"):
        try:
            landed += run(tmp_path / str(seed), seed, steps=25).landed
        except BaseException:
            print(f"seed {seed}")  # noqa: T201 - a failure is repeated with this seed
            raise
        steps, seed = steps + 25, seed + 1
    print(f"{steps} steps, {landed} tasks landed")  # noqa: T201
