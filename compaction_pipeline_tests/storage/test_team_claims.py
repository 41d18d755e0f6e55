"""Claims while teams have limits: the order of the queue stays, no limit is passed, and tasks of held teams cost nothing."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import Engine, event
from sqlalchemy.engine import Connection

from compaction_pipeline.core.capacity.loan import Loan
from compaction_pipeline.core.capacity.slot_time import SlotTotals
from compaction_pipeline.core.capacity.team import Limits, Team, Whitelisted
from compaction_pipeline.core.errors import ConfigError
from compaction_pipeline.core.queue.group import CompactionQueue, QueueOrder, ResourceGroup
from compaction_pipeline.core.queue.optimizer import Optimizer
from compaction_pipeline.core.queue.task import TaskStatus
from compaction_pipeline.core.stores import Stores
from compaction_pipeline.core.tables.table import TableIdentifier
from compaction_pipeline.storage.engine import open_state
from compaction_pipeline.storage.stores import open_stores
from compaction_pipeline.storage.team_rooms import Reckoning
from compaction_pipeline_tests.behaviours.example_tasks import LEASE, example, make_groups, prepared
from compaction_pipeline_tests.builders import NOW, TABLE
from compaction_pipeline_tests.storage.test_polls import steps_of, visited

OTHER = TableIdentifier.parse("lake.shop.other")
HELD = 100_000
SLOT = 2 * 10**9
"""The memory of a slot of a run here, in bytes."""


def opened(url: str) -> Stores:
    return open_stores(url, reckoning=Reckoning(lambda: NOW, SLOT))


def limit(stores: Stores, name: str, slots: int | None = None, memory: int | None = None, gb_hours: float | None = None) -> None:
    stores.teams.put(Team(name, (), Limits(slots, memory, gb_hours)), "root", NOW)


def fill(stores: Stores, seed: int, by_table: bool = False) -> None:
    """Some tasks of three teams and two tables, in two queues, with priorities and ages that differ."""
    make_groups(stores, "light", "heavy")
    of = random.Random(seed)
    for number in range(40):
        table = of.choice([TABLE, OTHER])
        task = example(
            f"t{number:02}",
            queue=of.choice(["light", "heavy"]),
            table=table,
            priority=of.randrange(3),
            created_at=NOW - timedelta(minutes=of.randrange(300)),
        )
        assert stores.tasks.insert(
            [task], [], NOW, team="bee" if by_table and table == OTHER else of.choice(["ant", "bee", "unassigned"][: 1 if by_table else 3])
        )


def drained(stores: Stores, queue: str | None, most: int, turns: tuple[TableIdentifier, ...]) -> list[str]:
    taken: list[str] = []
    while True:
        if queue is None:
            one = stores.tasks.poll(None, "me", NOW, LEASE)
            found = [] if one is None else [one]
        else:
            peeked = stores.tasks.next_tables(queue, most, turns)
            found = list(stores.tasks.poll_many(queue, "me", NOW, LEASE, most, turns))
            assert set(peeked) == {task.table for task in found}
        if not found:
            return taken
        taken += [task.task_id for task in found]


@pytest.mark.parametrize(
    ("queue", "order", "turns"),
    [
        (None, QueueOrder.PRIORITY, ()),
        ("light", QueueOrder.PRIORITY, ()),
        ("light", QueueOrder.FIFO, ()),
        ("light", QueueOrder.QUOTA, (OTHER, TABLE)),
        ("light", QueueOrder.QUOTA, (OTHER,)),
    ],
)
@pytest.mark.parametrize("most", [1, 3, 16])
def test_the_order_of_a_queue_is_the_same_with_limits(
    state_url: str, tmp_path: Any, queue: str | None, order: QueueOrder, turns: tuple[TableIdentifier, ...], most: int
) -> None:
    orders = []
    for number, url in enumerate([state_url, f"sqlite:///{tmp_path}/twin.db"]):
        stores = opened(url)
        fill(stores, most, by_table=bool(turns))
        stores.groups.change(ResourceGroup("light", queue=CompactionQueue(order=order)))
        for name in ("ant", "bee"):
            limit(stores, name, slots=None if number else 1_000)
        orders.append(drained(stores, queue, most, turns))
        stores.close()
    assert orders[0] == orders[1]
    assert len(orders[0]) >= 10


@pytest.mark.parametrize("queue", [None, "light"])
def test_a_held_team_gets_nothing_and_holds_up_nobody(state_url: str, queue: str | None) -> None:
    stores = opened(state_url)
    fill(stores, 1)
    running = stores.tasks.poll("light", "me", NOW, LEASE)
    assert running is not None
    limit(stores, "ant", slots=0)
    limit(stores, "bee", slots=2)
    before = {task.task_id: task for task in stores.tasks.tasks(statuses=[TaskStatus.PENDING])}
    assert stores.queues.waiting() == ("heavy", "light")
    drained(stores, queue, 3, ())
    assert running_by_team(state_url)["bee"] <= 2
    assert running_by_team(state_url).get("ant", 0) <= 1
    left = stores.tasks.tasks(statuses=[TaskStatus.PENDING])
    # No limit writes a task row.
    assert all(task == before[task.task_id] for task in left)
    works = stores.queues.works(NOW)
    assert works["light"].held > 0
    assert (works["light"].pending, works["light"].waiting_since) == (0, None)
    assert works["light"].taken == works["light"].executing == stores.tasks.queue_taken("light")
    assert "light" not in stores.queues.waiting()
    assert stores.tasks.waiting_tables("light") == ()
    assert stores.tasks.poll("light", "me", NOW, LEASE, [task.task_id for task in left]) is None
    # What runs ends normally, and lets the team begin another one.
    assert stores.tasks.complete(prepared(running), NOW) is TaskStatus.PREPARED
    limit(stores, "ant")
    limit(stores, "bee")
    drained(stores, "light", 3, ())
    assert stores.queues.works(NOW)["light"].pending == 0
    stores.close()


def running_by_team(url: str) -> dict[str, int]:
    engine = open_state(url)
    with engine.connect() as connection:
        rows = connection.exec_driver_sql("SELECT team, count(*) FROM compaction_task WHERE status = 'EXECUTING' GROUP BY team").all()
    engine.dispose()
    return {row[0]: row[1] for row in rows}


@pytest.mark.parametrize("by_memory", [False, True])
def test_servers_and_runs_that_poll_at_once_never_pass_a_limit_together(state_url: str, by_memory: bool) -> None:
    """Two servers of ten pollers each, beside a run that takes named tasks, and a loan that moves slots meanwhile."""
    first = opened(state_url)
    make_groups(first, "light")
    names = ["ant", "bee", "unassigned"]
    for number in range(120):
        assert first.tasks.insert([example(f"t{number:03}", queue="light")], [], NOW, team=names[number % 3])
    for name in names[:2]:
        limit(first, name, slots=3, memory=3 * SLOT if by_memory else None)
    first.teams.ask(Loan("l1", "ant", "bee", NOW + timedelta(days=1), "ann", NOW, slots=2))
    servers = [first, opened(state_url)]
    named = [f"t{number:03}" for number in range(0, 120, 7)]

    def work(number: int) -> int:
        stores, of, most = servers[number % 2], random.Random(number), 0
        for turn in range(8):
            if number == 0 and turn in (2, 5):
                stores.teams.approve("l1", "bob", "root", NOW) if turn == 2 else stores.teams.end("l1", "root", NOW)
            if number < 2:
                one = stores.tasks.poll(None, f"run {number}", NOW, LEASE, named)
                held = [] if one is None else [one]
            else:
                held = list(stores.tasks.poll_many("light", f"o{number}", NOW, LEASE, of.randrange(1, 5)))
            running = running_by_team(state_url)
            most = max(most, running.get("ant", 0) + running.get("bee", 0))
            for task in held:
                stores.tasks.complete(prepared(task), NOW)
        return most

    with ThreadPoolExecutor(20) as pool:
        assert 0 < max(pool.map(work, range(20))) <= 6
    assert len(first.tasks.tasks(statuses=[TaskStatus.PREPARED])) > 60
    for stores in servers:
        stores.close()


def many(stores: Stores, team: str, count: int) -> None:
    for number in range(count):
        assert stores.tasks.insert([example(f"{team}{number}", queue="light", created_at=NOW)], [], NOW, team=team)


def with_a_loan(url: str, moment: list[datetime], until: datetime) -> Stores:
    """Ant may use 4 slots and bee 2, and ant is asked to lend 2 to bee."""
    stores = open_stores(url, reckoning=Reckoning(lambda: moment[0], SLOT))
    make_groups(stores, "light")
    limit(stores, "ant", slots=4)
    limit(stores, "bee", slots=2)
    stores.teams.ask(Loan("l1", "ant", "bee", until, "ann", NOW - timedelta(hours=1), slots=2))
    return stores


@pytest.mark.parametrize("ends", [False, True])
def test_a_loan_that_waited_for_a_later_claim_begins_and_ends_after_it(state_url: str, ends: bool) -> None:
    """A person's command took its time before the claim, and got the lock after it."""
    moment = [NOW]
    stores = with_a_loan(state_url, moment, NOW + timedelta(days=1))
    claimed, late = NOW + timedelta(seconds=11), NOW + timedelta(seconds=10)
    many(stores, "bee" if ends else "ant", 9)
    if ends:
        stores.teams.approve("l1", "bob", "root", NOW)
    assert len(stores.tasks.poll_many("light", "me", claimed, LEASE, 16)) == 4
    changed = stores.teams.end("l1", "root", late) if ends else stores.teams.approve("l1", "bob", "root", late)
    assert (changed.ended_at if ends else changed.began_at) == claimed
    many(stores, "ant" if ends else "bee", 9)
    moment[0] = NOW + timedelta(seconds=12)
    stores.tasks.poll_many("light", "me", moment[0], LEASE, 16)
    assert sum(running_by_team(state_url).values()) == 6
    stores.close()


