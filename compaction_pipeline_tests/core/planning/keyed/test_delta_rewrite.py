"""Which change files of a keyed table are merged with each other, and that no reader sees the difference."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from itertools import pairwise
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compaction_pipeline.core.fragmentation.verdict import NodeHistory, PlanReasonCode
from compaction_pipeline.core.planning.keyed.delta_rewrite import DeltaRewrite, NodeRewrites, plan_delta_rewrites
from compaction_pipeline.core.planning.keyed.to_base import plan_to_base
from compaction_pipeline.core.tables.data_file import LiveFile
from compaction_pipeline.core.tables.properties import TableProperties
from compaction_pipeline_tests.core.planning.keyed.simulation import PARTITIONS, SimFile, SimRow, SimTable
from compaction_pipeline_tests.core.planning.keyed.writers import Writers, check_plan, check_view, options

_NOW = datetime(2026, 11, 23, tzinfo=timezone.utc)
_PROPERTIES = TableProperties(target_size_bytes=64, fragment_ratio=4, max_task_size_bytes=64, minor_file_count=3)
_NO_HISTORY = NodeHistory()
_ROW = SimRow(0, 0, 0, 0)
_NODE = (0, 0)


def plan(table: SimTable, held: Sequence[str] = (), *, force: bool = False, history: NodeHistory = _NO_HISTORY) -> tuple[NodeRewrites, ...]:
    return plan_delta_rewrites(table.files(), held, _PROPERTIES, history, _NOW, 3, force=force)


def only(table: SimTable, held: Sequence[str] = (), *, force: bool = False) -> NodeRewrites:
    (found,) = plan(table, held, force=force)
    return found


def add(
    table: SimTable, kind: str, *, size: int = 2, sequence: int | None = None, transaction: int | None = None, merged: bool = False
) -> str:
    """A change file of one row in a transaction of its own."""
    table.head += 1
    number = table.head if sequence is None else sequence
    told = number if transaction is None else transaction
    rows = [_ROW._replace(transaction=told)]
    named = 0 if merged or transaction is None else told
    return table.new_file(PARTITIONS[0], _NODE, kind, told, rows, number, size=size, by_row=merged, named=named).live.path


def paths(files: Sequence[LiveFile]) -> list[str]:
    return [file.path for file in files]


# ---- which files


def test_small_inserts_and_small_deletes_of_a_node_are_merged_apart() -> None:
    table = SimTable()
    inserts = [add(table, "I") for _ in range(3)]
    deletes = [add(table, "ED") for _ in range(2)]
    found = only(table)
    assert found.reason.code is PlanReasonCode.PLANNED
    assert "3 small data files, and 3 make a MINOR due: 5 change files" in found.reason.text
    (rewrite,) = found.rewrites
    assert (paths(rewrite.inserts), paths(rewrite.deletes), rewrite.data_sequence_number) == (inserts, deletes, 5)


def test_the_only_file_of_a_kind_stays_as_it_is() -> None:
    table = SimTable()
    for kind in ("I", "I", "I", "ED"):
        add(table, kind)
    (rewrite,) = only(table).rewrites
    assert (len(rewrite.inserts), rewrite.deletes) == (3, ())


def test_too_few_files_wait_for_more_or_for_the_interval() -> None:
    table = SimTable()
    add(table, "I")
    add(table, "I")
    waits = only(table)
    assert (waits.reason.code, waits.rewrites) == (PlanReasonCode.NOT_FRAGMENTED, ())
    assert "2 small data files of 3 needed" in waits.reason.text
    seen = NodeHistory(first_seen={waits.node: _NOW - timedelta(hours=2)})
    (found,) = plan(table, history=seen)
    assert len(found.rewrites[0].inserts) == 2


def test_one_file_of_each_kind_is_no_gain_even_when_work_is_asked_for() -> None:
    table = SimTable()
    add(table, "I")
    add(table, "ED")
    found = only(table, force=True)
    assert (found.reason.code, found.rewrites) == (PlanReasonCode.NO_GAIN, ())


def test_large_files_and_files_that_readers_skip_are_not_touched() -> None:
    table = SimTable()
    add(table, "I", size=17)
    skipped = [add(table, "I") for _ in range(3)]
    table.above[PARTITIONS[0]] = table.head
    small = [add(table, "I", size=16) for _ in range(3)]
    (rewrite,) = only(table).rewrites
    assert paths(rewrite.inserts) == small
    assert not set(skipped) & set(paths(rewrite.files))


def test_a_file_of_a_transaction_that_began_before_its_commit_is_left_out() -> None:
    table = SimTable()
    begun = add(table, "I", sequence=9, transaction=3)
    for number in (10, 11):
        add(table, "I", sequence=number)
    found = only(table)
    assert "2 small data files of 3 needed" in found.reason.text
    assert "1 small change file of a transaction that began before its commit" in found.reason.text
    assert begun not in paths(only(table, force=True).rewrites[0].files)


def test_held_files_are_left_out_and_told() -> None:
    table = SimTable()
    held = [add(table, "I") for _ in range(3)]
    found = only(table, held)
    assert (found.reason.code, found.rewrites) == (PlanReasonCode.FILES_IN_USE, ())
    assert "3 small change files held by other tasks or by a sink" in found.reason.text


def test_a_file_that_is_live_twice_is_left_out() -> None:
    table = SimTable()
    twice = add(table, "I")
    add(table, "I")
    add(table, "I")
    files = table.files()
    files = replace(files, changes=(*files.changes, table.changes[twice].live))
    (found,) = plan_delta_rewrites(files, (), _PROPERTIES, _NO_HISTORY, _NOW, 3, force=True)
    assert twice not in paths(found.rewrites[0].files)
    assert "live twice" not in found.reason.text


@pytest.mark.parametrize(
    ("new", "merged", "taken"),
    [
        (3, [6], [6]),
        (3, [7], []),
        (3, [7, 13], [7, 13]),
        (3, [7, 14], []),
        (3, [5, 14], [5]),
        (0, [5, 5], [5, 5]),
        (0, [5, 6], []),
        (1, [3], []),
    ],
)
def test_a_merged_file_is_merged_again_only_beside_as_many_bytes_as_it_has(new: int, merged: list[int], taken: list[int]) -> None:
    table = SimTable()
    sizes = {add(table, "I", size=size, merged=True): size for size in merged}
    fresh = {add(table, "I", size=2) for _ in range(new)}
    found = {path for rewrite in only(table, force=True).rewrites for path in paths(rewrite.inserts)}
    assert sorted(sizes[path] for path in found & sizes.keys()) == taken
    reason, waiting = only(table).reason, len(merged) - len(taken)
    if reason.code is not PlanReasonCode.PLANNED:
        assert (f"{waiting} merged file" in reason.text) is bool(waiting)
    assert found >= fresh or len(fresh) == 1


def test_more_than_a_task_holds_is_several_tasks_in_the_order_of_the_log() -> None:
    table = SimTable()
    for _ in range(10):
        add(table, "I", size=16)
        add(table, "ED", size=4)
    rewrites = only(table).rewrites
    assert len(rewrites) > 1
    for rewrite in rewrites:
        assert sum(file.file_size_bytes for file in rewrite.files) <= 64
    ends = [(min(file.data_sequence_number for file in each.files), each.data_sequence_number) for each in rewrites]
    assert all(before[1] < after[0] for before, after in pairwise(ends))


# ---- laws


class SmallWriters(Writers):
    """Writers of small files in few nodes, so that there is much to merge."""

    partitions = PARTITIONS[:1]
    masks = (0, 1, 1, 1)
    sizes = (1, 2, 2, 10, 40)


class UpsertWriters(SmallWriters):
    """Writers of an upsert table: each insert is a delete of its key first, and the key decides about the partition."""

    def _changes(self, transaction: int, named: int | None) -> list[SimFile]:
        random, table = self.random, self.table
        mask, offset = random.choice(self.masks), 0
        logged: dict[tuple[int, int, str], list[SimRow]] = {}
        for _ in range(random.randint(1, 5)):
            key, inserts = random.randrange(10), random.random() < 0.7
            for kind in ("ED", "I") if inserts else ("ED",):
                offset += 1
                row = SimRow(key, transaction, offset, table.next_number())
                logged.setdefault((key >> 3, key & mask, kind), []).append(row)
        return [
            table.new_file(
                PARTITIONS[place], (mask, index), kind, transaction, rows, table.head, size=random.choice(self.sizes), named=named
            )
            for (place, index, kind), rows in logged.items()
        ]


def check_rewrites(table: SimTable, found: NodeRewrites, held: Sequence[str]) -> None:
    """The laws of what is planned for one node."""
    for rewrite in found.rewrites:
        files = [table.changes[file.path] for file in rewrite.files]
        assert not set(paths(rewrite.files)) & set(held)
        assert {(file.live.partition, file.node) for file in files} == {
            (found.node.partition, (found.node.tree.mask, found.node.tree.index))
        }
        assert all(file.transaction == file.sequence for file in files)
        assert all(file.live.file_size_bytes <= _PROPERTIES.fragment_size_bytes for file in files)
        assert {table.changes[file.path].kind for file in rewrite.inserts} <= {"I"}
        assert {table.changes[file.path].kind for file in rewrite.deletes} <= {"ED"}
        assert len(rewrite.inserts) != 1
        assert len(rewrite.deletes) != 1
        assert rewrite.files
    taken = [path for rewrite in found.rewrites for path in paths(rewrite.files)]
    assert len(taken) == len(set(taken))


def apply(random: Random, table: SimTable, found: Sequence[NodeRewrites], *, upsert: bool) -> None:
    """Commit some of the tasks, in any order, unless an input has left the table."""
    rewrites: list[DeltaRewrite] = [each for node in found for each in node.rewrites]
    random.shuffle(rewrites)
    for rewrite in rewrites:
        if random.random() < 0.8 and all(file.path in table.changes for file in rewrite.files):
            table.rewrite(rewrite, upsert=upsert, share=random.choice([0.3, 1.0]))


def check_delta_rewrites(random: Random, writers: Writers, *, upsert: bool) -> None:
    """Writers, merges of change files and merges into the base store in any order. A twin of the table has the writers alone."""
    table = writers.table
    twin = table.copied()
    late: list[SimFile] = []
    to_base, rewrites = plan_to_base(table.files(), options(random, [])), plan(table)
    for _ in range(random.randint(4, 40)):
        step = random.choice(
            ["write"] * 5 + ["late", "plan rewrites", "commit rewrites", "commit rewrites", "plan to base", "commit to base"]
        )
        if step in ("write", "late"):
            act = writers.land_late if step == "late" else random.choice([writers.append, writers.append, writers.land])
            files = act()
            late += files if step == "late" else []
            twin.changes.update({file.live.path: file for file in files})
            if random.random() < 0.6:
                random.choice([writers.begin, writers.give_up])()
        elif step == "plan rewrites":
            held = [path for path in table.changes if random.random() < 0.1]
            rewrites = plan(table, held, force=random.random() < 0.7)
            for found in rewrites:
                check_rewrites(table, found, held)
        elif step == "commit rewrites":
            apply(random, table, rewrites, upsert=upsert)
        elif step == "plan to base":
            chosen = options(random, writers.open)
            to_base = plan_to_base(table.files(), chosen)
            for each in to_base:
                check_plan(table, each, chosen)
        else:
            # A late transaction between plan and commit is a conflict, as the commit decides.
            for each in to_base:
                arrived = [
                    file for file in late if each.tasks and each.tasks[0].changes and file.transaction <= each.tasks[0].changes.up_to
                ]
                if each.tasks and not arrived and each.above == table.above.get(each.partition):
                    table.commit(each.tasks, random.choice([0, 3]))
        check_view(table, twin, late)


@given(st.randoms(use_true_random=False))
def test_no_reader_sees_that_change_files_were_merged(random: Random) -> None:
    check_delta_rewrites(random, SmallWriters(random), upsert=False)


@given(st.randoms(use_true_random=False))
def test_no_reader_of_an_upsert_table_sees_it_either(random: Random) -> None:
    check_delta_rewrites(random, UpsertWriters(random), upsert=True)


@given(st.randoms(use_true_random=False))
def test_each_round_lowers_the_number_of_files_until_nothing_is_left_to_do(random: Random) -> None:
    writers = SmallWriters(random)
    for _ in range(random.randint(2, 20)):
        writers.append()
    for _ in range(len(writers.table.changes) + 1):
        before = len(writers.table.changes)
        rewrites = [each for node in plan(writers.table, force=True) for each in node.rewrites]
        if not rewrites:
            break
        for rewrite in rewrites:
            writers.table.rewrite(rewrite, upsert=False, share=random.choice([0.3, 1.0]))
        assert len(writers.table.changes) < before
    assert not any(node.rewrites for node in plan(writers.table, force=True))
