"""A keyed table with random writers and compactions, and the rows that it must have."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC, PartitionField, PartitionSpec
from pyiceberg.transforms import BucketTransform, IdentityTransform
from pyiceberg.types import LongType, StringType

from compaction_pipeline.core.commit.ports import CommitState
from compaction_pipeline.core.queue.task import CompactionTask
from compaction_pipeline.core.tables.properties import TableProperties
from compaction_pipeline.core.work.kinds import CompactionType
from compaction_pipeline_tests.keyed.compactions import Compactions
from compaction_pipeline_tests.keyed.written import Keyed, row, table_of
from compaction_pipeline_tests.reference_reader import Row

REGIONS = ("eu", "us", "l'été/=", None)


SPECS = {
    "none": UNPARTITIONED_PARTITION_SPEC,
    "region": PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "region")),
    "bucket": PartitionSpec(PartitionField(1, 1000, BucketTransform(2), "id_bucket")),
}


Change = tuple[str, Row]


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
