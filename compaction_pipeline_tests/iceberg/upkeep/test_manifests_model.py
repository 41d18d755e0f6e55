"""Writers, compactions and rewrites of manifests in any order: a reader sees the rows that a model has."""

from __future__ import annotations

import tempfile
from collections import Counter
from itertools import count
from pathlib import Path

from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC, PartitionField, PartitionSpec
from pyiceberg.transforms import IdentityTransform, TruncateTransform
from pyiceberg.typedef import Record

from compaction_pipeline.core.commit.ports import CommitState
from compaction_pipeline.core.tables.data_file import FileContent
from compaction_pipeline_tests.iceberg.lake import Lake, LakeTable
from compaction_pipeline_tests.iceberg.upkeep.manifest_entries import live_entries
from compaction_pipeline_tests.iceberg.upkeep.manifest_work import ManifestWork, counts
from compaction_pipeline_tests.reference_reader import canonical, located_rows
from compaction_pipeline_tests.scenarios.soundness import faults

_NAMES = st.sampled_from(["a", "b", None])
_IDS = st.lists(st.integers(0, 9), min_size=1, max_size=3, unique=True)
_SPEC = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "name"), spec_id=0)


class ManifestMachine(RuleBasedStateMachine):
    """One table. `rows` are the pairs of id and name that a reader must see."""

    t: LakeTable

    @initialize(partitioned=st.booleans(), bytes_wanted=st.sampled_from([5_000, 8 << 20]))
    def created(self, partitioned: bool, bytes_wanted: int) -> None:
        self._folder = tempfile.TemporaryDirectory()
        properties = {"commit.manifest.min-count-to-merge": "2", "commit.manifest.target-size-bytes": str(bytes_wanted)}
        lake = Lake(Path(self._folder.name))
        self.t = lake.table(spec=_SPEC if partitioned else UNPARTITIONED_PARTITION_SPEC, properties=properties)
        self.rewriter = ManifestWork(lake.catalogs)
        self.rows: Counter[tuple[int, str | None]] = Counter()
        self.numbers = count(1)
        self.rewrites = 0

    def teardown(self) -> None:
        self._folder.cleanup()

    def _values(self, name: str | None) -> list[str | None]:
        return [name if isinstance(field.transform, IdentityTransform) else name and name[:1] for field in self.t.table.spec().fields]

    def _partition(self, name: str | None) -> Record:
        return Record(*self._values(name))

    @property
    def _spec_id(self) -> int:
        return int(self.t.table.refresh().spec().spec_id)

    @rule(ids=_IDS, name=_NAMES)
    def append(self, ids: list[int], name: str | None) -> None:
        spec_id = self._spec_id
        self.t.insert(*({"id": one, "name": name} for one in ids), partition=self._partition(name), spec_id=spec_id)
        self.rows.update((one, name) for one in ids)

    @rule(ids=_IDS, name=_NAMES)
    def delete_by_equality(self, ids: list[int], name: str | None) -> None:
        """Equality deletes reach files of their own spec and partition; those of an unpartitioned spec reach all."""
        spec_id = self._spec_id
        reached = Counter[tuple[int, str | None]]()
        fields, partition = self.t.table.spec().fields, tuple(canonical(value) for value in self._values(name))
        for located in located_rows(self.t.table):
            same = located.entry.spec_id == spec_id and located.entry.partition == partition
            if located.row["id"] in ids and (not fields or same):
                reached[located.row["id"], located.row["name"]] += 1
        self.t.delete_ids(*ids, partition=self._partition(name), spec_id=spec_id)
        self.rows -= reached

    @precondition(lambda self: self.rows)
    @rule(data=st.data())
    def delete_by_position(self, data: st.DataObject) -> None:
        located = data.draw(st.sampled_from(sorted(located_rows(self.t.table.refresh()), key=lambda one: (one.entry.path, one.position))))
        file = next(one for one in self.t.files() if one.path == located.entry.path)
        record = Record(*(value.value for value in file.partition))
        written = self.t.position_file([(file.path, located.position)], partition=record, spec_id=file.spec_id)
        from compaction_pipeline.demo.row_delta import row_delta

        row_delta(self.t.table, position_deletes=[written])
        self.rows -= Counter([(located.row["id"], located.row["name"])])

    @rule()
    def compact(self) -> None:
        """Merge the files of the largest partition."""
        places = Counter((file.spec_id, file.partition) for file in self.t.files() if file.content is FileContent.DATA)
        if places:
            (place, _), number = places.most_common(1)[0], next(self.numbers)
            inputs = [file.path for file in self.t.files() if file.is_data and (file.spec_id, file.partition) == place]
            self.t.commit(self.t.merge(inputs, f"m{number}", output_spec_id=place[0]), record=f"record-{number}")

    @rule()
    def change_spec(self) -> None:
        with self.t.table.refresh().update_spec() as update:
            if any(isinstance(field.transform, TruncateTransform) for field in self.t.table.spec().fields):
                update.remove_field("start")
            else:
                update.add_field("name", TruncateTransform(1), "start")

    @rule()
    def rewrite_manifests(self) -> None:
        before, number = live_entries(self.t.table.refresh()), next(self.numbers)
        outcome = self.rewriter.rewrite(self.t.identifier, f"rewrite-{number}")
        assert live_entries(self.t.table.refresh()) == before
        if outcome.state is CommitState.COMMITTED:
            self.rewrites += 1
            assert counts(outcome)[0] < counts(outcome)[2]
        again = self.rewriter.look(self.t.identifier)
        assert not again.is_due

    @invariant()
    def a_reader_sees_the_rows_of_the_model(self) -> None:
        if hasattr(self, "t"):
            assert Counter((row["id"], row["name"]) for row in self.t.rows()) == self.rows
            assert faults(self.t.table) == []


_FEW = 20
"""So many examples take 20 s. With HYPOTHESIS_PROFILE=long there are as many as that profile says."""

ManifestMachine.TestCase.settings = settings(
    max_examples=_FEW if settings.default.max_examples <= 50 else settings.default.max_examples,
    stateful_step_count=14,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    # To shrink a failure takes minutes, and the steps that fail are few.
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
)
TestManifests = ManifestMachine.TestCase
