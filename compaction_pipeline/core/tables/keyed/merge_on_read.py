"""Which files a reader of a keyed table must merge, node by node (Amoro: `BasicKeyedTableScan`).

A row of the base store or of an insert file is deleted when a delete of its key comes later in the log of changes. The place of a row in
the log is its LSN: its transaction, then its offset in the transaction. Rows of the base store come after all changes of their own
transaction. Rows with one key lie in nodes of which one is within the other, so a delete file must be read with the data files of its own
node, of all nodes above and of all nodes below.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from compaction_pipeline.core.errors import TableRefused
from compaction_pipeline.core.tables.data_file import FileContent, LiveFile
from compaction_pipeline.core.tables.keyed.file_names import KeyedFile, KeyedFileType, base_file, change_file, parse_name
from compaction_pipeline.core.tables.keyed.optimized_sequence import OptimizedSequences
from compaction_pipeline.core.tables.node import Partition, TableNode


@dataclass(frozen=True, slots=True)
class KeyedInput:
    """A file to read, and what its name says about all its rows."""

    file: LiveFile
    named: KeyedFile


@dataclass(frozen=True, slots=True)
class NodeRead:
    """The files with the rows of one node, and the files with their deletes.

    `deletes` are delete files of the change store, and `base_deletes` are Iceberg's own delete files of the node's partition in the base
    store. Rows of change files whose own transaction is not above `optimized` are in the base store already; None means that no row is.
    """

    node: TableNode
    base: tuple[KeyedInput, ...]
    inserts: tuple[KeyedInput, ...]
    deletes: tuple[KeyedInput, ...]
    base_deletes: tuple[LiveFile, ...]
    optimized: int | None


@dataclass(frozen=True, slots=True)
class PartitionRead:
    """The files of both stores in one partition. The fields are those of `NodeRead`, for all nodes of the partition together."""

    spec_id: int
    partition: Partition
    base: tuple[KeyedInput, ...]
    inserts: tuple[KeyedInput, ...]
    deletes: tuple[KeyedInput, ...]
    base_deletes: tuple[LiveFile, ...]
    optimized: int | None

    def nodes(self) -> Iterable[NodeRead]:
        """The nodes that have rows, in the order of their ids."""
        for tree in sorted({each.named.node for each in (*self.base, *self.inserts)}, key=lambda node: node.id):
            yield NodeRead(
                TableNode(self.spec_id, self.partition, tree),
                tuple(each for each in self.base if each.named.node == tree),
                tuple(each for each in self.inserts if each.named.node == tree),
                tuple(each for each in self.deletes if each.named.node.shares_rows_with(tree)),
                self.base_deletes,
                self.optimized,
            )


def nodes_to_read(
    base: Iterable[LiveFile], changes: Iterable[LiveFile], sequences: OptimizedSequences, *, keys_tell_partitions: bool
) -> tuple[NodeRead, ...]:
    """The nodes that have rows, in the order of their ids within each partition. Arguments are those of `partitions_to_read`.

    The files may have several partition specs. With `keys_tell_partitions` all rows of a key are in one partition of each spec; then a
    delete meets the rows of its key in the partitions of other specs too. Raises as `partitions_to_read`, and TableRefused when a delete
    of one spec may delete rows of another and it is unknown which.
    """
    partitions = _partitions(list(base), list(changes), sequences)
    deletes = [(partition.spec_id, each) for partition in partitions for each in partition.deletes]
    return tuple(
        _with_deletes_of_other_specs(node, [each for spec_id, each in deletes if spec_id != node.node.spec_id], keys_tell_partitions)
        for partition in partitions
        for node in partition.nodes()
    )


def _with_deletes_of_other_specs(read: NodeRead, others: Sequence[KeyedInput], keys_tell_partitions: bool) -> NodeRead:
    """The node with those deletes of other partition specs that may come after one of its rows."""
    rows = (*read.base, *read.inserts)
    # An insert file that tells the transaction of each row may have rows of lower transactions than its name tells.
    lowest = 0 if read.inserts else min(each.named.transaction_id for each in read.base)
    reaching = [each for each in others if each.named.transaction_id >= lowest and each.named.node.shares_rows_with(read.node.tree)]
    for each in reaching:
        why = None
        if not keys_tell_partitions:
            why = "the columns that decide about the partition are not all in the primary key"
        elif read.optimized is not None and each.file.data_sequence_number <= read.optimized:
            why = f"changes up to {read.optimized} of that partition are in the base store already"
        if why is not None:
            raise TableRefused(
                f"delete file {each.file.path} has another partition spec than {rows[0].file.path}, and {why}: it is unknown which rows it "
                "deletes there. Roll both stores back to snapshots before the change of the spec, and write the later changes again"
            )
    return replace(read, deletes=(*read.deletes, *reaching))


def partitions_to_read(base: Iterable[LiveFile], changes: Iterable[LiveFile], sequences: OptimizedSequences) -> tuple[PartitionRead, ...]:
    """The partitions that have files which count. A partition may have nothing but deletes.

    `base` and `changes` are the live files of the two stores; some partitions may be left out. Raises TableRefused when a file cannot be
    what its place says, or when the files have several partition specs: then it is unknown which deletes meet which rows.
    """
    base, changes = list(base), list(changes)
    _refuse_several_specs(*base, *changes)
    return _partitions(base, changes, sequences)


def _partitions(base: Sequence[LiveFile], changes: Sequence[LiveFile], sequences: OptimizedSequences) -> tuple[PartitionRead, ...]:
    specs = {file.spec_id for file in (*base, *changes)}
    for spec_id in specs:
        sequences.of_spec(spec_id).refuse_shared_numbers(file.partition for file in (*base, *changes) if file.spec_id == spec_id)
    files = _Files()
    for file in base:
        if file.content is FileContent.EQUALITY_DELETES and len(specs) > 1:
            raise TableRefused(
                f"file {file.path} of the base store holds equality deletes, and live files have the partition specs "
                f"{', '.join(map(str, sorted(specs)))}: it is unknown which rows it deletes. Rewrite the rows, and remove the file"
            )
        files.add_base(file)
    for file in changes:
        optimized = sequences.of_spec(file.spec_id).of(file.partition)
        if optimized is None or file.data_sequence_number > optimized:
            files.add_change(file)
    files.refuse_rows_in_both_stores()
    return tuple(files.read(place, sequences) for place in files.places)


def refuse_lost_deletes(changes: Iterable[LiveFile], replacing_snapshots: frozenset[int]) -> None:
    """Raise TableRefused when a program compacted the change store as a plain table.

    `replacing_snapshots` are the change store's snapshots with the operation `replace`. Such a program gives its files names of its own, so
    that their deletes count as inserts.
    """
    for file in changes:
        if file.added_snapshot_id in replacing_snapshots and parse_name(file.path) is None:
            raise TableRefused(
                f"file {file.path} of the change store was written by a program that compacted the store as a plain table: deletes became "
                f"inserts in it. Roll the change store back to a snapshot before {file.added_snapshot_id}"
            )


def _refuse_several_specs(*files: LiveFile) -> None:
    specs = sorted({file.spec_id for file in files})
    if len(specs) > 1:
        raise TableRefused(
            f"the live files of the keyed table have the partition specs {', '.join(map(str, specs))}: deletes are found by partition, so "
            "they would not meet rows of another spec"
        )


_Place = tuple[int, Partition]
"""The partition spec and the partition of a file."""


class _Files:
    """The files of both stores by partition. A file that a store lists twice counts once, as in Amoro."""

    def __init__(self) -> None:
        self._base: dict[_Place, dict[str, KeyedInput]] = defaultdict(dict)
        self._inserts: dict[_Place, dict[str, KeyedInput]] = defaultdict(dict)
        self._deletes: dict[_Place, dict[str, KeyedInput]] = defaultdict(dict)
        self._base_deletes: dict[_Place, dict[str, LiveFile]] = defaultdict(dict)

    def add_base(self, file: LiveFile) -> None:
        place = (file.spec_id, file.partition)
        if file.content is not FileContent.DATA:
            self._base_deletes[place][file.path] = file
            return
        named = base_file(file.path)
        if named.type is not KeyedFileType.BASE:
            raise _misplaced(file, named, "base", "base rows (B)")
        self._base[place][file.path] = KeyedInput(file, named)

    def add_change(self, file: LiveFile) -> None:
        place = (file.spec_id, file.partition)
        if file.content is not FileContent.DATA:
            raise TableRefused(
                f"file {file.path} of the change store is a delete file of Iceberg, but the change store holds deletes as rows; another "
                f"program changed the store as if it were a plain table. Roll it back to a snapshot before {file.added_snapshot_id}"
            )
        named = change_file(file.path, file.data_sequence_number)
        if named.type is KeyedFileType.INSERT:
            self._inserts[place][file.path] = KeyedInput(file, named)
        elif named.type is KeyedFileType.EQUALITY_DELETE:
            self._deletes[place][file.path] = KeyedInput(file, named)
        else:
            raise _misplaced(file, named, "change", "inserts (I) or deletes (ED)")

    def refuse_rows_in_both_stores(self) -> None:
        twice = {path for files in self._base.values() for path in files} & {path for files in self._inserts.values() for path in files}
        if twice:
            raise TableRefused(
                f"file {min(twice)} is live in the base store and, above the optimized sequence, in the change store too: its rows would "
                "appear twice"
            )

    @property
    def places(self) -> Sequence[_Place]:
        return list(dict.fromkeys([*self._base, *self._inserts, *self._deletes]))

    def read(self, place: _Place, sequences: OptimizedSequences) -> PartitionRead:
        spec_id, partition = place
        base, inserts, deletes = (tuple(files[place].values()) for files in (self._base, self._inserts, self._deletes))
        base_deletes = tuple(self._base_deletes[place].values())
        return PartitionRead(spec_id, partition, base, inserts, deletes, base_deletes, sequences.of_spec(spec_id).of(partition))


def _misplaced(file: LiveFile, named: KeyedFile, store: str, rule: str) -> TableRefused:
    return TableRefused(
        f"file {file.path} of the {store} store is called a file of type {named.type.value}, but data files of this store hold {rule}; "
        "find out who added it, and roll the store back"
    )
