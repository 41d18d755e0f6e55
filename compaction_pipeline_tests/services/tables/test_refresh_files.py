from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import NoReturn

import pyarrow as pa
import pytest
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.snapshots import Operation
from pyiceberg.transforms import BucketTransform, IdentityTransform
from pyiceberg.typedef import Record
from pyiceberg.types import IntegerType, LongType, NestedField

from compaction_pipeline.core.errors import NotFoundError, StorageUnavailable, TableRefused
from compaction_pipeline.core.fragmentation.verdict import PlanReasonCode
from compaction_pipeline.core.planning.plan import PlanRequest
from compaction_pipeline.core.tables.index import Complete
from compaction_pipeline.core.tables.table import CatalogEntry
from compaction_pipeline.core.work.kinds import CompactionType
from compaction_pipeline.demo.row_delta import row_delta
from compaction_pipeline.iceberg.rewrite_files import SnapshotChange, Transaction
from compaction_pipeline.services.tables.follow_names import Followed, FollowNames
from compaction_pipeline.services.tables.measure_nodes import MeasureNodes
from compaction_pipeline_tests import builders
from compaction_pipeline_tests.iceberg.lake import LakeTable
from compaction_pipeline_tests.rest_catalog import rest_server, status
from compaction_pipeline_tests.services.house import House, store_each_manifest_alone
from compaction_pipeline_tests.services.in_hand import InHand


def indexed(house: House, table: LakeTable) -> set[str]:
    return {file.path for file in house.services.stores.files.files(table.identifier)}


def test_the_index_holds_the_live_files_of_the_head(house: House) -> None:
    table = house.fragmented(files=3)
    refresh = house.services.refresh_files.refresh(table.identifier)
    assert refresh.complete
    assert refresh.changed
    assert indexed(house, table) == {file.path for file in table.files()}
    table.delete_ids(1)
    assert house.services.refresh_files.refresh(table.identifier).changed
    assert indexed(house, table) == {file.path for file in table.files()}


def test_for_an_unchanged_head_no_manifest_is_read(house: House) -> None:
    table = house.fragmented(files=2)
    house.services.refresh_files.refresh(table.identifier)
    read: list[str] = []
    house.services.scan.instead(manifests=lambda *a: read.append("list") or ())
    refresh = house.services.refresh_files.refresh(table.identifier)
    assert refresh.complete
    assert read == []


def test_a_rollback_brings_the_index_back(house: House) -> None:
    table = house.fragmented(files=3)
    before = table.head().snapshot_id
    table.delete_ids(0)
    house.services.refresh_files.refresh(table.identifier)
    table.table.refresh()
    table.table.manage_snapshots().rollback_to_snapshot(before).commit()
    house.services.refresh_files.refresh(table.identifier)
    assert indexed(house, table) == {file.path for file in table.files()}
    assert all(file.is_data for file in house.services.stores.files.files(table.identifier))


def test_a_recreated_table_starts_anew(house: House) -> None:
    table = house.fragmented(files=3)
    house.services.refresh_files.refresh(table.identifier)
    house.lake.catalog.drop_table(("db", "t"))
    again = house.lake.table("t")
    again.ids(7)
    refresh = house.services.refresh_files.refresh(table.identifier)
    assert refresh.complete
    assert indexed(house, table) == {file.path for file in again.files()}


def test_a_dropped_table_is_forgotten_by_the_next_listing(house: House) -> None:
    table = house.fragmented(files=1)
    house.services.refresh_files.refresh(table.identifier)
    house.lake.catalog.drop_table(("db", "t"))
    with pytest.raises(NotFoundError):
        house.services.refresh_files.refresh(table.identifier)
    (known,) = house.services.stores.tables.states()
    assert "the next listing of its catalog decides" in str(known.problem)
    assert house.services.plan_tables.plan(table.identifier).tasks == ()
    assert house.services.explore_catalogs.explore().dropped == (table.identifier,)
    assert not house.services.stores.tables.states()


