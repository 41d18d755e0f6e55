"""Carrying out a decision changes no row that a reader sees, whatever the history, the plans and the commits between them."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from compaction_pipeline.core.commit.dangling_deletes import dangling_deletes
from compaction_pipeline.core.commit.decision import decide
from compaction_pipeline.core.commit.head import DataIndex
from compaction_pipeline.core.queue.task import CompactionTask
from compaction_pipeline.core.tables.data_file import FileContent
from compaction_pipeline.core.tables.deletes.applies import DeleteIndex
from compaction_pipeline.core.work.kinds import TaskAction
from compaction_pipeline_tests.core.commit.worlds import LAYOUT, World

_WHERE = (0, 0, 1, None)


def _write(world: World, draw: st.DrawFn) -> None:
    where = draw(st.sampled_from(_WHERE))
    data = [file for file in world.data() if (file.spec_id == 1) == (where is None) and (where is None or file.partition[0].value == where)]
    kind = draw(st.sampled_from(["insert", "insert", "equality", "position"]))
    if kind == "position" and data:
        chosen = draw(st.lists(st.sampled_from(data), min_size=1, max_size=3, unique_by=lambda file: file.path))
        pairs = [(file.path, draw(st.integers(0, file.record_count - 1))) for file in chosen]
        world.delete_positions(where, pairs, draw(st.booleans()))
    elif kind == "equality":
        world.delete_keys(where, draw(st.sets(st.integers(0, 4), min_size=1, max_size=3)))
    else:
        world.insert(where, tuple(draw(st.lists(st.integers(0, 4), min_size=1, max_size=3))))


def _plan(world: World, draw: st.DrawFn, task_id: str, taken: set[str]) -> CompactionTask | None:
    free = [file for file in world.data() if file.path not in taken]
    if not free:
        return None
    node = draw(st.sampled_from(free)).node
    inputs = draw(
        st.lists(st.sampled_from([file for file in free if file.node == node]), min_size=1, max_size=3, unique_by=lambda file: file.path)
    )
    taken.update(file.path for file in inputs)
    paths = [file.path for file in inputs]
    if draw(st.booleans()):
        return world.plan(TaskAction.MERGE, paths, task_id)
    index = DeleteIndex(world.deletes(), LAYOUT.unpartitioned_spec_ids)
    converts = {delete.path for file in inputs for delete in index.of(file)}
    return world.plan(TaskAction.CONVERT, paths, task_id, sorted(converts)) if converts else None


@st.composite
def commits(draw: st.DrawFn) -> tuple[World, list[CompactionTask]]:
    """A head, and tasks that were planned at one or two points of its history."""
    world = World()
    tasks: list[CompactionTask] = []
    taken: set[str] = set()
    for _ in range(draw(st.integers(1, 6))):
        _write(world, draw)
    for point in range(draw(st.integers(1, 2))):
        for number in range(draw(st.integers(1, 3))):
            task = _plan(world, draw, f"t{point}{number}", taken)
            if task is not None:
                tasks.append(task)
        for _ in range(draw(st.integers(0, 3))):
            _write(world, draw)
    if draw(st.integers(0, 3)) == 0 and world.live:
        # A file is gone, as after a rollback, or after a rewrite or an expiry by somebody else.
        del world.live[draw(st.sampled_from(sorted(world.live)))]
    return world, tasks


@given(commits())
def test_a_commit_never_changes_a_visible_row(commit: tuple[World, list[CompactionTask]]) -> None:
    world, tasks = commit
    decision = decide(tasks, world.head(), world.outputs_of, world.paths_in)
    assert {task.task_id for task in decision.survivors} | set(decision.conflicts) == {task.task_id for task in tasks}
    assert not {task.task_id for task in decision.survivors} & set(decision.conflicts)
    before = world.visible()
    after = world.copy()
    for task in decision.merges:
        for file in task.work.inputs:
            del after.live[file.path]
        after.live.update((output.path, output) for output in world.outputs_of(task))
    for delete in decision.dropped_by_replace:
        del after.live[delete.path]
    assert after.visible() == before, "the REPLACE snapshot changed rows"
    for task in decision.conversions:
        after.live.update((output.path, output) for output in world.outputs_of(task))
    for delete in decision.dropped_by_overwrite:
        del after.live[delete.path]
    assert after.visible() == before, "the overwrite snapshot changed rows"
    for task in decision.conversions:
        assert not set(task.work.converts) & set(after.live), "a conversion kept a delete that it replaced"


@given(commits())
def test_a_delete_is_dangling_exactly_when_it_reaches_no_data_file(commit: tuple[World, list[CompactionTask]]) -> None:
    world, _ = commit
    deletes = world.deletes()
    readable = frozenset(delete.path for delete in deletes)
    found = {delete.path for delete in dangling_deletes(deletes, DataIndex(world.data(), LAYOUT), world.paths_in, readable)}
    needed = set()
    for delete in deletes:
        index = DeleteIndex([delete], LAYOUT.unpartitioned_spec_ids)
        held = world.paths_in(delete)
        if any(index.of(file) and (held is None or file.path in held) for file in world.data()):
            needed.add(delete.path)
    assert found == {delete.path for delete in deletes} - needed


def test_an_untouched_table_lets_every_task_in() -> None:
    world = World()
    a, b = world.insert(0, (1, 2)), world.insert(0, (3,))
    c = world.insert(1, (4, 5))
    world.delete_keys(0, [1])
    delete = world.delete_keys(1, [4])
    tasks = [world.plan(TaskAction.MERGE, [a, b], "m"), world.plan(TaskAction.CONVERT, [c], "c", [delete])]
    decision = decide(tasks, world.head(), world.outputs_of, world.paths_in)
    assert {task.task_id for task in decision.survivors} == {"m", "c"}
    assert [file.content for file in decision.dropped_by_replace] == [FileContent.EQUALITY_DELETES]
    assert [file.path for file in decision.dropped_by_overwrite] == [delete]


def test_an_unread_partition_scoped_delete_is_kept() -> None:
    world = World()
    first, second = world.insert(0, (1,)), world.insert(0, (2,))
    delete = world.live[world.delete_positions(0, [(first, 0), (second, 0)], referenced=False)]
    between = world.insert(0, (3,))
    del world.live[first], world.live[second]
    world.live[between] = world.file("d0011", FileContent.DATA, 0, 1)
    data = DataIndex([world.file("d0015", FileContent.DATA, 0, 1)], LAYOUT)
    assert dangling_deletes([delete], data, world.paths_in, frozenset()) == (delete,)
