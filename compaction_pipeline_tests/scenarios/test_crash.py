"""Crash tests: a process is killed at each step of the protocol. Another process goes on, and readers never see a difference.

`PROTOCOL` lists all steps. The first test fails when a compaction announces a step that is not in the list.
"""

from __future__ import annotations

import multiprocessing
import shutil
import signal
from collections import Counter
from pathlib import Path
from random import Random

import pytest
from pyiceberg.transforms import IdentityTransform

from compaction_pipeline.core.commit.record import RECORD_ID_PROPERTY, RecordStatus
from compaction_pipeline.core.queue.task import TaskStatus
from compaction_pipeline.core.tables.table import CatalogEntry
from compaction_pipeline.core.work.kinds import TaskAction
from compaction_pipeline_tests.opened import OpenedServices
from compaction_pipeline_tests.reference_reader import bag_difference, local_path, metadata_of, reference_rows
from compaction_pipeline_tests.scenarios.crashing import (
    LATER,
    PROTOCOL,
    compact_until,
    instance_at,
    open_at,
    recovered,
    steps_of,
    told_records,
)
from compaction_pipeline_tests.scenarios.modelled_table import ModelledTable, reachable_files
from compaction_pipeline_tests.scenarios.modelled_values import ModelledRow, random_row
from compaction_pipeline_tests.scenarios.soundness import faults

pytestmark = pytest.mark.scenario


class Scene:
    """A table with work for every kind of task. `set_back` restores its first state."""

    def __init__(self, folder: Path) -> None:
        self.home = folder / "home"
        self.home.mkdir()
        rng = Random(1)
        self.table = ModelledTable(
            self.home,
            rng,
            format_version=2,
            layout=((2, IdentityTransform()),),
            properties={
                "self-optimizing.target-size": "64000",
                "self-optimizing.fragment-ratio": "4",
                "self-optimizing.max-task-size-bytes": "1",
                "self-optimizing.commit.interval": "0",
                "commit.manifest-merge.enabled": "false",
            },
        )
        for _ in range(6):
            self.table.append_rows([*self._rows(rng, 8, "eu"), *self._rows(rng, 2, "us")])
        for _ in range(2):
            self.table.append_rows(self._rows(rng, 300, "us"))
        self.table.upsert(rng)
        self.table.delete_by_position(rng)
        open_at(self.home).stores.catalogs.add(CatalogEntry("lake", self.table.catalog_properties))
        # Dagster makes its databases here, only once, because that takes longer than a compaction.
        instance_at(self.home).dispose()
        self._truth = list(self.table.truth)
        self._copy = folder / "copy"
        shutil.copytree(self.home, self._copy)

    def _rows(self, rng: Random, count: int, region: str) -> list[ModelledRow]:
        return [{**random_row(rng, self.table.schema), 1: rng.randrange(1000), 2: region} for _ in range(count)]

    def set_back(self) -> None:
        shutil.rmtree(self.home)
        shutil.copytree(self._copy, self.home)
        self.table.reopen()
        self.table.truth = list(self._truth)

    def compact_in_a_child(self, name: str | None, occurrence: int = 1) -> int:
        """Run the whole protocol in another process. Returns its exit code."""
        child = _CHILDREN.Process(target=compact_until, args=(str(self.home), name, occurrence))
        child.start()
        child.join(600)
        assert child.exitcode is not None, "the child hangs"
        return child.exitcode

    def check_rows(self, when: str) -> None:
        """Check that no row is lost, doubled or revived, and that every file that a snapshot names exists."""
        table = self.table.reload()
        assert bag_difference(reference_rows(table), self.table.expected()) == "", when
        assert faults(table) == [], when
        assert [path for path in reachable_files(metadata_of(table)) if not Path(local_path(path)).exists()] == [], when


_CHILDREN = multiprocessing.get_context("forkserver")
_CHILDREN.set_forkserver_preload(["compaction_pipeline_tests.scenarios.crash_children"])


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Scene:
    return Scene(tmp_path_factory.mktemp("crash"))


@pytest.fixture(scope="module")
def undisturbed(scene: Scene) -> Counter[str]:
    """The steps of a compaction that is not killed."""
    scene.set_back()
    assert scene.compact_in_a_child(None) == 0
    scene.check_rows("undisturbed")
    services = open_at(scene.home)
    assert {task.work.action for task in services.stores.tasks.tasks()} == {TaskAction.MERGE, TaskAction.CONVERT}
    check_records(scene, services)
    return Counter(steps_of(scene.home))


