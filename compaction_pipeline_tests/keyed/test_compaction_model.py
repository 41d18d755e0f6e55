"""The model test of change → base: whatever writers and other compactions do between plan, merge and commit, every reader sees the rows
that a dictionary holds which applied the same changes."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC, PartitionField, PartitionSpec
from pyiceberg.transforms import BucketTransform, IdentityTransform
from pyiceberg.types import LongType, StringType

from compaction_pipeline.core.commit.ports import CommitState
from compaction_pipeline.core.queue.task import CompactionTask
from compaction_pipeline.core.tables.properties import TableProperties
from compaction_pipeline.core.work.kinds import CompactionType
from compaction_pipeline_tests.keyed.base_merges import small_batches
from compaction_pipeline_tests.keyed.compactions import Compactions
from compaction_pipeline_tests.keyed.test_writing import Keyed, row, table_of
from compaction_pipeline_tests.reference_reader import Row, bag_difference, reference_rows

REGIONS = ("eu", "us", "l'été/=", None)
SPECS = {
    "none": UNPARTITIONED_PARTITION_SPEC,
    "region": PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "region")),
    "bucket": PartitionSpec(PartitionField(1, 1000, BucketTransform(2), "id_bucket")),
}
Change = tuple[str, Row]


@pytest.fixture(autouse=True, scope="module")
def _small_batches() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        small_batches(patch)
        yield


@dataclass
class Modelled:
    """A keyed table, the rows that it must have, and the compactions that are under way."""

    keyed: Keyed
    compactions: Compactions
    random: random.Random
    rows: dict[tuple[int, str | None], Row] = field(default_factory=dict)
    under_way: list[list[CompactionTask]] = field(default_factory=list)
    landed: int = 0
    conflicts: int = 0

    def write(self) -> None:
        changes = [self._change() for _ in range(self.random.randrange(1, 12))]
        self.keyed.table.write_changes(table_of(changes))

    def overwrite(self) -> None:
        """Replace all rows of the partitions of some random rows."""
        keys = {(self.random.randrange(24), self.random.choice(REGIONS)) for _ in range(self.random.randrange(4))}
        new = {key: row(key[0], f"o{self.random.randrange(10**6)}", key[1]) for key in keys}
        self.keyed.table.insert_overwrite(table_of([("", each) for each in new.values()]).drop_columns(["_change_type"]))
        replaced = {self._partition(key) for key in new}
        self.rows = {key: each for key, each in self.rows.items() if self._partition(key) not in replaced} | new

    def _partition(self, key: tuple[int, str | None]) -> Any:
        spec, values = self.keyed.stores()[0].spec(), {1: (LongType(), key[0]), 2: (StringType(), key[1])}
        return tuple(field.transform.transform(values[field.source_id][0])(values[field.source_id][1]) for field in spec.fields)

    def _change(self) -> Change:
        """One change of a random key, which fits what the key has now."""
        key = (self.random.randrange(24), self.random.choice(REGIONS))
        new = row(key[0], f"v{self.random.randrange(10**6)}", key[1])
        before = self.rows.get(key)
        if before is not None and self.random.random() < 0.4:
            del self.rows[key]
            return ("DELETE", before)
        self.rows[key] = new
        return ("INSERT", new)

    def plan(self) -> None:
        choose = self.random.choice
        small = choose([400, 4_000, 10**6])
        properties = TableProperties(target_size_bytes=choose([1_500, 6_000, 10**8]), fragment_ratio=choose([1, 2, 8]))
        tasks = self.compactions.plan(choose([CompactionType.MAJOR, CompactionType.FULL]), properties, small)
        if tasks:
            self.under_way.append(tasks)

    def merge_and_commit(self) -> None:
        if not self.under_way:
            return
        merged = self.compactions.merge(self.under_way.pop(self.random.randrange(len(self.under_way))))
        if self.random.random() < 0.4:
            self.random.choice([self.write, self.write, self.overwrite])()
        outcome = self.compactions.commit(merged)
        assert outcome.state is not CommitState.UNKNOWN
        self.landed += len(outcome.committed)
        self.conflicts += len(merged) - len(outcome.committed)
        self._check_groups(merged, outcome.committed)

    def _check_groups(self, merged: Sequence[CompactionTask], committed: Sequence[str]) -> None:
        of_groups: dict[str, set[bool]] = {}
        for task in merged:
            of_groups.setdefault(task.work.group, set()).add(task.task_id in committed)
        assert all(len(each) == 1 for each in of_groups.values()), "a partition was committed in part"

    def check(self) -> None:
        self.keyed.check(self.rows.values())


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
