"""Crash tests of keyed tables: a process is killed at each step of the protocol while changes are merged into the base store. Another
process goes on, and readers of both stores never see a difference."""

from __future__ import annotations

from collections import Counter

import pytest

from compaction_pipeline.core.queue.task import TaskStatus
from compaction_pipeline.core.work.kinds import TaskAction
from compaction_pipeline_tests.scenarios.crashing import open_at, steps_of
from compaction_pipeline_tests.scenarios.keyed_crashing import KEYED_PROTOCOL, MERGE_AND_COMMIT, TABLE, Scene, check_kill, check_records

pytestmark = pytest.mark.scenario


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Scene:
    return Scene(tmp_path_factory.mktemp("keyed-crash"))


@pytest.fixture(scope="module")
def undisturbed(scene: Scene) -> Counter[str]:
    """The steps of a compaction that is not killed."""
    scene.set_back()
    assert scene.compact_in_a_child(None) == 0
    scene.check_rows()
    tasks = open_at(scene.home).stores.tasks.tasks(statuses=(TaskStatus.COMMITTED,))
    assert {task.work.action for task in tasks} == {TaskAction.TO_BASE}
    # The first merge found no base files, so these are from the second one.
    assert any(task.work.rewritten for task in tasks)
    assert any(task.work.changes is not None and task.work.changes.marked for task in tasks)
    check_records(scene, open_at(scene.home))
    return Counter(steps_of(scene.home))


def test_every_step_of_the_protocol_is_listed(undisturbed: Counter[str]) -> None:
    assert set(undisturbed) == set(KEYED_PROTOCOL), "the announced steps are not those of the protocol"


@pytest.mark.parametrize(("name", "others_write"), [(name, number % 2 == 1) for number, name in enumerate(MERGE_AND_COMMIT)])
def test_a_process_killed_at_any_step_leaves_every_row_and_its_work_is_done_once(
    name: str, others_write: bool, scene: Scene, undisturbed: Counter[str]
) -> None:
    check_kill(name, others_write, scene, undisturbed)
    check_merged(scene)


@pytest.mark.long
@pytest.mark.parametrize("others_write", [False, True], ids=["alone", "others write"])
@pytest.mark.parametrize("name", KEYED_PROTOCOL)
def test_a_process_killed_at_any_step_with_and_without_writers(
    name: str, others_write: bool, scene: Scene, undisturbed: Counter[str]
) -> None:
    check_kill(name, others_write, scene, undisturbed)
    check_merged(scene)


def check_merged(scene: Scene) -> None:
    """Every change is in the base store."""
    services = open_at(scene.home)
    services.refresh_files.refresh(TABLE)
    assert services.read_tables.table(TABLE).overview.metrics.small_files == 0
