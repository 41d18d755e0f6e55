"""Plans and merges changes into the base store in simple and slow Python, for tests of the commit.

It shares no code with the product's planner or kernel. Tests decide what is committed, and in which order.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pyarrow.parquet as pq
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC, PartitionSpec
from pyiceberg.table import Table

from compaction_pipeline.core.commit.ports import CommitOutcome
from compaction_pipeline.core.queue.task import CompactionTask, TaskStatus
from compaction_pipeline.core.tables.data_file import LiveFile, OutputFile
from compaction_pipeline.core.tables.deletes.applies import DeleteIndex
from compaction_pipeline.core.tables.keyed.file_names import base_file, change_file
from compaction_pipeline.core.tables.keyed.tree import DataTreeNode
from compaction_pipeline.core.tables.node import Partition, TableNode
from compaction_pipeline.core.tables.table import CatalogEntry, TableIdentifier
from compaction_pipeline.core.work.kinds import CompactionType, TaskAction
from compaction_pipeline.core.work.result import MergeResult
from compaction_pipeline.core.work.work import ChangeSpan, Work
from compaction_pipeline.demo.row_delta import row_delta
from compaction_pipeline.iceberg.catalogs.open_catalogs import Catalogs
from compaction_pipeline.iceberg.commit.committer import IcebergCommitter
from compaction_pipeline.iceberg.keyed.sequences import read_numbers, read_sequences
from compaction_pipeline.iceberg.manifests.partitions import partition_record, partition_struct
from compaction_pipeline.iceberg.scan import unpartitioned_spec_ids
from compaction_pipeline_tests.builders import task as task_builder
from compaction_pipeline_tests.interop.amoro_reader import optimized_sequences
from compaction_pipeline_tests.keyed.change_logs import ChangeLog, positions_file
from compaction_pipeline_tests.reference_reader import LocatedRow, Row, located_rows, metadata_of
from compaction_pipeline_tests.works import task_work

TABLE = TableIdentifier("lake", ("db",), "t")
_LAST = 2**63 - 1


class BaseCommits(ChangeLog):
    """A keyed table whose changes are merged by this class, and committed by the product."""

    def __init__(self, folder: Path, spec: PartitionSpec = UNPARTITIONED_PARTITION_SPEC) -> None:
        super().__init__(folder, spec=spec)
        self.folder = folder
        self.properties = {
            "type": "sql",
            "uri": f"sqlite:///{folder}/catalog.db",
            "warehouse": f"file://{folder}/wh",
            "catalog-name": "lake",
        }
        self.catalogs = Catalogs(lambda name: CatalogEntry(name, self.properties))
        self.committer = IcebergCommitter(self.catalogs, sleep=lambda seconds: None)
        self._plans = itertools.count(1)
        self.repeats_positions = True
        """Whether new position deletes of a marked file have the positions of those that they convert."""

    # ---- planning and merging

    def plan(
        self,
        *partitions: str,
        nodes: Sequence[int] = (1,),
        up_to: int | None = None,
        mark: Collection[str] = (),
        base_alone: bool = False,
    ) -> list[CompactionTask]:
        """Prepared tasks that merge the changes of these partitions (their `str`; all by default) at the head of both stores.

        There is one task for each of `nodes` (their ids), which hold all rows together. The files in `mark` stay, and get position deletes.
        With `base_alone` the base files of a partition are merged with each other instead, and none of its changes.
        """
        base, change = self.base.refresh(), self.change.refresh()
        plan_id = f"p{next(self._plans)}"
        of_base, of_change = _by_partition(self.base_files()), _by_partition(self.change_files())
        sequences = read_sequences("t", base.metadata, base.io)
        tasks = []
        for partition in dict.fromkeys([*of_base, *of_change]):
            name = str(TableNode(0, partition))
            above, last = sequences.of(partition), self.sequence if up_to is None else up_to
            changes = [file for file in of_change[partition] if (above or 0) < file.data_sequence_number <= last]
            of_partition = of_base[partition]
            if base_alone:
                changes, last = [], above or 0
                of_partition = [file for file in of_partition if not file.is_data or base_file(file.path).transaction_id <= last]
            if (any(file.is_data for file in of_partition) if base_alone else changes) and (not partitions or name in partitions):
                group = name if len(nodes) > 1 else ""
                for number in nodes:
                    node = TableNode(0, partition, DataTreeNode.of_id(number))
                    span = ChangeSpan((), (), above, last, _snapshot(change), tuple(mark), len(nodes))
                    tasks.append(self._task(plan_id, group, node, of_partition, changes, span))
        return tasks

    def _task(
        self, plan_id: str, group: str, node: TableNode, base: Sequence[LiveFile], changes: Sequence[LiveFile], span: ChangeSpan
    ) -> CompactionTask:
        task_id = f"{plan_id}t{self.number()}"
        mine = [file for file in changes if change_file(file.path, file.data_sequence_number).node.shares_rows_with(node.tree)]
        inserts = tuple(file for file in mine if change_file(file.path, 0).type.value == "I")
        deletes = tuple(file for file in mine if file not in inserts)
        inputs = tuple(file for file in base if file.is_data and base_file(file.path).node.is_within(node.tree))
        index = DeleteIndex([file for file in base if not file.is_data], unpartitioned_spec_ids(self.base.metadata))
        applied = {delete.path: delete for file in inputs for delete in index.of(file)}
        span = replace(span, inserts=inserts, deletes=deletes, marked=tuple(file.path for file in inputs if file.path in span.marked))
        converts = tuple(path for path, delete in applied.items() if delete.referenced_data_file in span.marked)
        work = task_work(
            node, CompactionType.MAJOR, TaskAction.TO_BASE, inputs, tuple(applied.values()), 0, 1 << 27, 1 << 24,
            group=group, changes=span, converts=converts,
        )  # fmt: skip
        snapshot = self.base.current_snapshot()
        outputs = self._merged(task_id, work, span)
        rows = sum(output.record_count for output in outputs if output.is_data)
        return task_builder(
            task_id, plan_id=plan_id, table=TABLE, table_uuid=str(self.base.metadata.table_uuid),
            snapshot_id=snapshot.snapshot_id if snapshot else 0, sequence_number=(snapshot.sequence_number or 0) if snapshot else 0,
            schema_id=self.base.metadata.current_schema_id, work=work, status=TaskStatus.PREPARED,
            result=MergeResult(task_id, "a1", outputs, rows_written=rows),
        )  # fmt: skip

    def _merged(self, task_id: str, work: Work, span: ChangeSpan) -> tuple[OutputFile, ...]:
        """The files that a kernel would write: each living row of the rewritten inputs and of the inserts, and the marked positions."""
        newest: dict[int, tuple[int, int]] = {}
        for file in span.deletes:
            for lsn, values in _logged(file):
                newest[values["id"]] = max(newest.get(values["id"], lsn), lsn)
        located: dict[str, list[LocatedRow]] = defaultdict(list)
        for each in located_rows(self.base):
            located[each.entry.path].append(each)
        transactions = [base_file(file.path).transaction_id for file in work.inputs]
        rows: list[Row] = []
        outputs: list[OutputFile] = []
        for file in work.inputs:
            lsn = (base_file(file.path).transaction_id, _LAST)
            dead = [one for one in located[file.path] if newest.get(one.row["id"], lsn) > lsn]
            if file.path not in span.marked:
                rows += [one.row for one in located[file.path] if one not in dead]
            elif dead:
                name = f"{work.node.tree.id}-PD-{lsn[0]}-00000-0-{self.number()}-{task_id}"
                before = [one for one in work.deletes if one.path in work.converts and one.referenced_data_file == file.path]
                positions = {one.position for one in dead}
                if self.repeats_positions:
                    positions.update(*(_positions_in(one) for one in before))
                outputs.append(self._positions(file, sorted(positions), name))
        for file in span.inserts:
            for lsn, values in _logged(file):
                transactions.append(lsn[0])
                if not newest.get(values["id"], lsn) > lsn:
                    rows.append(values)
        if rows:
            highest = max((*transactions, *(lsn[0] for lsn in newest.values())))
            outputs.append(
                self.base_rows(work.node.tree.id, highest, rows, name=f"{work.node.tree.id}-B-{highest}-00000-0-{self.number()}-{task_id}")
            )
        return tuple(outputs)

    # ---- committing

    def commit_tasks(self, *tasks: CompactionTask, record: str = "record-1", committer: IcebergCommitter | None = None) -> CommitOutcome:
        return (committer or self.committer).commit(TABLE, record, tasks)

    # ---- reading

    def sequences(self) -> dict[tuple[Any, ...], int]:
        """The optimized sequences as Amoro's rules read them."""
        return optimized_sequences(metadata_of(self.base.refresh().metadata_location))

    def puffins(self) -> set[str]:
        """The names of all statistics files on storage."""
        return {path.name for path in self.folder.rglob("*.puffin")}

    def base_paths(self) -> list[str]:
        """The paths of the live data files of the base store, sorted."""
        return sorted(file.path for file in self.base_files() if file.is_data)

    # ---- other writers of the base store, which know nothing of keyed tables

    def append_base(self, transaction: int, rows: Sequence[Row]) -> None:
        """Append a file to the base store. With transaction 0 the file has a name as other programs give it.

        Who writes a file of another transaction says which changes are merged, as every compaction and insert-overwrite does.
        """
        file = self.base_rows(1, transaction, rows, name=None if transaction else f"other-{self.number()}")
        if not transaction:
            row_delta(self.base, [file])
            return
        self.commit_base(file, sequences=read_numbers("t", self.base.refresh().metadata, self.base.io))

    def delete_rows(self, path: str, *positions: int) -> None:
        """Delete rows of a base file by position."""
        (file,) = [file for file in self.base_files() if file.path == path]
        row_delta(self.base, position_deletes=[self._positions(file, positions, f"other-{self.number()}")])

    def _positions(self, file: LiveFile, positions: Sequence[int], name: str) -> OutputFile:
        partition = partition_record(partition_struct(self.base.metadata, file.spec_id), file.partition)
        return positions_file(self.base, [(file.path, position) for position in positions], name, partition)

    def roll_back_changes(self, snapshot_id: int) -> None:
        """Roll the change store back to a snapshot."""
        with self.change.refresh().manage_snapshots() as manage:
            manage.rollback_to_snapshot(snapshot_id)


def _snapshot(table: Table) -> int:
    snapshot = table.current_snapshot()
    return 0 if snapshot is None else snapshot.snapshot_id


def _by_partition(files: Iterable[LiveFile]) -> dict[Partition, list[LiveFile]]:
    found: dict[Partition, list[LiveFile]] = defaultdict(list)
    for file in files:
        found[file.partition].append(file)
    return found


def _positions_in(delete: LiveFile) -> set[int]:
    return set(pq.read_table(urlsplit(delete.path).path, columns=["pos"])["pos"].to_pylist())


def _logged(file: LiveFile) -> Iterable[tuple[tuple[int, int], Row]]:
    """The rows of a change file, each with its transaction and offset."""
    transaction = change_file(file.path, file.data_sequence_number).transaction_id
    for values in pq.read_table(urlsplit(file.path).path).to_pylist():
        yield (transaction, values.pop("_file_offset", _LAST)), values


def span_of(task: CompactionTask) -> ChangeSpan:
    assert task.work.changes is not None
    return task.work.changes


def with_span(task: CompactionTask, **changes: Any) -> CompactionTask:
    return replace(task, work=replace(task.work, changes=replace(span_of(task), **changes)))
