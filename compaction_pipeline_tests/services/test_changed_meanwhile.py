"""Somebody else changes the state while a process is at work, mostly because that process stood still for longer than its lease.

The process must not write back what it looked at before: a table would count as whole, or as planned, that is not.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime

import pytest
from pyiceberg.table.snapshots import Operation

from compaction_pipeline.core.planning.plan import CostLimit, PlanRequest
from compaction_pipeline.core.queue.task import TaskStatus
from compaction_pipeline.core.tables.index import Reading
from compaction_pipeline.core.tables.table import CatalogEntry, TableHead, TableIdentifier
from compaction_pipeline.demo.row_delta import row_delta
from compaction_pipeline.iceberg.rewrite_files import SnapshotChange, Transaction
from compaction_pipeline.services.planning.decide_plan import Asker, Decision
from compaction_pipeline.services.tables.measure_nodes import MeasureNodes
from compaction_pipeline_tests.iceberg.lake import LakeTable
from compaction_pipeline_tests.services.house import House, store_each_manifest_alone
from compaction_pipeline_tests.services.in_hand import InHand

STOOD_STILL = 61


def indexed(house: House, table: LakeTable) -> set[str]:
    return {file.path for file in house.services.stores.files.files(table.identifier)}


def live(table: LakeTable) -> set[str]:
    return {file.path for file in table.files()}


def set_a_property(table: LakeTable) -> None:
    """Change the metadata of a table without a snapshot."""
    table.table.refresh()
    with table.table.transaction() as transaction:
        transaction.set_properties({"owner": "shop"})


def meanwhile(house: House, happens: Callable[[], None], *, before: bool = False) -> None:
    """Let this happen once, while the next refresh loads the table's head: after the head was loaded, or before."""
    scan = house.services.scan

    def head(table: TableIdentifier) -> TableHead:
        if before:
            happens()
        loaded: TableHead = scan.real.head(table)
        if not before:
            happens()
        return loaded

    scan.instead_once(head=head)