def test_every_step_of_the_protocol_is_listed(undisturbed: Counter[str]) -> None:
    assert set(undisturbed) == set(PROTOCOL), "the announced steps are not those of PROTOCOL"


# Most steps come in pairs. A process killed after one write leaves what one killed before the next write leaves, so with every second step
# beside writers nearly every state of the protocol is met alone and beside writers.
@pytest.mark.parametrize(("name", "others_write"), [(name, number % 2 == 1) for number, name in enumerate(PROTOCOL)])
def test_a_process_killed_at_any_step_leaves_every_row_and_its_work_is_done_once(
    name: str, others_write: bool, scene: Scene, undisturbed: Counter[str]
) -> None:
    check_kill(name, others_write, scene, undisturbed)


@pytest.mark.long
@pytest.mark.parametrize("others_write", [False, True], ids=["alone", "others write"])
@pytest.mark.parametrize("name", PROTOCOL)
def test_a_process_killed_at_any_step_with_and_without_writers(
    name: str, others_write: bool, scene: Scene, undisturbed: Counter[str]
) -> None:
    check_kill(name, others_write, scene, undisturbed)


def check_kill(name: str, others_write: bool, scene: Scene, undisturbed: Counter[str]) -> None:
    # Without other writers the process is killed the first time that it reaches the step, and with them the last time.
    scene.set_back()
    assert scene.compact_in_a_child(name, undisturbed[name] if others_write else 1) == -signal.SIGKILL
    scene.check_rows("right after the kill")
    if others_write:
        rng = Random(2)
        scene.table.upsert(rng)
        scene.table.delete_by_equality(rng)
        scene.table.append(rng)
    services = recovered(scene.home)
    scene.check_rows("after recovery")
    check_records(scene, services)
    check_ends(scene, services)
    if not others_write:
        assert len([file for file in scene.table.live_files() if file.is_data]) == 4, "the work was not done"


def test_a_process_killed_again_and_again_still_gets_it_done(scene: Scene, undisturbed: Counter[str]) -> None:
    scene.set_back()
    rng = Random(3)
    for name in ("after merged file", "claimed-for-commit", "after-swap", "record-opened", "committed-in-table"):
        scene.table.upsert(rng)
        scene.table.append(rng)
        open_at(scene.home, LATER).keep_watch.keep()
        scene.compact_in_a_child(name)
        scene.check_rows(f"after a kill at {name}")
    services = recovered(scene.home)
    scene.check_rows("after recovery")
    check_records(scene, services)
    check_ends(scene, services)


def check_records(scene: Scene, services: OpenedServices) -> None:
    """Check that each record is in the table once, that each task is in one record, and that Dagster has events for all."""
    records = services.stores.records.records()
    assert {record.status for record in records} <= {RecordStatus.COMMITTED, RecordStatus.FAILED}
    in_table: dict[str, list[str]] = {}
    for snapshot in scene.table.reload().metadata.snapshots:
        assert snapshot.summary is not None
        record_id = snapshot.summary.additional_properties.get(RECORD_ID_PROPERTY)
        if record_id is not None:
            in_table.setdefault(record_id, []).append(snapshot.summary.operation.value)
    assert all(operations in (["replace"], ["overwrite"], ["replace", "overwrite"]) for operations in in_table.values()), in_table
    committed = {record.record_id: record for record in records if record.status is RecordStatus.COMMITTED}
    assert set(in_table) == set(committed)
    tasks = Counter(task_id for record in committed.values() for task_id in record.committed_task_ids)
    assert [task_id for task_id, times in tasks.items() if times > 1] == []
    assert {task.task_id for task in services.stores.tasks.tasks(statuses=(TaskStatus.COMMITTED,))} == set(tasks)
    assert set(told_records(scene.home)) == set(committed)


def check_ends(scene: Scene, services: OpenedServices) -> None:
    """Check that the killed process left nothing: no open task, and no file that no snapshot names."""
    under_way = (TaskStatus.PENDING, TaskStatus.EXECUTING, TaskStatus.PREPARED)
    assert not services.stores.tasks.tasks(statuses=under_way)
    named = {local_path(path) for path in reachable_files(metadata_of(scene.table.reload()))}
    assert [path for path in (scene.home / "wh").rglob("*.parquet") if str(path) not in named] == []
