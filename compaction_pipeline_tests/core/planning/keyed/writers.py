"""Random writers of a keyed table, and what must hold of every plan and every view of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import datetime, timezone
from random import Random

from compaction_pipeline.core.planning.keyed.to_base import PartitionPlan, ToBaseOptions
from compaction_pipeline.core.tables.keyed.transactions import BegunTransaction
from compaction_pipeline.core.tables.node import Partition
from compaction_pipeline.core.tables.properties import TableProperties
from compaction_pipeline.core.work.kinds import CompactionType
from compaction_pipeline.core.work.work import Work
from compaction_pipeline_tests.core.planning.keyed.simulation import PARTITIONS, Node, SimFile, SimRow, SimTable, related

_NOW = datetime(2026, 11, 23, tzinfo=timezone.utc)
_PROPERTIES = TableProperties(target_size_bytes=64, fragment_ratio=4, max_task_size_bytes=64)
KEYS = 16
_TYPES = (CompactionType.MINOR, CompactionType.MAJOR, CompactionType.FULL)


class Writers:
    """Random writers of a table, lawful ones: transactions in order, begun ones that land later, and ones that are given up.

    They choose among these partitions, masks of nodes, and sizes of files.
    """

    partitions: Sequence[Partition] = PARTITIONS
    masks: Sequence[int] = (0, 1, 3, 7)
    sizes: Sequence[int] = (2, 10, 40)

    def __init__(self, random: Random) -> None:
        self.random, self.table = random, SimTable()
        self.open: list[int] = []
        self.given_up: list[int] = []

    def begin(self) -> None:
        self.table.head += 1
        self.open.append(self.table.head)

    def give_up(self) -> None:
        if self.open:
            self.given_up.append(self.open.pop(self.random.randrange(len(self.open))))

    def append(self) -> list[SimFile]:
        """Land a transaction whose number is the data sequence number of its files."""
        self.table.head += 1
        return self._changes(self.table.head, self.random.choice([0, None]))

    def land(self) -> list[SimFile]:
        """Land a transaction that began before."""
        if not self.open:
            return []
        transaction = self.open.pop(self.random.randrange(len(self.open)))
        self.table.head += 1
        return self._changes(transaction, None)

    def land_late(self) -> list[SimFile]:
        if not self.given_up:
            return []
        transaction = self.given_up.pop()
        self.table.head += 1
        return self._changes(transaction, None)

    def add_to_base(self) -> None:
        """Add rows to the base store by another program, as rows of transaction 0."""
        random = self.random
        rows = [SimRow(random.randrange(KEYS), 0, 0, self.table.next_number()) for _ in range(random.randint(1, 4))]
        size, records = random.choice([3, 30, 90]), random.choice([1, 60])
        self.table.new_file(random.choice(PARTITIONS), (0, 0), "B", 0, rows, self.table.head, size=size, records_a_row=records, named=-1)

    def merge_changes(self) -> None:
        """Merge change files of one node and kind, whose transactions are their sequence numbers, into one that tells each row's."""
        groups: dict[tuple[Partition, Node, str], list[SimFile]] = {}
        for file in self.table.changes.values():
            if file.by_row or file.transaction == file.sequence:
                groups.setdefault((file.live.partition, file.node, file.kind), []).append(file)
        several = [group for group in groups.values() if len(group) > 1]
        if not several:
            return
        chosen = self.random.choice(several)[: self.random.randint(2, 4)]
        first = chosen[0]
        rows = [row for file in chosen for row in file.rows]
        for file in chosen:
            del self.table.changes[file.live.path]
        sequence = max(file.sequence for file in chosen)
        self.table.new_file(first.live.partition, first.node, first.kind, sequence, rows, sequence, size=20, by_row=True, named=0)

    def _changes(self, transaction: int, named: int | None) -> list[SimFile]:
        random, table = self.random, self.table
        partition, mask = random.choice(self.partitions), random.choice(self.masks)
        logged: dict[tuple[int, str], list[SimRow]] = {}
        offset = 0
        for _ in range(random.randint(1, 5)):
            key, kinds = random.randrange(KEYS), random.choice([("I",), ("ED",), ("ED", "I")])
            offset += random.randint(0, 1) if kinds == ("ED", "I") else 1
            for kind in kinds:
                logged.setdefault((key & mask, kind), []).append(SimRow(key, transaction, offset, table.next_number()))
        size = random.choice(self.sizes)
        return [
            table.new_file(partition, (mask, index), kind, transaction, rows, table.head, size=size, named=named)
            for (index, kind), rows in logged.items()
        ]


