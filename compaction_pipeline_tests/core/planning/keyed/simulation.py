"""A keyed table in memory: rows as tuples in files. It is read as Amoro reads it, and carries out planned tasks as the kernel does.

It knows what is in each file by itself, and shares no rule with the product but the form of file names. The hash of a key is the key.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from copy import copy
from dataclasses import dataclass, field
from typing import NamedTuple

from compaction_pipeline.core.planning.keyed.delta_rewrite import DeltaRewrite
from compaction_pipeline.core.tables.data_file import FileContent, LiveFile
from compaction_pipeline.core.tables.keyed.keyed_files import KeyedFiles, TransactionSpan
from compaction_pipeline.core.tables.keyed.optimized_sequence import OptimizedSequences
from compaction_pipeline.core.tables.keyed.partition_paths import PathField, key_of
from compaction_pipeline.core.tables.node import Partition, PartitionValue
from compaction_pipeline.core.work.kinds import TaskAction
from compaction_pipeline.core.work.work import Work

FIELDS = (PathField("region", "identity", "string"),)
PARTITIONS: tuple[Partition, ...] = ((PartitionValue("region", "string", "eu"),), (PartitionValue("region", "string", "us"),))
_LAST = 1 << 62
Node = tuple[int, int]
"""Mask and index."""
Lsn = tuple[int, int]


class SimRow(NamedTuple):
    """A row of a change file: its key, its place in the log, and a number that tells it from all other rows."""

    key: int
    transaction: int
    offset: int
    number: int


@dataclass
class SimFile:
    """A file and its rows. `dead` are positions that position deletes delete. With `by_row` each row has its own transaction."""

    live: LiveFile
    node: Node
    kind: str
    transaction: int
    rows: list[SimRow]
    by_row: bool = False
    dead: frozenset[int] = frozenset()

    @property
    def sequence(self) -> int:
        return self.live.data_sequence_number

    def counted(self, above: int | None, up_to: int = _LAST) -> list[SimRow]:
        """The rows of a change file that are above the one number and up to the other."""
        low = -1 if above is None else above
        if self.by_row:
            return [row for row in self.rows if low < row.transaction <= up_to] if self.sequence > low else []
        return self.rows if low < self.sequence <= up_to else []

    def lsn(self, row: SimRow) -> Lsn:
        if self.kind == "B":
            return (self.transaction, _LAST)
        return (row.transaction if self.by_row else self.transaction, row.offset)


def related(one: Node, other: Node) -> bool:
    shared = min(one[0], other[0])
    return one[1] & shared == other[1] & shared


@dataclass
class SimTable:
    """Both stores. `above` are the optimized sequences, and `head` is the sequence number of the change store's newest snapshot.

    `rewritten` are change files that left the table for merged ones. Tasks that were planned before can still read them.
    """

    base: dict[str, SimFile] = field(default_factory=dict)
    changes: dict[str, SimFile] = field(default_factory=dict)
    rewritten: dict[str, SimFile] = field(default_factory=dict)
    above: dict[Partition, int] = field(default_factory=dict)
    head: int = 0
    numbers: list[int] = field(default_factory=lambda: [0])

    def copied(self) -> SimTable:
        """A table of its own with the same files. Files do not change, so both may hold them. New files get different names."""
        return SimTable(dict(self.base), dict(self.changes), dict(self.rewritten), dict(self.above), self.head, self.numbers)

    def next_number(self) -> int:
        self.numbers[0] += 1
        return self.numbers[0]

    def new_file(
        self,
        partition: Partition,
        node: Node,
        kind: str,
        transaction: int,
        rows: Sequence[SimRow],
        sequence: int,
        *,
        size: int = 10,
        records_a_row: int = 1,
        by_row: bool = False,
        named: int | None = None,
    ) -> SimFile:
        """Add a file. `named` is the transaction that its name tells; by default the right one. -1 gives the file a foreign name."""
        told = transaction if named is None else named
        node_id = node[0] + 1 + node[1]
        number = self.next_number()
        path = f"f{number}" if told < 0 else f"{node_id}-{kind}-{told}-00000-0-{number}-00001.parquet"
        live = LiveFile(path, FileContent.DATA, 0, partition, size, len(rows) * records_a_row, sequence)
        file = SimFile(live, node, kind, transaction, list(rows), by_row)
        (self.base if kind == "B" else self.changes)[path] = file
        return file

    # ---- reading

    def view(self) -> Counter[tuple[Partition, int, int]]:
        """The rows that a reader finds: (partition, key, number)."""
        found: Counter[tuple[Partition, int, int]] = Counter()
        for partition in PARTITIONS:
            above = self.above.get(partition)
            changes = [file for file in self.changes.values() if file.live.partition == partition]
            deletes = [(file, file.counted(above)) for file in changes if file.kind == "ED"]
            data = [(file, file.counted(above)) for file in changes if file.kind == "I"]
            data += [
                (file, [row for place, row in enumerate(file.rows) if place not in file.dead])
                for file in self.base.values()
                if file.live.partition == partition
            ]
            for file, rows in data:
                newest = _newest((each, deleted) for each, deleted in deletes if related(each.node, file.node))
                found.update((partition, row.key, row.number) for row in rows if not newest.get(row.key, (-1, 0)) > file.lsn(row))
        return found

    def files(self) -> KeyedFiles:
        """What a plan is made from."""
        by_row = [file for file in self.changes.values() if file.by_row]
        return KeyedFiles(
            base=tuple(file.live for file in self.base.values()),
            changes=tuple(file.live for file in self.changes.values()),
            sequences=OptimizedSequences(FIELDS, {key_of(partition, FIELDS): number for partition, number in self.above.items()}),
            change_snapshot_id=self.head,
            row_spans={file.live.path: _span(file) for file in by_row},
        )

    # ---- carrying out tasks

    def commit(self, works: Sequence[Work], base_mask: int = 0) -> None:
        """Carry out all tasks of one partition, and commit them. Base files get nodes of at least `base_mask`."""
        before = dict(self.base)
        for work in works:
            assert work.action is TaskAction.TO_BASE
            assert work.changes is not None
            self._carry_out(work, before, base_mask)
            self.above[work.node.partition] = work.changes.up_to

    def _carry_out(self, work: Work, before: dict[str, SimFile], base_mask: int) -> None:
        span, node = work.changes, (work.node.tree.mask, work.node.tree.index)
        assert span is not None

        def applied(files: Iterable[LiveFile]) -> list[tuple[SimFile, list[SimRow]]]:
            found = [self.changes.get(each.path) or self.rewritten[each.path] for each in files]
            return [(file, self.rows_of_task(file, span.above, span.up_to, node)) for file in found]

        inserts, deletes = applied(span.inserts), applied(span.deletes)
        newest = _newest(deletes)
        base = [before[each.path] for each in work.inputs]
        rewritten = [file for file in base if file.live.path not in span.marked]
        name = max(
            [file.lsn(row)[0] for file, rows in (*inserts, *deletes) for row in rows] + [file.transaction for file in rewritten], default=0
        )
        assert name <= span.up_to, "no name is above T"
        kept: list[SimRow] = []
        for file in base:
            gone = {place for place, row in enumerate(file.rows) if newest.get(row.key, (-1, 0)) > file.lsn(row)} | file.dead
            if file.live.path in span.marked:
                stays = copy(file)
                stays.dead = frozenset(gone)
                self.base[file.live.path] = stays
            else:
                kept += [row for place, row in enumerate(file.rows) if place not in gone]
                del self.base[file.live.path]
        kept += [row for file, rows in inserts for row in rows if not newest.get(row.key, (-1, 0)) > file.lsn(row)]
        mask = max(base_mask, node[0])
        for index in sorted({row.key & mask for row in kept}):
            rows = [row for row in kept if row.key & mask == index]
            self.new_file(work.node.partition, (mask, index), "B", name, rows, self.head, size=10 * len(rows))

    def rewrite(self, rewrite: DeltaRewrite, *, upsert: bool, share: float = 1.0) -> list[SimFile]:
        """Merge change files of a node with each other. The new files have this share of the bytes. They are returned."""
        inserts, deletes = ([self.changes[each.path] for each in files] for files in (rewrite.inserts, rewrite.deletes))
        newest = _newest((file, file.rows) for file in deletes)
        last = _newest((file, file.rows) for file in inserts)
        placed = [(file.lsn(row), row) for file in inserts for row in file.rows if not newest.get(row.key, (-1, 0)) > file.lsn(row)]
        if upsert:
            placed = [(lsn, row) for lsn, row in placed if lsn == last[row.key]]
        marks = [(file.lsn(row), row) for file in deletes for row in file.rows if file.lsn(row) == newest[row.key]]
        written = []
        for kind, files, rows in (("I", inserts, placed), ("ED", deletes, marks)):
            for file in files:
                self.rewritten[file.live.path] = self.changes.pop(file.live.path)
            if rows:
                own = [row._replace(transaction=lsn[0]) for lsn, row in rows]
                size, sequence = sum(file.live.file_size_bytes for file in files), rewrite.data_sequence_number
                place, node = rewrite.node.partition, files[0].node
                written.append(
                    self.new_file(place, node, kind, sequence, own, sequence, size=max(1, int(size * share)), by_row=True, named=0)
                )
        return written

    @staticmethod
    def rows_of_task(file: SimFile, above: int | None, up_to: int, node: Node) -> list[SimRow]:
        """The rows of a change file that the task takes."""
        rows = file.counted(above, up_to)
        within = file.node[0] >= node[0] and related(file.node, node)
        return rows if within else [row for row in rows if row.key & node[0] == node[1]]


def _newest(deletes: Iterable[tuple[SimFile, Sequence[SimRow]]]) -> dict[int, Lsn]:
    """The last delete of each key."""
    newest: dict[int, Lsn] = {}
    for file, rows in deletes:
        for row in rows:
            newest[row.key] = max(newest.get(row.key, (-1, 0)), file.lsn(row))
    return newest


def _span(file: SimFile) -> TransactionSpan:
    numbers = [row.transaction for row in file.rows]
    return TransactionSpan(min(numbers), max(numbers))
