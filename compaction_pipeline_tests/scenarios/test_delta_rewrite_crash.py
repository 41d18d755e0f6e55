"""Crash tests of keyed tables with delta-rewrite: a process is killed at each step of the protocol while change files are merged with each
other. Another process goes on, and readers of both stores never see a difference."""

from __future__ import annotations

from collections import Counter

import pytest

from compaction_pipeline.core.queue.task import TaskStatus
from compaction_pipeline.core.work.kinds import TaskAction
from compaction_pipeline_tests.scenarios.crashing import REQUEST, open_at, steps_of
from compaction_pipeline_tests.scenarios.keyed_crashing import KEYED_PROTOCOL, MERGE_AND_COMMIT, TABLE, Scene, check_kill, check_records

pytestmark = pytest.mark.scenario


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Scene:
    # Change files are small up to 7,500 bytes.
    return Scene(tmp_path_factory.mktemp("rewrite-crash"), delta_rewrite=True, target_bytes=60_000)


@pytest.fixture(scope="module")
def undisturbed(scene: Scene) -> Counter[str]:
    """The steps of a compaction that is not killed."""
    scene.set_back()
    assert scene.compact_in_a_child(None) == 0
    scene.check_rows()
    tasks = open_at(scene.home).stores.tasks.tasks(statuses=(TaskStatus.COMMITTED,))
    assert {task.work.action for task in tasks} == {TaskAction.REWRITE_CHANGES}
    check_records(scene, open_at(scene.home))
    return Counter(steps_of(scene.home))


def test_the_steps_are_those_of_other_merges(undisturbed: Counter[str]) -> None:
    assert set(undisturbed) == set(KEYED_PROTOCOL)


@pytest.mark.parametrize(("name", "others_write"), [(name, number % 2 == 0) for number, name in enumerate(MERGE_AND_COMMIT)])
def test_a_process_killed_at_any_step_leaves_every_row_and_its_work_is_done_once(
    name: str, others_write: bool, scene: Scene, undisturbed: Counter[str]
) -> None:
    check_kill(name, others_write, scene, undisturbed)
    check_nothing_is_left_to_merge(scene)


@pytest.mark.long
@pytest.mark.parametrize("others_write", [False, True], ids=["alone", "others write"])
@pytest.mark.parametrize("name", KEYED_PROTOCOL)
def test_a_process_killed_at_any_step_with_and_without_writers(
    name: str, others_write: bool, scene: Scene, undisturbed: Counter[str]
) -> None:
    check_kill(name, others_write, scene, undisturbed)
    check_nothing_is_left_to_merge(scene)


def check_nothing_is_left_to_merge(scene: Scene) -> None:
    """A merged file waits until as many new bytes are beside it. No other change files are left."""
    services = open_at(scene.home)
    services.refresh_files.refresh(TABLE)
    assert services.plan_tables.explain(TABLE, REQUEST).tasks == ()
    assert services.read_tables.table(TABLE).overview.metrics.files <= 2 * 2 * 4