def test_a_refresh_that_stood_still_does_not_call_a_half_read_index_whole(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    table = house.fragmented(files=12)
    refresh = house.services.refresh_files.refresh
    refresh(table.identifier)
    set_a_property(table)

    def another_begins_and_is_killed() -> None:
        house.pass_time(STOOD_STILL)
        table.table.refresh()
        table.ids(99)
        with monkeypatch.context() as patch:
            patch.setattr(MeasureNodes, "measure", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
            with pytest.raises(KeyboardInterrupt):
                refresh(table.identifier)

    meanwhile(house, another_begins_and_is_killed)
    assert refresh(table.identifier).busy
    assert isinstance(house.services.stores.tables.state(table.identifier).index.state, Reading)
    assert refresh(table.identifier).complete
    assert indexed(house, table) == live(table)


def test_a_refresh_that_stood_still_leaves_a_newer_index(house: House) -> None:
    table = house.fragmented(files=12)
    refresh = house.services.refresh_files.refresh
    refresh(table.identifier)
    first = table.head().snapshot_id
    set_a_property(table)

    def others_remove_files_refresh_and_roll_back() -> None:
        house.pass_time(STOOD_STILL)
        table.table.refresh()
        transaction = Transaction(table.table)
        transaction.stage(SnapshotChange(Operation.DELETE, removed=[file for file in table.files() if file.is_data][:6]))
        transaction.commit()
        assert refresh(table.identifier).complete
        table.table.refresh()
        table.table.manage_snapshots().rollback_to_snapshot(first).commit()

    meanwhile(house, others_remove_files_refresh_and_roll_back)
    assert refresh(table.identifier).busy
    assert refresh(table.identifier).complete
    assert len(indexed(house, table)) == 12
    assert indexed(house, table) == live(table)


def register_again(house: House) -> None:
    """What a person does who adds a catalog again without `--observe`."""
    house.services.explore_catalogs.remove("lake")
    house.services.explore_catalogs.register(CatalogEntry("lake", house.lake.properties, False))


def test_a_catalog_that_is_removed_and_added_during_a_refresh_has_whole_tables(house: House) -> None:
    table = house.fragmented(files=12)
    refresh = house.services.refresh_files.refresh
    refresh(table.identifier)
    set_a_property(table)
    meanwhile(house, lambda: register_again(house), before=True)
    assert refresh(table.identifier).busy
    assert house.services.stores.tables.state(table.identifier).whole is None
    assert refresh(table.identifier).complete
    assert indexed(house, table) == live(table)


def test_a_catalog_that_is_removed_and_added_between_two_manifests_has_whole_tables(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    table = house.fragmented(files=6)
    table.delete_ids(1)
    refresh = house.services.refresh_files.refresh
    store_each_manifest_alone(monkeypatch)
    scan = house.services.scan
    calls: list[object] = []

    def live_files(*arguments: object) -> object:
        calls.append(arguments)
        if len(calls) == 2:
            register_again(house)
        return scan.real.live_files(*arguments)

    scan.instead(live_files=live_files)
    assert refresh(table.identifier).busy
    assert refresh(table.identifier).complete
    assert indexed(house, table) == live(table)


def test_a_refresh_that_stood_still_keeps_the_tasks_of_a_recreated_table(house: House) -> None:
    table = house.fragmented(files=3)
    services = house.services
    services.refresh_files.refresh(table.identifier)

    def another_table_is_merged() -> None:
        house.pass_time(STOOD_STILL)
        house.lake.catalog.drop_table(("db", "t"))
        new = house.lake.table("t")
        row_delta(new.table, new.one_row_files({"id": one, "name": f"n{one}"} for one in range(12)))
        assert services.refresh_files.refresh(table.identifier).complete
        assert services.plan_tables.plan(table.identifier).tasks
        services.work_on_queue.drain("another")

    meanwhile(house, another_table_is_merged, before=True)
    assert services.refresh_files.refresh(table.identifier).busy
    assert [task.status for task in services.stores.tasks.tasks(table.identifier)] == [TaskStatus.PREPARED]
    assert services.compact_tables.compact(table.identifier).committed


def test_a_commit_that_stood_still_after_its_answer_makes_no_index_trusted_again(house: House) -> None:
    table = house.fragmented(files=12)
    services = house.services
    steps: list[str] = []

    def on_step(step: str) -> None:
        if step != "committed-in-table" or steps:
            return
        steps.append(step)
        house.pass_time(STOOD_STILL)
        services.commit_tables.settle(table.identifier)
        table.table.refresh()
        row_delta(table.table, table.one_row_files({"id": one, "name": f"n{one}"} for one in range(100, 112)))
        services.refresh_files.refresh(table.identifier)
        assert services.compact_tables.compact(table.identifier).committed
        assert services.stores.tables.state(table.identifier).whole is None

    house.services.on_step = on_step
    services.compact_tables.compact(table.identifier)
    assert steps
    known = services.stores.tables.state(table.identifier)
    assert known.whole is None or known.index.last_snapshot_id == table.head().snapshot_id
    house.pass_time(4000)
    inputs = {file.path for task in services.plan_tables.plan(table.identifier).tasks for file in task.work.inputs}
    assert inputs <= live(table)


def test_a_plan_that_stood_still_does_not_take_back_what_another_plan_noted(house: House) -> None:
    table = house.fragmented(files=12)
    services = house.services
    services.refresh_files.refresh(table.identifier)
    held = InHand(services.plan_tables._decide_plan)
    services.plan_tables._decide_plan = held
    calls: list[Asker] = []

    def slow(known: object, request: PlanRequest, asker: Asker, now: datetime, cost: CostLimit | None) -> Decision:
        decision: Decision = held.real.decide(known, request, asker, now, cost)
        calls.append(asker)
        if len(calls) == 1:
            house.pass_time(STOOD_STILL)
            assert services.plan_tables.plan(table.identifier).tasks
            # The first plan found nothing to do.
            return replace(decision, plan=replace(decision.plan, tasks=(), verdicts=()))
        return decision

    held.instead(decide=slow)
    assert services.plan_tables.plan(table.identifier).busy
    assert services.stores.tables.state(table.identifier).planning.last_planned_at == house.now