def test_loans_that_change_in_one_instant_move_slots_one_after_the_other(state_url: str) -> None:
    """A clock may give the same time twice, and a loan may end by itself at that time."""
    stores = with_a_loan(state_url, [NOW], NOW + timedelta(days=1))
    for number, until in ((2, NOW + timedelta(microseconds=1)), (3, NOW + timedelta(days=1))):
        stores.teams.ask(Loan(f"l{number}", "ant", "bee", until, "ann", NOW - timedelta(hours=1), slots=1))
    began = [stores.teams.approve(f"l{number}", "bob", "root", NOW).began_at for number in (2, 1, 3)]
    ended = [stores.teams.end(f"l{number}", "root", NOW).ended_at for number in (3, 1)]
    assert [*began, *ended] == [NOW + timedelta(microseconds=number) for number in (0, 2, 3, 4, 5)]
    stores.close()


def test_a_claim_that_waited_until_a_loan_had_ended_counts_it_as_ended(state_url: str) -> None:
    moment, until = [NOW], NOW + timedelta(seconds=100)
    stores = with_a_loan(state_url, moment, until)
    stores.teams.approve("l1", "bob", "root", NOW)
    many(stores, "ant", 9)
    moment[0] = until + timedelta(milliseconds=1)
    assert len(stores.tasks.poll_many("light", "me", moment[0], LEASE, 16)) == 4
    many(stores, "bee", 9)
    assert len(stores.tasks.poll_many("light", "me", until - timedelta(milliseconds=1), LEASE, 16)) == 2
    stores.close()


