"""Compactions of keyed tables that are killed at each of their steps."""

from __future__ import annotations

import multiprocessing
import shutil
import signal
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

from pyiceberg.table import Table

from compaction_pipeline.core.commit.record import RECORD_ID_PROPERTY, RecordStatus
from compaction_pipeline.core.queue.task import TaskStatus
from compaction_pipeline.core.tables.table import CatalogEntry, TableIdentifier
from compaction_pipeline_tests.keyed.written import BY_REGION, Keyed, row
from compaction_pipeline_tests.opened import OpenedServices
from compaction_pipeline_tests.reference_reader import Row, local_path, metadata_of
from compaction_pipeline_tests.scenarios.crashing import PROTOCOL, compact_until, instance_at, open_at, recovered, told_records
from compaction_pipeline_tests.scenarios.modelled_table import reachable_files

TABLE = TableIdentifier("lake", ("db",), "t")
KEYED_PROTOCOL = tuple(step for step in PROTOCOL if not step.endswith(("files.apply", "index.add")))
"""A keyed table has no index of files, and the program knows the table of this test already."""


MERGE_AND_COMMIT = KEYED_PROTOCOL[KEYED_PROTOCOL.index("claimed") : KEYED_PROTOCOL.index("record-closed") + 1]
"""The steps that differ from those of a plain table. In CI each is tried once, in turn with and without writers."""


_PROPERTIES = {"self-optimizing.commit.interval": "0", "self-optimizing.max-task-size-bytes": "3000"}
_CHILDREN = multiprocessing.get_context("forkserver")
_CHILDREN.set_forkserver_preload(["compaction_pipeline_tests.scenarios.crash_children"])


class Scene:
    """A keyed table of which a part is merged already, with changes for rewritten and for marked base files. `set_back` restores it."""

    def __init__(self, folder: Path, *, delta_rewrite: bool = False, target_bytes: int = 6000) -> None:
        self.home = folder / "home"
        self.home.mkdir()
        self.keyed = Keyed(self.home, ("id", "region"), BY_REGION, buckets=2, delta_rewrite=delta_rewrite)
        with self.keyed.catalog.load_table("db.t").transaction() as transaction:
            transaction.set_properties({**_PROPERTIES, "self-optimizing.target-size": str(target_bytes)})
        self.rows: dict[tuple[int, str], Row] = {}
        properties = {"type": "sql", "uri": f"sqlite:///{self.home}/catalog.db", "warehouse": f"file://{self.home}/wh"}
        open_at(self.home).stores.catalogs.add(CatalogEntry("lake", properties))
        instance_at(self.home).dispose()
        self.write(range(1, 200), "a")
        recovered(self.home, TABLE)
        # A quarter of the rows of one partition change, and a few rows of the other one.
        self.write(range(1, 200, 8), "b")
        self.write(range(0, 200, 60), "b")
        self.write(range(300, 310), "c")
        self._truth = dict(self.rows)
        self._copy = folder / "copy"
        shutil.copytree(self.home, self._copy)

    def write(self, ids: range, text: str) -> None:
        """One transaction that writes rows with these ids in both partitions, in place of the old ones."""
        changes: list[tuple[str, Row]] = []
        for number in ids:
            region = ("eu", "us")[number % 2]
            before = self.rows.get((number, region))
            changes += [("DELETE", before)] if before is not None else []
            self.rows[number, region] = row(number, text, region)
            changes.append(("INSERT", self.rows[number, region]))
        self.keyed.write(*changes)

    def set_back(self) -> None:
        shutil.rmtree(self.home)
        shutil.copytree(self._copy, self.home)
        self.keyed.catalog.engine.dispose()
        self.rows = dict(self._truth)

    def compact_in_a_child(self, name: str | None, occurrence: int = 1) -> int:
        child = _CHILDREN.Process(target=compact_until, args=(str(self.home), name, occurrence, TABLE))
        child.start()
        child.join(600)
        assert child.exitcode is not None, "the child hangs"
        return child.exitcode

    def check_rows(self) -> None:
        """No row is lost, doubled or revived, and every file that a snapshot names exists."""
        self.keyed.check(self.rows.values())
        for store in self.keyed.stores():
            assert [path for path in reachable_files(metadata_of(store)) if not Path(local_path(path)).exists()] == []


def check_kill(name: str, others_write: bool, scene: Scene, undisturbed: Counter[str]) -> None:
    # Without other writers the process is killed the first time that it reaches the step, and with them the last time.
    scene.set_back()
    assert scene.compact_in_a_child(name, undisturbed[name] if others_write else 1) == -signal.SIGKILL
    scene.check_rows()
    if others_write:
        scene.write(range(5, 320, 3), "d")
    services = recovered(scene.home, TABLE)
    scene.check_rows()
    check_records(scene, services)
    check_ends(scene, services)


def check_records(scene: Scene, services: OpenedServices) -> None:
    """Each record is in the table once, each task in one record, and Dagster has events for all."""
    records = services.stores.records.records()
    assert {record.status for record in records} <= {RecordStatus.COMMITTED, RecordStatus.FAILED}
    summaries = (summary for store in scene.keyed.stores() for summary in _summaries(store))
    in_table = Counter(record_id for summary in summaries if (record_id := summary.get(RECORD_ID_PROPERTY)) is not None)
    committed = {record.record_id: record for record in records if record.status is RecordStatus.COMMITTED}
    assert in_table == Counter(committed.keys())
    tasks = Counter(task_id for record in committed.values() for task_id in record.committed_task_ids)
    assert [task_id for task_id, times in tasks.items() if times > 1] == []
    assert {task.task_id for task in services.stores.tasks.tasks(statuses=(TaskStatus.COMMITTED,))} == set(tasks)
    assert set(told_records(scene.home)) == set(committed)


def _summaries(table: Table) -> list[Mapping[str, str]]:
    return [snapshot.summary.additional_properties for snapshot in table.metadata.snapshots if snapshot.summary is not None]


def check_ends(scene: Scene, services: OpenedServices) -> None:
    """The killed process left nothing: no open task, and no file that no snapshot names."""
    assert not services.stores.tasks.tasks(statuses=(TaskStatus.PENDING, TaskStatus.EXECUTING, TaskStatus.PREPARED))
    named = {local_path(path) for store in scene.keyed.stores() for path in reachable_files(metadata_of(store))}
    assert [path for path in (scene.home / "wh").rglob("*.parquet") if str(path) not in named] == []
