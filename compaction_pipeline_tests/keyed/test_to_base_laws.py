"""Random logs of changes are merged into the base store up to a random transaction. No reader finds other rows, now or later.

What a reader must find comes from a model of a few lines: a row is there unless a delete of its key comes later in the log. The model knows
nothing of files, nodes and merges.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.transforms import BucketTransform, IdentityTransform

from compaction_pipeline.core.tables.data_file import LiveFile, OutputFile
from compaction_pipeline.core.tables.keyed.file_names import base_file, change_file
from compaction_pipeline_tests.keyed.base_merges import MIB, Choices, compact, small_batches
from compaction_pipeline_tests.keyed.change_logs import ChangeLog, partition_of
from compaction_pipeline_tests.keyed.delta_merges import rewrite
from compaction_pipeline_tests.keyed.keys import by, node_of
from compaction_pipeline_tests.reference_reader import Row, bag_difference

LAST = 2**63 - 1
Place = tuple[Any, ...]


@pytest.fixture(autouse=True, scope="module")
def _small_batches() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        small_batches(patch)
        yield


@dataclass(frozen=True)
class Change:
    """One row of the change store. `merged_at` is the lowest T that merges it."""

    kind: str
    partition: Place
    row: Row
    transaction: int
    offset: int
    merged_at: int


@dataclass(frozen=True)
class BaseRow:
    """One row of a base file that existed before the first merge."""

    path: str
    position: int
    partition: Place
    row: Row
    transaction: int


@dataclass
class World:
    """A table and the model of it."""

    log: ChangeLog
    optimized: int = 0
    reserved: int | None = None
    changes: list[Change] = field(default_factory=list)
    base: list[BaseRow] = field(default_factory=list)
    several: bool = False

    def commit(self, buckets: int, writer: str, rows: list[tuple[str, Row]], first: int, late: int) -> None:
        """Commit changes as a writer does. With `several` each row tells its own transaction, as in files of the product's own MINOR."""
        log = self.log
        transaction = {"spark": log.begin() if writer == "spark" else 0, "late": late, "reserved": self.reserved or 0}.get(writer, 0)
        if writer == "reserved":
            self.reserved = None
        sequence = log.sequence + 1
        files: dict[Any, list[Any]] = {}
        for number, (kind, each) in enumerate(rows):
            kind = "I" if writer == "foreign" else kind
            place, offset = partition_of(log.base, each), first + number // 2
            logged: tuple[Any, ...] = (each, offset)
            own = transaction or sequence
            if writer == "several":
                self.several = True
                own = self.optimized + 1 + (number * 7 + first) % (sequence - self.optimized)
                logged = (each, offset, own)
            files.setdefault((place, kind, node_of(each["id"], buckets)), []).append(logged)
            self.changes.append(Change(kind, place, each, own, offset, own if writer == "several" else sequence))
        outputs = []
        for (_, kind, node), each in files.items():
            name = f"0000-foreign-{log.number()}" if writer == "foreign" else None
            outputs.append(log.changes(node, kind, transaction, each, name=name))
        assert log.commit(*outputs) == sequence

    def add_base(self, buckets: int, transaction: int, rows: list[Row], deleted: list[int]) -> None:
        """Commit base files, and delete rows of older ones by position."""
        log = self.log
        transaction = min(transaction, log.sequence)
        files: dict[Any, list[Row]] = {}
        for each in rows:
            files.setdefault((partition_of(log.base, each), node_of(each["id"], buckets)), []).append(each)
        gone = {index % len(self.base) for index in deleted} if self.base and not log.base.spec().fields else set()
        positions: dict[str, list[int]] = {}
        for index in gone:
            positions.setdefault(self.base[index].path, []).append(self.base[index].position)
        outputs: list[OutputFile] = []
        kept = [each for index, each in enumerate(self.base) if index not in gone]
        for (place, node), each in files.items():
            outputs.append(log.base_rows(node, transaction, each))
            kept += [BaseRow(outputs[-1].path, position, place, one, transaction) for position, one in enumerate(each)]
        self.base = kept
        log.commit_base(*outputs, deleted=positions)

    def expected(self) -> list[Row]:
        """The rows that are there."""
        deletes: dict[Any, tuple[int, int]] = {}
        for each in self.changes:
            if each.kind == "ED":
                key = (each.partition, each.row["id"])
                deletes[key] = max(deletes.get(key, (-1, -1)), (each.transaction, each.offset))
        placed = [(each.partition, each.row, (each.transaction, LAST)) for each in self.base]
        placed += [(each.partition, each.row, (each.transaction, each.offset)) for each in self.changes if each.kind == "I"]
        return [each for place, each, lsn in placed if not deletes.get((place, each["id"]), (-1, -1)) > lsn]

    def candidates(self) -> list[int]:
        """Each T that a plan may choose: it has every lower transaction, and no transaction below it may still arrive."""
        names = max((base_file(file.path).transaction_id for file in self.log.base_files() if file.is_data), default=0)
        open_changes = [each for each in self.changes if each.merged_at > self.optimized]
        found = []
        for up_to in range(max(self.optimized, names), self.log.sequence + 1):
            merged = [each.transaction for each in open_changes if each.merged_at <= up_to]
            rest = [each.transaction for each in open_changes if each.merged_at > up_to]
            rest += [self.reserved] if self.reserved is not None else []
            if max([up_to if self.reserved is not None else 0, names, *merged]) < min(rest, default=LAST):
                found.append(up_to)
        return found

    def check(self, when: str) -> None:
        assert bag_difference(self.log.scanned(), self.expected()) == "", f"the product, {when}"
        if not self.several:
            assert bag_difference(self.log.judged(), self.expected()) == "", f"the reader of Amoro's rules, {when}"

    def rewrite(self, chosen: list[bool], memory_bytes: int) -> None:
        """Merge some change files of each node with each other. Each has the transaction that its data sequence number tells."""
        nodes: dict[Any, list[LiveFile]] = {}
        for file in sorted(self.log.change_files(), key=lambda each: each.path):
            named = change_file(file.path, file.data_sequence_number)
            if named.transaction_id == file.data_sequence_number:
                nodes.setdefault((file.partition, named.node), []).append(file)
        for files in nodes.values():
            taken = [file for number, file in enumerate(files) if chosen[number % len(chosen)]]
            if taken:
                self.several = True
                rewrite(self.log, taken, memory_bytes)

    def merge(self, choice: int, mask: int, marked: list[bool], buckets: int, memory_bytes: int) -> None:
        """Merge up to one of the candidates."""
        candidates = self.candidates()
        if not candidates:
            return
        up_to = candidates[-1 - choice % len(candidates)]
        data = [file.path for file in self.log.base_files() if file.is_data]
        stay = [path for number, path in enumerate(sorted(data)) if marked[number % len(marked)]]
        properties = {"base__file-index__hash-bucket": str(buckets)}
        results = compact(self.log, up_to, Choices(mask, stay, memory_bytes), **properties)
        for result in results:
            assert all(base_file(output.path).transaction_id <= up_to for output in result.outputs)
        self.optimized = up_to