def options(random: Random, open_transactions: Iterable[int]) -> ToBaseOptions:
    return ToBaseOptions(
        type=random.choice(_TYPES),
        properties=_PROPERTIES,
        open_transactions=tuple(BegunTransaction(number, _NOW) for number in open_transactions),
        task_bytes=random.choice([None, 1, 8, 30, 100]),
        max_change_files=random.choice([None, None, None, 2, 5]),
    )


def check_plan(table: SimTable, plan: PartitionPlan, chosen: ToBaseOptions) -> None:
    """The laws of the plan of one partition."""
    if not plan.tasks:
        return
    spans = [work.changes for work in plan.tasks if work.changes is not None]
    assert len(spans) == len(plan.tasks)
    assert len({(work.group, span.above, span.up_to) for work, span in zip(plan.tasks, spans, strict=True)}) == 1
    assert plan.tasks[0].group
    above, up_to = spans[0].above, spans[0].up_to
    assert above == table.above.get(plan.partition)
    assert all(up_to < each.transaction_id for each in chosen.open_transactions)
    changes = [file for file in table.changes.values() if file.live.partition == plan.partition]
    if any(work.change_files for work in plan.tasks):
        assert (-1 if above is None else above) < up_to <= max(file.sequence for file in changes)
    else:
        assert up_to == (above or 0), "without changes the number stays"
    _check_cut(changes, above, up_to)
    inputs = [file.path for work in plan.tasks for file in work.inputs]
    assert len(inputs) == len(set(inputs)), "a base file is in one task at most"
    in_span = {file.live.path: file for file in changes if file.counted(above, up_to)}
    named = {file.path for span in spans for file in (*span.inserts, *span.deletes)}
    assert named >= in_span.keys(), "each change file with rows to merge is in a task"
    if chosen.max_change_files is not None:
        assert len(named) <= chosen.max_change_files
    _check_rows(table, plan.tasks, in_span, above, up_to)


def _check_cut(changes: Sequence[SimFile], above: int | None, up_to: int) -> None:
    merged = {row for file in changes for row in file.counted(above, up_to)}
    left = {row for file in changes for row in file.counted(up_to)}
    assert merged | left == {row for file in changes for row in file.counted(above)}, "no change is skipped"
    assert not merged & left
    assert max((row.transaction for row in merged), default=0) < min((row.transaction for row in left), default=1 << 62)
    assert all(row.transaction <= up_to for row in merged)
    assert all(row.transaction > up_to for row in left)


def _check_rows(table: SimTable, works: Sequence[Work], in_span: dict[str, SimFile], above: int | None, up_to: int) -> None:
    taken: Counter[int] = Counter()
    for work in works:
        assert work.changes is not None
        node = (work.node.tree.mask, work.node.tree.index)
        deletes = {file.path for file in work.changes.deletes}
        base = [table.base[file.path] for file in work.inputs]
        inserts = [in_span[file.path] for file in work.changes.inserts if file.path in in_span]
        assert all(file.node[0] >= node[0] and related(file.node, node) for file in base)
        for data in (*base, *inserts):
            for file in in_span.values():
                if file.kind == "ED" and related(file.node, data.node) and related(file.node, node):
                    assert file.live.path in deletes, "a delete file is with each file that it may reach"
        for file in inserts:
            taken.update(row.number for row in table.rows_of_task(file, above, up_to, node))
    inserted = [row.number for file in in_span.values() if file.kind == "I" for row in file.counted(above, up_to)]
    assert taken == Counter(inserted), "each inserted row is in exactly one task"


def check_view(table: SimTable, twin: SimTable, late: Sequence[SimFile]) -> None:
    """Both have the same rows, but for what late transactions change.

    Their inserts are there, whatever was deleted after them, and their deletes do not reach rows that are in the base store by then. No row
    is lost, and none is there twice.
    """
    found, expected = table.view(), twin.view()
    assert not expected - found, "no row is lost"
    deleted = {row.key for file in late if file.kind == "ED" for row in file.rows}
    inserted = {row.number for file in late if file.kind == "I" for row in file.rows}
    assert all(key in deleted or number in inserted for _, key, number in found - expected)
    assert max(found.values(), default=1) == 1