def test_one_answer_that_a_listed_table_does_not_exist_forgets_nothing(house: House) -> None:
    table = house.fragmented()
    services = house.services
    with rest_server(house.lake.catalog) as server:
        services.stores.catalogs.replace(CatalogEntry("lake", {"type": "rest", "uri": server.uri}))
        assert services.one_table.plan_nodes(table.identifier, PlanRequest()).tasks
        services.explore_catalogs.pause(table.identifier)
        before = indexed(house, table)
        server.loads.append(status(404))
        refresh = services.refresh_files.refresh(table.identifier)
        assert refresh.problem is not None
        assert "its catalog lists it" in refresh.problem
        assert indexed(house, table) == before
        assert services.stores.tables.state(table.identifier).paused
        assert services.stores.tasks.paused() == 1
        assert services.refresh_files.refresh(table.identifier).complete
        server.loads.append(status(404))
        house.lake.catalog.drop_table(("db", "t"))
        with pytest.raises(NotFoundError):
            services.refresh_files.refresh(table.identifier)
        assert services.stores.tables.state(table.identifier).whole is None


def test_one_answer_that_a_listed_namespace_does_not_exist_forgets_no_table(house: House) -> None:
    table = house.fragmented()
    services = house.services
    with rest_server(house.lake.catalog) as server:
        services.stores.catalogs.replace(CatalogEntry("lake", {"type": "rest", "uri": server.uri}))
        services.explore_catalogs.pause(table.identifier)
        services.refresh_files.refresh(table.identifier)
        before = indexed(house, table)
        for faults in ([status(404)], [status(404), status(404)]):
            # The second answer comes when the program asks for the table itself.
            server.lists, server.loads = list(faults), [status(404)] * (len(faults) - 1)
            assert services.explore_catalogs.explore().dropped == ()
            assert indexed(house, table) == before
            assert services.stores.tables.state(table.identifier).paused
        server.lists, server.loads = [], []
        house.lake.catalog.drop_table(("db", "t"))
        # The namespace is empty now, which mostly means that somebody's rights have ended. So later rounds must say the same.
        for _ in range(2):
            explored = services.explore_catalogs.explore()
            assert explored.dropped == ()
            assert "lists 1 table of 1 no more, e.g. lake.db.t" in explored.unseen[0].sentence
            house.pass_time(180)
        assert services.explore_catalogs.explore().dropped == (table.identifier,)
        assert not services.explore_catalogs.unseen()
        assert services.stores.tables.states() == ()


def test_a_table_is_known_under_one_name_only(house: House) -> None:
    table = house.fragmented("orders")
    services, catalog = house.services, house.lake.catalog
    services.refresh_files.refresh(table.identifier)
    # A catalog that does not distinguish capitals would load the same table under this name.
    catalog.register_table(("db", "Orders"), catalog.load_table(("db", "orders")).metadata_location)
    second = replace(table.identifier, name="Orders")
    services.explore_catalogs.pause(table.identifier)
    refused = services.compact_tables.compact(second, PlanRequest(force=True))
    assert (refused.tasks, refused.plan.reason.code) == ((), PlanReasonCode.REFUSED)
    assert "lake.db.Orders is the table lake.db.orders under another name" in refused.plan.reason.text
    assert services.stores.files.files(second) == ()
    assert services.refresh_files.refresh(table.identifier).complete
    # When the first name is gone, the table has only the other one.
    catalog.drop_table(("db", "orders"))
    assert services.refresh_files.refresh(second).complete
    assert [state.table for state in services.stores.tables.states()] == [second]


def other_uri(house: House) -> dict[str, str]:
    """The properties of the house's catalog by another path of its database, which only the database itself knows to be the same."""
    link = house.lake.folder / "link.db"
    link.symlink_to(house.lake.folder / "catalog.db")
    return {**house.lake.properties, "uri": f"sqlite:///{link}"}


def test_a_table_of_two_catalogs_is_known_under_one_name_only(house: House) -> None:
    table = house.fragmented("orders")
    services = house.services
    # The catalog is registered before any table of it was read.
    services.stores.catalogs.add(CatalogEntry("second", other_uri(house)))
    second = replace(table.identifier, catalog="second")
    assert services.refresh_files.refresh(table.identifier).complete
    refused = services.compact_tables.compact(second, PlanRequest(force=True))
    assert (refused.tasks, refused.plan.reason.code) == ((), PlanReasonCode.REFUSED)
    assert "second.db.orders is the table lake.db.orders under another name" in refused.plan.reason.text
    services.explore_catalogs.remove("lake")
    assert services.refresh_files.refresh(second).complete


