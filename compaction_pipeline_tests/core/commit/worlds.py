"""Small tables for tests of the commit's decisions: a history of writes, plans in the middle, and commits after them.

A row is known by its id and is in one file. The visible rows are found by testing each pair of a data file and a delete file with
`core/tables/deletes/applies.py`, without the indexes that the decisions use.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone

from compaction_pipeline.core.commit.head import HeadFiles, HeadLayout
from compaction_pipeline.core.queue.task import CompactionTask
from compaction_pipeline.core.tables.data_file import FileContent, LiveFile, OutputFile
from compaction_pipeline.core.tables.deletes.applies import DeleteIndex
from compaction_pipeline.core.tables.node import Partition, PartitionValue, TableNode
from compaction_pipeline.core.tables.table import TableIdentifier
from compaction_pipeline.core.work.kinds import CompactionType, TaskAction
from compaction_pipeline.core.work.result import MergeResult
from compaction_pipeline_tests.works import task_work

GLOBAL_SPEC, PARTITIONED_SPEC = 1, 0
LAYOUT = HeadLayout(frozenset({GLOBAL_SPEC}), {0: frozenset({1, 2})}, last_sequence_number=0)
NOW = datetime(2026, 1, 1, tzinfo=timezone.utc)

Position = tuple[str, int]


def partition(value: int) -> Partition:
    return (PartitionValue("p", "int", value),)


@dataclass
class World:
    """The live files and their content, by path.

    `rows` holds the ids of a data file by position, `keys` the ids that an equality delete names, and `positions` the (path,
    position) pairs that a position delete names.
    """

    live: dict[str, LiveFile] = field(default_factory=dict)
    rows: dict[str, tuple[int, ...]] = field(default_factory=dict)
    keys: dict[str, frozenset[int]] = field(default_factory=dict)
    positions: dict[str, frozenset[Position]] = field(default_factory=dict)
    sequence: int = 0
    names: int = 0

    def copy(self) -> World:
        return World(dict(self.live), dict(self.rows), dict(self.keys), dict(self.positions), self.sequence, self.names)

    def name(self, kind: str) -> str:
        self.names += 1
        return f"{kind}{self.names:03d}"

    def file(self, path: str, content: FileContent, where: int | None, count: int) -> LiveFile:
        return LiveFile(
            path=path,
            content=content,
            spec_id=GLOBAL_SPEC if where is None else PARTITIONED_SPEC,
            partition=() if where is None else partition(where),
            file_size_bytes=100,
            record_count=count,
            data_sequence_number=self.sequence,
            equality_ids=(1,) if content is FileContent.EQUALITY_DELETES else (),
        )

    # ---- commits of writers

    def insert(self, where: int | None, ids: tuple[int, ...]) -> str:
        self.sequence += 1
        path = self.name("d")
        self.live[path] = self.file(path, FileContent.DATA, where, len(ids))
        self.rows[path] = ids
        return path

    def delete_keys(self, where: int | None, ids: Iterable[int]) -> str:
        self.sequence += 1
        path = self.name("e")
        self.keys[path] = frozenset(ids)
        self.live[path] = self.file(path, FileContent.EQUALITY_DELETES, where, len(self.keys[path]))
        return path

    def delete_positions(self, where: int | None, pairs: Iterable[Position], referenced: bool) -> str:
        self.sequence += 1
        path = self.name("p")
        held = frozenset(pairs)
        self.positions[path] = held
        paths = {data for data, _ in held}
        delete = self.file(path, FileContent.POSITION_DELETES, where, len(held))
        self.live[path] = replace(
            delete,
            referenced_data_file=min(paths) if referenced and len(paths) == 1 else None,
            path_lower=min(paths),
            path_upper=max(paths),
        )
        return path

    # ---- reading

    def data(self) -> list[LiveFile]:
        return [file for file in self.live.values() if file.is_data]

    def deletes(self) -> list[LiveFile]:
        return [file for file in self.live.values() if not file.is_data]

    def live_positions(self, data: LiveFile) -> list[int]:
        index = DeleteIndex(self.deletes(), LAYOUT.unpartitioned_spec_ids)
        gone: set[int] = set()
        for delete in index.of(data):
            if delete.content is FileContent.POSITION_DELETES:
                gone.update(position for path, position in self.positions[delete.path] if path == data.path)
            else:
                gone.update(position for position, one in enumerate(self.rows[data.path]) if one in self.keys[delete.path])
        return [position for position in range(len(self.rows[data.path])) if position not in gone]

    def visible(self) -> list[int]:
        """The ids of the rows that a reader sees, sorted. Rows that are there twice count twice."""
        return sorted(self.rows[file.path][position] for file in self.data() for position in self.live_positions(file))

    def paths_in(self, delete: LiveFile) -> frozenset[str] | None:
        held = self.positions.get(delete.path)
        return None if held is None else frozenset(path for path, _ in held)

    def head(self) -> HeadFiles:
        return HeadFiles(self.live.values(), replace(LAYOUT, last_sequence_number=self.sequence))

    # ---- compaction

    def plan(self, action: TaskAction, inputs: Iterable[str], task_id: str, converts: Iterable[str] = ()) -> CompactionTask:
        """Plan and merge a task on the present files. The content of its outputs is added to `rows` and `positions`."""
        chosen = tuple(self.live[path] for path in inputs)
        index = DeleteIndex(self.deletes(), LAYOUT.unpartitioned_spec_ids)
        deletes = {delete.path: delete for file in chosen for delete in index.of(file)}
        outputs = []
        if action is TaskAction.MERGE:
            ids = tuple(self.rows[file.path][position] for file in chosen for position in self.live_positions(file))
            path = f"z-{task_id}"
            if ids:
                self.rows[path] = ids
                outputs.append(OutputFile(path, FileContent.DATA, chosen[0].spec_id, chosen[0].partition, 100, len(ids)))
        if action is TaskAction.CONVERT:
            for file in chosen:
                live = set(self.live_positions(file))
                gone = frozenset((file.path, position) for position in range(file.record_count) if position not in live)
                path = f"z-{task_id}-{file.path}"
                if gone:
                    self.positions[path] = gone
                    outputs.append(
                        OutputFile(
                            path,
                            FileContent.POSITION_DELETES,
                            file.spec_id,
                            file.partition,
                            100,
                            len(gone),
                            referenced_data_file=file.path,
                        )
                    )
        node = chosen[0].node if chosen else TableNode(0)
        given = tuple(deletes.values()) if action is not TaskAction.DROP_DELETES else tuple(self.deletes())
        work = task_work(node, CompactionType.MINOR, action, chosen, given, node.spec_id, 1000, 100, converts=tuple(converts))
        return CompactionTask(
            task_id=task_id,
            plan_id="plan",
            table=TableIdentifier("c", ("n",), "t"),
            table_uuid="u",
            snapshot_id=1,
            sequence_number=self.sequence,
            schema_id=0,
            queue="q",
            priority=0,
            max_attempts=1,
            memory_bytes=1,
            created_at=NOW,
            work=work,
            result=MergeResult(task_id, "a", tuple(outputs), rows_written=sum(output.record_count for output in outputs)),
        )

    def outputs_of(self, task: CompactionTask) -> list[LiveFile]:
        assert task.result is not None
        return [
            LiveFile(
                path=output.path,
                content=output.content,
                spec_id=output.spec_id,
                partition=output.partition,
                file_size_bytes=output.file_size_bytes,
                record_count=output.record_count,
                data_sequence_number=task.sequence_number if output.content is FileContent.DATA else self.sequence + 2,
                referenced_data_file=output.referenced_data_file,
            )
            for output in task.result.outputs
        ]
