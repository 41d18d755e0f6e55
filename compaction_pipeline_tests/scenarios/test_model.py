"""The model test: whatever writers, people, other engines and our compactions do to a table, its rows equal a plain list.

Hypothesis draws sequences of steps on fresh tables, STEPS in all (default 300). The seed is COMPACTION_SEED, or else random, and
is always printed. After every step the reference reader must see the truth. So must Iceberg's Java reader at the end of each table.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import warnings
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from random import Random, SystemRandom
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, note, seed, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test

from compaction_pipeline.core.work.merge_engine import MergeEngine
from compaction_pipeline.merging.engine import InProcessMergeEngine
from compaction_pipeline.spark.engine import SparkMergeEngine
from compaction_pipeline.spark.session import SparkSessions, SparkSettings
from compaction_pipeline_tests.reference_reader import Row, bag_difference, reference_rows
from compaction_pipeline_tests.scenarios.java_reader import java_can_read, java_rows
from compaction_pipeline_tests.scenarios.modelled_compactions import ModelledCompactions
from compaction_pipeline_tests.scenarios.modelled_table import ModelledTable
from compaction_pipeline_tests.scenarios.soundness import faults

STEPS_PER_TABLE = 50

JavaRows = Callable[[str], list[Row]]
"""A function that takes the location of a metadata file and returns the table's rows, as Iceberg's Java library reads them."""

DELETERS = ("upsert", "delete_by_equality", "delete_by_equality_in_one_partition", "delete_by_position", "delete_by_copy_on_write")
WRITERS = ("append", "append", "append_with_pyiceberg", *DELETERS)
CHANGES = ("evolve_schema", "evolve_partitions", "expire_snapshots", "roll_back", "rewrite_as_another_engine")
COMPACTIONS = (
    "plan",
    "merge",
    "commit",
    "commit_in_a_race",
    "commit_in_a_race",
    "commit_again",
    "compact",
    "compact_around_others",
    "compact_around_others",
    "compact_around_others",
)
KINDS = (*WRITERS, *CHANGES, *COMPACTIONS)

seeds = st.integers(0, 2**32 - 1)
"""Each step draws its choices from one such number. Hypothesis shrinks the sequence of these numbers."""


class Machine(RuleBasedStateMachine):
    """The history of one table. Subclasses set the engine and the Java reader."""

    engine: MergeEngine
    java_rows: JavaRows | None
    done: Counter[str]

    @initialize(number=seeds)
    def create(self, number: int) -> None:
        self.count = 0
        self._home = Path(tempfile.mkdtemp(prefix="model-"))
        self.table = ModelledTable(self._home, Random(number))
        self.compactions = ModelledCompactions(self.table, self.engine)

    # There is only one rule. If there were many, Hypothesis would leave some of them out for each table, but a compaction needs several
    # kinds of steps. Hypothesis prefers simple numbers, and every third one is 0. So the seed of a step also contains the step's count.
    @rule(number=seeds)
    def step(self, number: int) -> None:
        self.count += 1
        rng = Random(f"{self.count}/{number}")
        kind = rng.choice(KINDS)
        note(f"step({number}) is {kind}")
        if kind == "compact_around_others":
            self.compactions.plan(rng)
            self.compactions.merge(rng)
            for _ in range(rng.randint(1, 4)):
                self._write_meanwhile(rng)
                self._check(kind)
            self.compactions.commit(rng)
        elif kind == "commit_in_a_race":
            self.compactions.commit(rng, lambda: self._write_meanwhile(rng))
        elif kind in COMPACTIONS:
            getattr(self.compactions, kind)(rng)
        else:
            self.table.reload()
            self.table.write(kind, rng)
        self._check(kind)
        self.done[kind] += 1

    def _write_meanwhile(self, rng: Random) -> None:
        self.table.reload()
        self.table.write(rng.choice((*WRITERS, *DELETERS, *DELETERS, *CHANGES, "roll_back")), rng)
        self.table.remember()

    def _check(self, name: str) -> None:
        self.table.remember()
        difference = bag_difference(reference_rows(self.table.table), self.table.expected())
        assert difference == "", f"after {name}: {difference}"
        assert faults(self.table.table) == [], f"after {name}"

    def teardown(self) -> None:
        if not hasattr(self, "table"):
            return
        try:
            for snapshot in self.table.reload().metadata.snapshots:
                if snapshot.snapshot_id in self.table.history:
                    difference = bag_difference(
                        reference_rows(self.table.table, snapshot.snapshot_id), self.table.expected(snapshot.snapshot_id)
                    )
                    assert difference == "", f"snapshot {snapshot.snapshot_id} changed: {difference}"
            if self.java_rows is not None and not java_can_read(self.table.table):
                self.done["tables: Java cannot read"] += 1
            elif self.java_rows is not None:
                difference = bag_difference(self.java_rows(self.table.table.metadata_location), self.table.expected())
                assert difference == "", f"Iceberg's Java reader: {difference}"
                self.done["tables: read by Java"] += 1
            self.done.update({f"tasks: {name}": number for name, number in self.compactions.committed.items()})
            self.done["tasks: conflict"] += len(self.compactions.conflicts)
        finally:
            shutil.rmtree(self._home, ignore_errors=True)


def run_model(steps: int, engine: MergeEngine, java_rows: JavaRows | None = None) -> Counter[str]:
    """Run at least `steps` steps, and return how often each kind ran. Prints the seed and the counts, also when a step fails."""
    first = int(os.environ.get("COMPACTION_SEED", SystemRandom().randrange(2**31)))
    done: Counter[str] = Counter()
    _say(f"\nmodel test: COMPACTION_SEED={first} STEPS={steps}")
    try:
        number = first
        while _steps(done) < steps:
            tables = -(-(steps - _steps(done)) // STEPS_PER_TABLE)
            bound: dict[str, object] = {"engine": engine, "java_rows": staticmethod(java_rows) if java_rows else None, "done": done}
            machine = type("Model", (Machine,), bound)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                run_state_machine_as_test(
                    seed(number)(machine),
                    settings=settings(
                        max_examples=tables,
                        stateful_step_count=min(STEPS_PER_TABLE, steps),
                        deadline=None,
                        database=None,
                        derandomize=False,
                        suppress_health_check=list(HealthCheck),
                        # Shrinking takes minutes: worth it at the desk, not in CI.
                        phases=(Phase.generate, Phase.shrink) if "COMPACTION_SEED" in os.environ else (Phase.generate,),
                        report_multiple_bugs=False,
                        print_blob=False,
                    ),
                )
            number += 1
    finally:
        _say(f"model test: COMPACTION_SEED={first}, {_steps(done)} steps: {dict(sorted(done.items()))}")
    return done


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")


def _steps(done: Counter[str]) -> int:
    return sum(done[kind] for kind in set(KINDS))


def test_a_few_steps_keep_every_row() -> None:
    run_model(25, InProcessMergeEngine())


@pytest.mark.scenario
@pytest.mark.timeout(0)
def test_every_row_stays_whatever_happens_between_plan_and_commit(iceberg_spark: Any) -> None:
    wanted = ("tasks: MINOR CONVERT", "tasks: FULL MERGE", "tables: read by Java")
    done = run_model(_asked_steps(300), InProcessMergeEngine(), partial(java_rows, iceberg_spark))
    for _ in range(9):
        if all(done[kind] for kind in wanted):
            break
        # A few hundred random steps may leave out one of the wanted kinds. Then the test goes on with other tables.
        done += run_model(150, InProcessMergeEngine(), partial(java_rows, iceberg_spark))
    for kind in wanted:
        assert done[kind] > 0, kind


@pytest.mark.spark
@pytest.mark.timeout(0)
def test_every_row_stays_when_spark_merges(tmp_path: Path) -> None:
    engine = SparkMergeEngine(SparkSessions(SparkSettings("local[2]", None, str(tmp_path), {})))
    try:
        run_model(min(_asked_steps(30), 300), engine)
    finally:
        engine.close()


def _asked_steps(default: int) -> int:
    return int(os.environ.get("STEPS", default))