@pytest.mark.postgres
def test_a_claim_waits_for_claims_of_teams_that_have_a_loan_with_its_own(postgres_url: str) -> None:
    stores = with_a_loan(postgres_url, [NOW], NOW + timedelta(days=1))
    many(stores, "bee", 3)
    engine = open_state(postgres_url)

    def claim_while_ant_is_locked() -> bool:
        with ThreadPoolExecutor(1) as pool:
            with engine.begin() as connection:
                connection.exec_driver_sql("SELECT name FROM compaction_team WHERE name = 'ant' FOR NO KEY UPDATE")
                claim = pool.submit(stores.tasks.poll_many, "light", "me", NOW, LEASE, 1)
                waited = not wait([claim], timeout=1).done
            assert len(claim.result(30)) == 1
        return waited

    assert not claim_while_ant_is_locked()
    stores.teams.approve("l1", "bob", "root", NOW)
    assert claim_while_ant_is_locked()
    engine.dispose()
    stores.close()


@pytest.mark.postgres
def test_what_notes_held_teams_locks_them_in_the_order_of_claims(postgres_url: str) -> None:
    """This collation sorts ant before Bee, and Python sorts it after."""
    stores = opened(postgres_url)
    limit(stores, "ant", slots=0)
    limit(stores, "Bee", slots=0)
    engine = open_state(postgres_url)
    with engine.begin() as connection:
        connection.exec_driver_sql('ALTER TABLE compaction_team ALTER COLUMN name TYPE varchar(64) COLLATE "en-x-icu"')
    with ThreadPoolExecutor(1) as pool:
        with engine.begin() as connection:
            connection.exec_driver_sql("SELECT name FROM compaction_team WHERE name = 'ant' FOR NO KEY UPDATE")
            noted = pool.submit(stores.teams.note_held)
            assert not wait([noted], timeout=1).done
            connection.exec_driver_sql("SELECT name FROM compaction_team WHERE name = 'Bee' FOR NO KEY UPDATE NOWAIT")
        noted.result(30)
    assert {name for name, one in stores.teams.standings().items() if one.held_since is not None} == {"ant", "Bee"}
    engine.dispose()
    stores.close()