def test_of_two_names_that_an_older_version_has_read_the_first_one_stays(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    table = house.fragmented("orders")
    services = house.services
    services.stores.catalogs.add(CatalogEntry("attic", other_uri(house)))
    first = replace(table.identifier, catalog="attic")
    with monkeypatch.context() as patch:
        patch.setattr(FollowNames, "follow", lambda *a: Followed.SAME)
        assert all(services.refresh_files.refresh(name).complete for name in (first, table.identifier))
    for _ in range(2):
        table.ids(50, 51)
        refresh = services.refresh_files.refresh(table.identifier)
        assert refresh.problem is not None
        assert "lake.db.orders is the table attic.db.orders under another name" in refresh.problem
        assert services.refresh_files.refresh(first).complete


def test_a_name_is_not_read_while_nobody_can_tell_whether_the_table_has_another(house: House) -> None:
    table = house.fragmented("orders")
    services = house.services
    assert services.refresh_files.refresh(table.identifier).complete
    services.stores.catalogs.add(CatalogEntry("second", other_uri(house)))
    services.stores.catalogs.replace(CatalogEntry("lake", {**house.lake.properties, "uri": "sqlite:////nowhere/catalog.db"}))
    refresh = services.refresh_files.refresh(replace(table.identifier, catalog="second"))
    assert isinstance(refresh.error, StorageUnavailable)
    assert "run `catalog remove lake`" in str(refresh.error)


def test_a_first_read_goes_on_where_it_stopped_and_is_not_planned_meanwhile(house: House) -> None:
    table = house.fragmented(files=12)
    refresh = house.services.refresh_files.refresh(table.identifier, deadline=house.now - timedelta(seconds=1))
    assert not refresh.complete
    assert house.services.plan_tables.plan(table.identifier).plan.reason.code is PlanReasonCode.BEING_READ
    assert house.services.refresh_files.refresh(table.identifier).complete
    assert indexed(house, table) == {file.path for file in table.files()}


def test_a_process_killed_between_files_and_state_leaves_a_table_that_is_read_again(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    table = house.fragmented(files=12)
    house.services.refresh_files.refresh(table.identifier)
    table.ids(99)

    def killed(*args: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(MeasureNodes, "measure", killed)
        with pytest.raises(KeyboardInterrupt):
            house.services.refresh_files.refresh(table.identifier)
    assert house.services.plan_tables.plan(table.identifier).plan.reason.code is PlanReasonCode.BEING_READ
    house.pass_time(61)
    assert house.services.refresh_files.refresh(table.identifier).complete


def test_an_index_younger_than_its_snapshot_is_never_planned(house: House) -> None:
    table = house.fragmented(files=12)
    house.services.refresh_files.refresh(table.identifier)
    index = house.services.stores.tables.state(table.identifier).index
    assert isinstance(index.state, Complete)
    builders.indexed(house.services.stores, replace(index, state=replace(index.state, sequence_number=0)))
    planned = house.services.plan_tables.plan(table.identifier)
    assert planned.tasks == ()
    assert planned.plan.reason.code is PlanReasonCode.BEING_READ
    assert house.services.refresh_files.refresh(table.identifier).complete
    assert house.services.plan_tables.plan(table.identifier).tasks


def test_another_tools_rewrite_is_a_warning(house: House) -> None:
    table = house.fragmented(files=3)
    house.services.refresh_files.refresh(table.identifier)
    table.table.refresh()
    transaction = Transaction(table.table)
    transaction.stage(SnapshotChange(Operation.REPLACE))
    transaction.commit()
    house.services.refresh_files.refresh(table.identifier)
    warning = house.services.stores.tables.state(table.identifier).index.warning
    assert warning is not None
    assert "is a rewrite by" in warning


def test_a_property_out_of_bounds_stops_that_table_only_and_shows_on_it(house: House) -> None:
    bad = house.fragmented("bad", **{"self-optimizing.fragment-ratio": "1"})
    good = house.fragmented("good")
    swept = house.services.sweep_tables.sweep(None, timedelta(seconds=20))
    assert len(swept.refreshed) == 2
    house.services.sweep_tables.plan_due([bad.identifier, good.identifier], timedelta(seconds=20))
    problem = house.services.stores.tables.state(bad.identifier).problem
    assert problem is not None
    assert "'self-optimizing.fragment-ratio' is 1 but must be ≥ 2 and < 2^31; the table sets it: ALTER TABLE " in problem
    assert len(house.services.stores.tasks.tasks(good.identifier)) == 1
    assert not house.services.stores.tasks.tasks(bad.identifier)


def test_an_unreadable_manifest_harms_no_other_table(house: House) -> None:
    bad, good = house.fragmented("bad", files=2), house.fragmented("good", files=2)
    manifest = house.lake.scan.manifests(bad.identifier, bad.head().snapshot_id or 0)[0]
    with open(manifest.path.removeprefix("file://"), "wb") as file:
        file.write(b"not avro")
    house.services.sweep_tables.sweep(None, timedelta(seconds=20))
    assert house.services.stores.tables.state(good.identifier).whole is not None
    state = house.services.stores.tables.state(bad.identifier)
    assert state.whole is None
    assert state.problem is not None
    assert manifest.path in state.problem


def test_a_new_delete_of_an_old_spec_is_noticed(house: House) -> None:
    table = house.lake.table("t")
    old = table.table.spec().spec_id
    table.ids(1, 2)
    house.services.explore_catalogs.explore()
    house.services.refresh_files.refresh(table.identifier)
    assert house.services.stores.tables.state(table.identifier).index.last_old_spec_delete_at is None
    evolved(table)
    house.services.refresh_files.refresh(table.identifier)
    at_evolution = house.services.stores.tables.state(table.identifier).index.last_old_spec_delete_at
    assert at_evolution is not None
    table.delete_ids(1, spec_id=old)
    house.services.refresh_files.refresh(table.identifier)
    at_delete = house.services.stores.tables.state(table.identifier).index.last_old_spec_delete_at
    assert at_delete is not None
    assert at_delete > at_evolution


def evolved(table: LakeTable) -> None:
    with table.table.refresh().update_spec() as update:
        update.add_field("id", BucketTransform(4), "id_bucket")


def full_reason(house: House, table: LakeTable) -> str:
    request = PlanRequest((CompactionType.FULL,), force=True)
    return house.services.one_table.explain(table.identifier, request).verdicts[0].reason.text


def test_a_new_spec_without_a_snapshot_moves_no_row(house: House) -> None:
    table = house.fragmented()
    house.services.refresh_files.refresh(table.identifier)
    evolved(table)
    house.services.refresh_files.refresh(table.identifier)
    assert "the spec changed" in full_reason(house, table)


def test_a_refresh_that_was_cut_off_remembers_a_new_spec(house: House) -> None:
    table = house.fragmented()
    house.services.refresh_files.refresh(table.identifier)
    evolved(table)
    table.insert({"id": 50, "name": "x"}, partition=Record(), spec_id=0)

    def away(*arguments: object) -> NoReturn:
        raise StorageUnavailable("storage is away")

    with house.services.scan.for_a_while(live_files=away):
        assert house.services.refresh_files.refresh(table.identifier).problem == "storage is away"
    assert "the spec changed" in full_reason(house, table)


def test_the_first_read_of_a_table_with_a_new_spec_moves_no_row_yet(house: House) -> None:
    table = house.fragmented()
    evolved(table)
    house.services.refresh_files.refresh(table.identifier)
    assert "the spec changed" in full_reason(house, table)
    house.pass_time(86_400)
    assert "the spec changed" not in full_reason(house, table)


def test_files_from_before_and_after_a_promotion_are_in_one_partition(house: House) -> None:
    by_p = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "p"), spec_id=0)
    schema = Schema(NestedField(1, "id", LongType(), required=True), NestedField(2, "p", IntegerType()), identifier_field_ids=[1])
    table = house.lake.table(schema=schema, spec=by_p)
    row_delta(table.table, [table.data_file([{"id": one, "p": 5}], Record(5)) for one in range(12)])
    house.services.explore_catalogs.explore()
    house.services.refresh_files.refresh(table.identifier)
    with table.table.update_schema() as update:
        update.update_column("p", LongType())
    table.delete_ids(1, 2, partition=Record(5))
    compaction = house.services.compact_tables.compact(table.identifier)
    assert len(compaction.committed) == 1
    assert table.live_ids() == [0, *range(3, 12)]
    assert len(table.files()) == 1


def test_a_table_with_an_unchanged_metadata_location_is_not_loaded(house: House) -> None:
    moved, still = house.fragmented("moved", files=2), house.fragmented("still", files=2)
    assert house.services.refresh_files.unmoved() == set()
    house.services.sweep_tables.sweep(None, timedelta(seconds=20))
    moved.ids(7)
    swept = house.services.sweep_tables.sweep(None, timedelta(seconds=20))
    assert [refresh.table for refresh in swept.refreshed] == [moved.identifier]
    assert swept.unmoved == 1
    assert indexed(house, moved) == {file.path for file in moved.files()}
    with moved.table.transaction() as transaction:
        transaction.set_properties({"self-optimizing.enabled": "false"})
    house.services.sweep_tables.sweep(None, timedelta(seconds=20))
    layout = house.services.stores.tables.state(moved.identifier).layout
    assert layout is not None
    assert layout.properties["self-optimizing.enabled"] == "false"
    assert house.services.refresh_files.unmoved() == {moved.identifier, still.identifier}


def test_a_dropped_table_is_forgotten_though_its_catalog_names_only_the_others(house: House) -> None:
    gone, kept = house.fragmented("gone", files=2), house.fragmented("kept", files=2)
    house.services.sweep_tables.sweep(None, timedelta(seconds=20))
    house.lake.catalog.drop_table(("db", "gone"))
    house.services.sweep_tables.sweep(None, timedelta(seconds=20))
    assert house.services.explore_catalogs.explore().dropped == (gone.identifier,)
    assert [state.table for state in house.services.stores.tables.states()] == [kept.identifier]
    assert gone.identifier not in house.services.refresh_files.unmoved()


def days(house: House, *counts: int) -> LakeTable:
    schema = Schema(NestedField(1, "id", LongType(), required=True), NestedField(2, "day", IntegerType()), identifier_field_ids=[1])
    table = house.lake.table("days", schema=schema, spec=PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "day")))
    for day, count in enumerate(counts):
        row_delta(table.table, [table.data_file([{"id": one, "day": day}], Record(day)) for one in range(count)])
    house.services.explore_catalogs.explore()
    return table