_rows = st.builds(
    lambda number, region, v: {"id": number, "region": region, "ts": None, "v": v},
    st.integers(-3, 6), st.sampled_from([None, "eu"]), st.sampled_from("ab"),
)  # fmt: skip
_changes = st.lists(st.tuples(st.sampled_from(["I", "I", "ED"]), _rows), min_size=1, max_size=8)
_buckets = st.sampled_from([1, 2, 4, 8])


def _commits(*writers: str) -> st.SearchStrategy[Any]:
    return st.tuples(st.just("commit"), _buckets, st.sampled_from(writers), _changes, st.integers(0, 2))


_bases = st.tuples(
    st.just("base"), _buckets, st.integers(0, 6), st.lists(_rows, max_size=5), st.lists(st.integers(0, 20), max_size=2)
)  # fmt: skip
_merges = st.tuples(
    st.integers(0, 9), st.sampled_from([0, 1, 3, 7]), st.lists(st.booleans(), min_size=1, max_size=4), st.sampled_from([1, 2, 4]),
    st.sampled_from([MIB // 64, 256 * MIB]),
)  # fmt: skip
_rewrites = st.tuples(st.lists(st.booleans(), min_size=1, max_size=4), st.sampled_from([MIB // 64, 256 * MIB]))
_SPECS = [PartitionSpec(), by("region", IdentityTransform()), by("id", BucketTransform(2))]


def _do(world: World, steps: Iterable[Any], late: int) -> None:
    for step in steps:
        if step[0] == "commit":
            world.commit(*step[1:], late)
        else:
            world.add_base(*step[1:])


@given(
    spec=st.sampled_from(_SPECS),
    several=st.booleans(),
    data=st.data(),
    merges=st.tuples(_merges, _merges),
    reserve=st.booleans(),
)
@settings(max_examples=max(10, settings.default.max_examples // 3), deadline=None)
def test_no_reader_finds_other_rows_after_a_merge(
    spec: PartitionSpec, several: bool, data: st.DataObject, merges: Any, reserve: bool, tmp_path_factory: pytest.TempPathFactory
) -> None:
    kinds = ("flink", "spark", *(("several",) if several else ()))
    world = World(ChangeLog(tmp_path_factory.mktemp("log"), spec=spec, key=("id",)))
    late = world.log.begin()
    _do(world, data.draw(st.lists(st.one_of(_commits(*kinds, "late", "foreign"), _bases), min_size=1, max_size=4)), late)
    if reserve:
        # A transaction begins before the merge, and is committed after it.
        world.reserved = world.log.begin()
        _do(world, data.draw(st.lists(_commits(*kinds), max_size=1)), late)
    world.check("before any merge")
    world.merge(*merges[0])
    world.check("after the first merge")
    if world.reserved is not None:
        _do(world, [data.draw(_commits("reserved"))], late)
    _do(world, data.draw(st.lists(_commits(*kinds), min_size=1, max_size=2)), late)
    world.check("after later changes")
    world.merge(*merges[1])
    world.check("after the second merge")
    _do(world, [data.draw(_commits("flink"))], late)
    world.check("after the last changes")


@given(
    spec=st.sampled_from(_SPECS), data=st.data(), merges=st.tuples(_merges, _merges), rewrites=st.lists(_rewrites, min_size=4, max_size=4)
)
@settings(max_examples=max(10, settings.default.max_examples // 3), deadline=None)
def test_no_reader_finds_other_rows_after_change_files_are_merged_with_each_other(
    spec: PartitionSpec, data: st.DataObject, merges: Any, rewrites: Any, tmp_path_factory: pytest.TempPathFactory
) -> None:
    world = World(ChangeLog(tmp_path_factory.mktemp("log"), spec=spec, key=("id",)))
    late = world.log.begin()
    writers = ("flink", "flink", "spark", "several")
    _do(world, data.draw(st.lists(st.one_of(_commits(*writers, "late", "foreign"), _bases), min_size=2, max_size=5)), late)
    for number, merge in enumerate(merges):
        world.rewrite(*rewrites[2 * number])
        world.check(f"after rewrite {number}")
        world.merge(*merge)
        world.check(f"after merge {number}")
        # Merged files whose changes are in the base store, in whole or in part, are merged again with later ones.
        _do(world, data.draw(st.lists(_commits(*writers), min_size=1, max_size=2)), late)
        world.rewrite(*rewrites[2 * number + 1])
        world.check(f"after later changes {number}")