def test_a_memory_limit_counts_what_each_process_said_of_its_own_slots(state_url: str) -> None:
    """A run has slots of 2 GB, and a server does not know how large the slots of runs are."""
    run, server = opened(state_url), open_stores(state_url, reckoning=Reckoning(lambda: NOW + timedelta(hours=1), 0))
    make_groups(run, "light")
    limit(run, "ant", memory=2 * SLOT, gb_hours=100)
    many(run, "ant", 9)
    server.optimizers.add(Optimizer("o1", "light", "host", "1", "1", 4, NOW, NOW, memory_bytes=16 * 10**9))
    while run.tasks.poll(None, "a run", NOW, LEASE) is not None:
        pass
    use = server.teams.standings()["ant"].use
    assert (len(use.started), use.memory_bytes) == (2, 2 * SLOT)
    assert use.gb_hours == pytest.approx(2 * 2)
    assert server.tasks.poll_many("light", "o1", NOW, LEASE, 9) == ()
    for stores in (run, server):
        stores.close()


def test_a_memory_limit_below_one_slot_holds_a_team_and_says_so(state_url: str) -> None:
    """Nothing that ends could let its tasks begin, so who waits for them gives them up. A smaller slot of its queue could take them."""
    stores = opened(state_url)
    make_groups(stores, "light", "heavy")
    limit(stores, "ant", memory=SLOT // 2)
    many(stores, "ant", 2)
    says = "team ant uses 0 B of 1.0 GB of memory, and another task needs 2.0 GB"
    assert stores.teams.standings()["ant"].why_held == says
    assert stores.tasks.held(["ant0", "ant1"]) == {"ant0": says, "ant1": says}
    assert stores.tasks.poll("light", "me", NOW, LEASE) is None
    assert (stores.tasks.first_waiting("light"), stores.queues.waiting(), stores.queues.works(NOW)["light"].held) == (None, (), 2)
    small = Optimizer("o1", "heavy", "host", "1", "1", 4, NOW, NOW, memory_bytes=SLOT)
    stores.optimizers.add(small)
    assert set(stores.tasks.held(["ant0", "ant1"])) == {"ant0", "ant1"}
    assert stores.tasks.first_waiting("light") is None
    stores.optimizers.add(replace(small, optimizer_id="o2", group="light"))
    assert stores.tasks.held(["ant0", "ant1"]) == {}
    assert stores.tasks.first_waiting("light") == TABLE
    assert len(stores.tasks.poll_many("light", "o2", NOW, LEASE, 9)) == 2
    assert stores.tasks.held(["ant0", "ant1"]) == {}
    stores.close()


def test_the_newest_entry_of_the_whitelist_wins_and_goes_with_its_team(state_url: str) -> None:
    moment = [NOW]
    stores = open_stores(state_url, reckoning=Reckoning(lambda: moment[0], SLOT))
    limit(stores, "ant", slots=0)
    for minutes, until in ((0, 60), (1, 2)):
        at = NOW + timedelta(minutes=minutes)
        stores.teams.allow(Whitelisted("ant", NOW + timedelta(minutes=until), "a release", "root", at))
        moment[0] = at
        assert stores.teams.standings()["ant"].exempt is not None
    moment[0] = NOW + timedelta(minutes=3)
    assert stores.teams.standings()["ant"].is_held, "the shorter entry came later"
    stores.teams.allow(Whitelisted("ant", NOW + timedelta(days=1), "a release", "root", moment[0]))
    stores.teams.remove("ant", "root", moment[0])
    limit(stores, "ant", slots=0)
    assert stores.teams.standings()["ant"].is_held, "a new team of the same name is not whitelisted"
    stores.close()


@pytest.mark.postgres
def test_a_poll_ends_when_the_database_sorts_task_ids_as_python_does_not(postgres_url: str) -> None:
    """This collation sorts ant0 before Bee0, and Python sorts it after."""
    stores = opened(postgres_url)
    make_groups(stores, "light")
    for name in ("ant", "Bee"):
        limit(stores, name, slots=9)
        many(stores, name, 2)
    engine = open_state(postgres_url)
    with engine.begin() as connection:
        connection.exec_driver_sql('ALTER TABLE compaction_task ALTER COLUMN task_id TYPE varchar COLLATE "en-x-icu"')
    taken: list[str] = []
    while found := stores.tasks.poll_many("light", "me", NOW, LEASE, 16):
        taken += [task.task_id for task in found]
    assert sorted(taken) == ["Bee0", "Bee1", "ant0", "ant1"]
    engine.dispose()
    stores.close()


def test_tasks_of_a_held_team_that_wait_for_a_retry_are_counted_as_retrying(state_url: str) -> None:
    stores = opened(state_url)
    make_groups(stores, "light")
    many(stores, "ant", 1)
    many(stores, "bee", 1)
    engine = open_state(state_url)
    with engine.begin() as connection:
        connection.exec_driver_sql("UPDATE compaction_task SET status = 'FAILED', retry_at = waiting_since")
    engine.dispose()
    limit(stores, "ant", slots=0)
    work = stores.queues.works(NOW)["light"]
    assert (work.retrying, work.held, work.failed) == (2, 0, 0)
    stores.close()


def test_gb_hours_of_today_hold_a_team_until_midnight(state_url: str) -> None:
    """Ended attempts of today, those that run, and those that began yesterday count; the memory is that of the slot."""
    moment = [NOW.replace(hour=1)]
    stores = open_stores(state_url, reckoning=Reckoning(lambda: moment[0], SLOT))
    make_groups(stores, "light")
    for number in range(4):
        assert stores.tasks.insert([example(f"t{number}", queue="light")], [], NOW, team="ant")
    stores.optimizers.add(Optimizer("o1", "light", "host", "1", "1", 4, NOW, NOW, memory_bytes=16 * 10**9))
    began = NOW.replace(hour=0) - timedelta(hours=1)
    ended, running = (stores.tasks.poll("light", owner, began, timedelta(days=9)) for owner in ("a run", "o1"))
    assert ended is not None
    assert running is not None
    stores.tasks.complete(prepared(ended), moment[0] - timedelta(minutes=30))
    limit(stores, "ant", gb_hours=4.9)
    # A run: half an hour of today × 2 GB. The optimizer: one hour of today × 16 GB / 4 slots.
    assert stores.teams.standings()["ant"].use.gb_hours == pytest.approx(0.5 * 2 + 1 * 4)
    assert stores.tasks.poll("light", "me", moment[0], LEASE) is None
    stores.teams.allow(Whitelisted("ant", moment[0] + timedelta(hours=1), "a release", "root", moment[0]))
    assert stores.tasks.poll("light", "me", moment[0], LEASE) is not None
    moment[0] += timedelta(hours=2)
    assert stores.tasks.poll("light", "me", moment[0], LEASE) is None
    assert stores.teams.standings()["ant"].why_held is not None
    stores.tasks.complete(prepared(running), moment[0])
    moment[0] = moment[0].replace(hour=0) + timedelta(days=1)
    assert stores.tasks.poll("light", "me", moment[0], LEASE) is not None
    stores.close()


@contextmanager
def plans_of_all_queries() -> Iterator[list[Any]]:
    """Collect how the database answers each query about tasks that is sent meanwhile."""
    plans: list[Any] = []

    def explain(connection: Connection, cursor: object, statement: str, parameters: Any, context: object, many: bool) -> None:
        if "compaction_task" not in statement or not statement.startswith(("SELECT", "WITH")):
            return
        if connection.dialect.name == "sqlite":
            plans.append([row[3] for row in connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {statement}", parameters)])
            return
        answer = connection.exec_driver_sql(f"EXPLAIN (ANALYZE, FORMAT JSON) {statement}", parameters).scalar_one()
        plans.append((json.loads(answer) if isinstance(answer, str) else answer)[0]["Plan"])

    event.listen(Engine, "before_cursor_execute", explain)
    try:
        yield plans
    finally:
        event.remove(Engine, "before_cursor_execute", explain)


def with_many_held(url: str, held: int) -> Stores:
    """A queue in which very many tasks of a held team wait before a few of twelve other teams."""
    stores = opened(url)
    make_groups(stores, "light")
    assert stores.tasks.insert([example("held", queue="light", priority=9)], [], NOW, team="ant")
    engine = open_state(url)
    with engine.begin() as connection:
        names = [column.name for column in schema_columns()]
        copied = ", ".join("'held' || number" if name == "task_id" else name for name in names)
        numbers = f"WITH RECURSIVE n(number) AS (SELECT 1 UNION ALL SELECT number + 1 FROM n WHERE number < {held}) "
        connection.exec_driver_sql(f"INSERT INTO compaction_task ({', '.join(names)}) {numbers} SELECT {copied} FROM compaction_task, n")
    if engine.dialect.name == "postgresql":
        with engine.begin() as connection:
            connection.exec_driver_sql("ANALYZE compaction_task")
    engine.dispose()
    limit(stores, "ant", slots=0)
    for number in range(60):
        name = f"team{number % 12:02}"
        limit(stores, name, slots=50 if number % 2 else None)
        assert stores.tasks.insert(
            [example(f"t{number:02}", queue="light", created_at=NOW + timedelta(minutes=number))], [], NOW, team=name
        )
    return stores


def scanned(plan: dict[str, Any]) -> set[str]:
    """The tables that a plan of PostgreSQL reads whole. It reads the list of teams so, because that is short."""
    below = {name for step in plan.get("Plans", []) for name in scanned(step)}
    return below | ({plan["Relation Name"]} if plan["Node Type"] == "Seq Scan" else set())


def schema_columns() -> Any:
    from compaction_pipeline.storage import schema

    return schema.task.columns


@pytest.mark.parametrize("order", [QueueOrder.PRIORITY, QueueOrder.FIFO])
def test_a_poll_visits_no_task_of_a_held_team(state_url: str, order: QueueOrder) -> None:
    """Each of the 13 teams costs a step of the list of teams and the head of its tasks, and each task one row."""
    is_postgres = not state_url.startswith("sqlite")
    stores = with_many_held(state_url, HELD if is_postgres else 1_000)
    stores.groups.change(ResourceGroup("light", queue=CompactionQueue(order=order)))
    with plans_of_all_queries() as plans:
        assert len(stores.tasks.poll_many("light", "me", NOW, LEASE, 16)) == 16
    assert len(plans) > 10
    for plan in plans:
        if isinstance(plan, list):
            # The list of running tasks is as long as there are slots.
            assert not [step for step in plan if step.startswith("SCAN compaction") or "TEMP B-TREE" in step], plan
            assert not [step for step in plan if "compaction_task_poll_queue" in step or "compaction_task_poll_fifo" in step], plan
        else:
            assert "Sort" not in steps_of(plan), plan
            assert "compaction_task" not in scanned(plan), plan
    if is_postgres:
        # A poll looks before its transaction and in it. The steps of a plan hand rows on, and one row counts once in each: so a team costs
        # at most 5 in each look, and a task that is taken 6. None of the held tasks is visited but the first one.
        assert sum(map(visited, plans)) <= 2 * 5 * 13 + 6 * 16 + 10, [visited(plan) for plan in plans]
    stores.close()


def test_who_changed_what_is_written_down(state_url: str) -> None:
    moment = [NOW]
    stores = open_stores(state_url, reckoning=Reckoning(lambda: moment[0], SLOT))
    assert stores.teams.teams() == (Team("unassigned"),)
    with pytest.raises(ConfigError, match="'unassigned' cannot be deleted"):
        stores.teams.remove("unassigned", "root", NOW)
    limit(stores, "ant", slots=4)
    assert not stores.teams.put(Team("ant", (), Limits(4)), "root", NOW)
    limit(stores, "bee", slots=1)
    wish = Loan("l1", "ant", "bee", NOW + timedelta(days=2), "ann", NOW, slots=3)
    stores.teams.ask(wish)
    assert stores.teams.standings()["bee"].allowed.slots == 1
    begun = stores.teams.approve("l1", "bob", "root", NOW)
    assert (begun.consent, begun.approved_by, stores.teams.loans()) == ("bob", "root", (begun,))
    assert stores.teams.standings()["bee"].allowed.slots == 4
    with pytest.raises(ConfigError, match="must be at least 3"):
        limit(stores, "ant", slots=2)
    with pytest.raises(ConfigError, match="cannot be deleted"):
        stores.teams.remove("ant", "root", NOW)
    moment[0] = NOW + timedelta(seconds=1)
    stores.teams.end("l1", "root", moment[0])
    assert stores.teams.loans() == ()
    assert stores.teams.map("lake", "ant", "root", NOW)
    assert not stores.teams.map("lake", "ant", "root", NOW)
    assert stores.teams.mapping() == {"lake": "ant"}
    with pytest.raises(ConfigError, match="mapped"):
        stores.teams.remove("ant", "root", moment[0])
    assert stores.teams.map("lake", None, "root", NOW)
    stores.teams.remove("ant", "eve", moment[0])
    changes = stores.teams.changes(99, "ant")
    assert [(one.who, one.what) for one in changes] == [
        ("eve", "deleted"),
        ("root", "mapping of lake"),
        ("root", "mapping of lake"),
        ("root", "loan ended"),
        ("root", "loan approved"),
        ("ann", "loan asked for"),
        ("root", "limits and owners"),
    ]
    assert changes[0].after is None
    assert '"slots":4' in (changes[0].before or "")
    assert (changes[-1].before, len(stores.teams.changes(2))) == (None, 2)
    stores.close()


def test_idle_slots_are_charged_to_the_team_of_their_group(state_url: str) -> None:
    """Of two groups with the same idle time, one names a team. What its slots did not use today holds the team."""
    moment = [NOW.replace(hour=1, minute=0, second=0, microsecond=0)]
    stores = open_stores(state_url, reckoning=Reckoning(lambda: moment[0], SLOT))
    stores.groups.add(ResourceGroup("light"))
    stores.groups.add(ResourceGroup("heavy", properties={"team": "ant"}))
    limit(stores, "ant", gb_hours=7.0)
    for group in ("light", "heavy"):
        stores.optimizers.add(Optimizer(group, group, "host", "1", "1", 2, moment[0], moment[0], memory_bytes=4 * 10**9))
        stores.optimizers.note_first_poll(group, moment[0])
    assert stores.teams.standings()["ant"].use.gb_hours == 0
    moment[0] += timedelta(hours=2)
    for group in ("light", "heavy"):
        stores.optimizers.touch(group, moment[0], SlotTotals(held=0.5 * 3600, idle=3.5 * 3600))
    # 3.5 slot-hours of 2 GB. What was held is charged with the attempts.
    assert stores.teams.standings()["ant"].use.gb_hours == pytest.approx(7.0)
    assert stores.teams.standings()["ant"].is_held
    assert stores.teams.standings()["unassigned"].use.gb_hours == 0
    with pytest.raises(ConfigError, match="team ant cannot be deleted while groups name it \\(heavy\\)"):
        stores.teams.remove("ant", "root", NOW)
    stores.groups.change(ResourceGroup("heavy"))
    stores.teams.remove("ant", "root", NOW)
    stores.close()