def figures(house: House, table: LakeTable) -> dict[str, tuple[int, int]]:
    return {
        str(state.node): (state.metrics.data_files, state.metrics.delete_files)
        for state in house.services.stores.tables.nodes(table.identifier)
    }


def test_only_nodes_whose_files_changed_are_measured_and_without_deletes_by_sums(house: House) -> None:
    table = days(house, 3, 2)
    house.services.refresh_files.refresh(table.identifier)
    assert figures(house, table) == {"day=0": (3, 0), "day=1": (2, 0)}
    asked: list[object] = []
    store = house.services.stores.files
    store.instead(files=None, figures=lambda *sizes: asked.append(sizes[-1]) or store.real.figures(*sizes))
    row_delta(table.table, [table.data_file([{"id": 9, "day": 1}], Record(1)), table.data_file([{"id": 9, "day": 2}], Record(2))])
    changed = house.services.refresh_files.refresh(table.identifier).changed
    assert sorted(map(str, changed)) == ["day=1", "day=2"]
    assert [sorted(map(str, nodes)) for nodes in asked] == [["day=1", "day=2"]]  # type: ignore[call-overload]
    assert figures(house, table) == {"day=0": (3, 0), "day=1": (3, 0), "day=2": (1, 0)}


def test_a_commit_of_ours_changes_no_node_whose_files_it_only_carried_over(house: House) -> None:
    table = days(house)
    row_delta(table.table, [table.data_file([{"id": 12 * day + one, "day": day}], Record(day)) for day in range(3) for one in range(12)])
    house.services.refresh_files.refresh(table.identifier)
    before = {state.node: state.changed_snapshot_id for state in house.services.stores.tables.nodes(table.identifier)}
    merged = next(node for node in before if str(node) == "day=1")
    assert house.services.compact_tables.compact(table.identifier, PlanRequest(nodes=frozenset({merged}))).committed
    refresh = house.services.refresh_files.refresh(table.identifier)
    assert refresh.changed == (merged,)
    after = {state.node: state.changed_snapshot_id for state in house.services.stores.tables.nodes(table.identifier)}
    assert after == {**before, merged: table.head().snapshot_id}


