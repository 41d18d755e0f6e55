"""Plans, moves and deletions of groups at the same moment, in several threads on one state database."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from threading import Barrier

from compaction_pipeline.core.errors import NotFoundError
from compaction_pipeline.core.queue.group import CompactionQueue, QueueFull, ResourceGroup
from compaction_pipeline.storage.stores import open_stores
from compaction_pipeline_tests.behaviours.example_tasks import example
from compaction_pipeline_tests.builders import NOW, TABLE

_PLANNERS = 4
_ROUNDS = 10
_PATIENCE_SECONDS = 600


def test_two_planners_at_one_full_queue_never_fill_it_beyond_its_capacity(state_url: str) -> None:
    stores = open_stores(state_url)
    heavy = ResourceGroup("heavy", queue=CompactionQueue(10))
    stores.groups.add(heavy)
    # Every planner has seen the queue empty, and counts on its whole room.
    room, start = heavy.room(0, by_person=True), Barrier(_PLANNERS)

    def plan(planner: int) -> int:
        start.wait(_PATIENCE_SECONDS)
        entered = 0
        for number in range(_ROUNDS):
            name = f"t{planner}-{number}"
            tasks = [example(f"{name}-{part}", queue="heavy", files=(f"{name}-{part}",)) for part in range(2)]
            with suppress(QueueFull):
                entered += 2 * stores.tasks.insert(tasks, [], NOW, room)
        return entered

    with ThreadPoolExecutor(_PLANNERS) as pool:
        entered = sum(pool.map(plan, range(_PLANNERS)))
    assert entered == 10
    assert stores.tasks.queue_taken("heavy") == len(stores.tasks.tasks()) == 10


def test_a_group_that_is_deleted_while_tasks_are_planned_into_it_leaves_no_task_without_a_group(state_url: str) -> None:
    stores = open_stores(state_url)
    planned, kept = 0, 0
    for number in range(_ROUNDS):
        name = f"g{number}"
        stores.groups.add(ResourceGroup(name))
        start = Barrier(2)

        def plan(name: str = name, start: Barrier = start) -> bool:
            start.wait(_PATIENCE_SECONDS)
            try:
                return stores.tasks.insert([example(f"t-{name}", queue=name, files=(name,))], [], NOW)
            except NotFoundError:
                return False

        with ThreadPoolExecutor(1) as pool:
            plans = pool.submit(plan)
            start.wait(_PATIENCE_SECONDS)
            holders = stores.groups.remove(name)
            planned += plans.result()
        kept += holders.open_tasks
        # Either the group is gone and has no task, or it has its task and stays.
        assert (stores.groups.group(name) is not None) == plans.result() == (holders.open_tasks == 1)
    assert planned == kept == len(stores.tasks.tasks())


def test_tasks_that_are_planned_while_their_table_moves_to_another_group_are_moved_or_stay_whole(state_url: str) -> None:
    stores = open_stores(state_url)
    stores.groups.add(ResourceGroup("old"))
    stores.groups.add(ResourceGroup("new"))
    start = Barrier(2)

    def plan() -> int:
        start.wait(_PATIENCE_SECONDS)
        names = [f"t{number}" for number in range(_ROUNDS)]
        return sum(stores.tasks.insert([example(name, queue="old", files=(name,))], [], NOW) for name in names)

    with ThreadPoolExecutor(1) as pool:
        plans = pool.submit(plan)
        start.wait(_PATIENCE_SECONDS)
        moved: list[str] = []
        while not plans.done():
            moved += stores.tasks.move_to_queue(TABLE, "new")
        assert plans.result() == _ROUNDS
    moved += stores.tasks.move_to_queue(TABLE, "new")
    assert sorted(moved) == sorted(f"t{number}" for number in range(_ROUNDS)), "each task is moved once"
    assert {task.queue for task in stores.tasks.tasks()} == {"new"}
    assert stores.groups.remove("old").open_tasks == 0
    assert stores.groups.remove("new").open_tasks == _ROUNDS