def test_manifests_that_are_read_in_two_ticks_change_no_node_that_stayed(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    table = days(house, 12, 12, 12)
    house.services.refresh_files.refresh(table.identifier)
    table.table.refresh()
    with table.table.transaction() as transaction:
        transaction.set_properties({"commit.manifest-merge.enabled": "true", "commit.manifest.min-count-to-merge": "2"})
    table.table.append(pa.Table.from_pylist([{"id": 99, "day": 2}], table.table.schema().as_arrow()))
    store_each_manifest_alone(monkeypatch)
    assert not house.services.refresh_files.refresh(table.identifier, deadline=house.now).complete
    refresh = house.services.refresh_files.refresh(table.identifier)
    assert refresh.complete
    assert len(house.services.stores.files.manifests(table.identifier)) == 1
    assert [str(node) for node in refresh.changed] == ["day=2"]


def test_another_target_size_changes_the_figures_of_a_node_but_not_its_data(house: House) -> None:
    table = days(house, 2)
    house.services.refresh_files.refresh(table.identifier)
    (before,) = house.services.stores.tables.nodes(table.identifier)
    with table.table.transaction() as transaction:
        transaction.set_properties({"self-optimizing.target-size": "8"})
    house.services.refresh_files.refresh(table.identifier)
    (after,) = house.services.stores.tables.nodes(table.identifier)
    assert after.metrics != before.metrics
    assert after.changed_snapshot_id == before.changed_snapshot_id


def test_a_node_with_deletes_is_measured_by_its_files(house: House) -> None:
    table = days(house, 2, 1)
    (one, _), (two,) = ([file.path for file in table.files() if str(file.node) == f"day={day}"] for day in (0, 1))
    table.delete_positions((one, 0), partition=Record(0))
    # This delete is in another partition than its data file. Java applies such a delete too.
    table.delete_positions((two, 0), partition=Record(0))
    house.services.refresh_files.refresh(table.identifier)
    estimates = {str(state.node): state.metrics.deleted_rows_estimate for state in house.services.stores.tables.nodes(table.identifier)}
    assert estimates == {"day=0": 1, "day=1": 1}
    assert figures(house, table) == {"day=0": (2, 2), "day=1": (1, 0)}


def test_a_node_without_files_is_gone(house: House) -> None:
    table = days(house, 1, 2)
    house.services.refresh_files.refresh(table.identifier)
    table.table.refresh()
    table.table.delete("day = 0")
    house.services.refresh_files.refresh(table.identifier)
    assert figures(house, table) == {"day=1": (2, 0)}


def test_the_next_refresh_measures_what_a_killed_one_did_not(house: House) -> None:
    table = days(house, 1, 2)
    house.services.refresh_files.refresh(table.identifier)
    row_delta(table.table, [table.data_file([{"id": 9, "day": 0}], Record(0))])

    class Killed(BaseException):
        pass

    def killed(*_: object, **__: object) -> NoReturn:
        raise Killed

    house.services.stores.index.instead_once(save_figures=killed)
    with pytest.raises(Killed):
        house.services.refresh_files.refresh(table.identifier)
    assert house.services.stores.tables.state(table.identifier).whole is None
    # The index has the manifest of the first commit by now. The next commit touches only another node.
    row_delta(table.table, [table.data_file([{"id": 9, "day": 1}], Record(1))])
    changed = house.services.refresh_files.refresh(table.identifier).changed
    assert sorted(map(str, changed)) == ["day=0", "day=1"]
    assert figures(house, table) == {"day=0": (2, 0), "day=1": (3, 0)}


def test_a_new_target_size_measures_every_node(house: House) -> None:
    table = days(house, 1, 2)
    house.services.refresh_files.refresh(table.identifier)
    small = {state.metrics.small_data_files for state in house.services.stores.tables.nodes(table.identifier)}
    assert small == {1, 2}
    with table.table.transaction() as transaction:
        transaction.set_properties({"self-optimizing.target-size": "8"})
    house.services.refresh_files.refresh(table.identifier)
    assert {state.metrics.small_data_files for state in house.services.stores.tables.nodes(table.identifier)} == {0}


def test_a_global_delete_counts_in_every_node_until_it_is_gone(house: House) -> None:
    table = days(house, 1, 2)
    with table.table.update_spec() as update:
        update.remove_field("day")
    house.services.refresh_files.refresh(table.identifier)
    spec_id = table.table.refresh().spec().spec_id
    before = table.head().snapshot_id
    table.delete_ids(0, spec_id=spec_id)
    house.services.refresh_files.refresh(table.identifier)
    estimates = {str(state.node): state.metrics.deleted_rows_estimate for state in house.services.stores.tables.nodes(table.identifier)}
    assert house.services.stores.files.has_global_deletes(table.identifier, {spec_id})
    assert len(estimates) == 3
    table.table.refresh()
    table.table.manage_snapshots().rollback_to_snapshot(before).commit()
    house.services.refresh_files.refresh(table.identifier)
    assert figures(house, table) == {"day=0": (1, 0), "day=1": (2, 0)}


def test_a_refused_table_is_read_again_when_its_pointer_is_set_back(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    table = house.fragmented(files=2)
    services = house.services
    services.one_table.refresh(table.identifier)
    # For a while the catalog names newer metadata, which has a type that the program does not know.
    with monkeypatch.context() as patch:
        services.scan.instead_once(head=_refused)
        patch.setattr(services.refresh_files, "unmoved", lambda: frozenset())
        assert services.sweep_tables.sweep(None, timedelta(seconds=20)).refreshed[0].problem == "a type of tomorrow"
    [refresh] = services.sweep_tables.sweep(None, timedelta(seconds=20)).refreshed
    assert refresh.complete


def _refused(*_: object) -> NoReturn:
    raise TableRefused("a type of tomorrow")


def test_a_commit_of_ours_that_lands_while_a_table_is_read_outdates_what_is_read(house: House) -> None:
    table = house.fragmented(files=12)
    services = house.services
    services.one_table.plan_nodes(table.identifier, PlanRequest((CompactionType.MINOR,), force=True))
    services.work_on_queue.drain("me")
    table.ids(50)

    def committed_meanwhile(*arguments: object) -> object:
        found = services.scan.real.manifests(*arguments)
        assert services.commit_tables.commit(table.identifier).record is not None
        return found

    services.scan.instead_once(manifests=committed_meanwhile)
    assert services.refresh_files.refresh(table.identifier).complete
    assert services.plan_tables.plan(table.identifier).plan.reason.code is PlanReasonCode.BEING_READ
    services.refresh_files.refresh(table.identifier)
    assert indexed(house, table) == {file.path for file in table.files()}
    assert services.plan_tables.plan(table.identifier).plan.reason.code is not PlanReasonCode.BEING_READ


def test_a_refresh_that_stood_still_until_another_had_its_lease_calls_nothing_whole(house: House) -> None:
    table = house.fragmented(files=12)
    services = house.services
    held = InHand(services.refresh_files._measure_nodes)
    services.refresh_files._measure_nodes = held

    def overtaken(*arguments: object) -> object:
        changed = held.real.measure(*arguments)
        house.pass_time(61)
        assert services.stores.leases.acquire(f"refresh:{table.identifier}", "another", house.now, timedelta(minutes=1))
        return changed

    held.instead_once(measure=overtaken)
    assert not services.refresh_files.refresh(table.identifier).complete
    assert services.stores.tables.state(table.identifier).whole is None


def test_a_refused_table_that_cannot_be_looked_at_stays_refused(house: House) -> None:
    table = house.fragmented(files=2)
    services = house.services
    services.scan.instead_once(head=_refused)
    services.refresh_files.refresh(table.identifier)

    def away(*_: object) -> NoReturn:
        raise StorageUnavailable("the catalog is away")

    services.scan.instead(head=away)
    assert services.refresh_files.refresh(table.identifier).problem == "the catalog is away"
    state = services.stores.tables.state(table.identifier)
    assert (state.refusal, state.index.problem) == ("a type of tomorrow", None)
