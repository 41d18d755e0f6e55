"""Writes keyed tables: whatever order and kind of changes, every reader sees the rows that the changes leave."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import BucketTransform, IdentityTransform, YearTransform
from pyiceberg.types import LongType, NestedField, StringType, StructType

from compaction_pipeline.core.errors import CommitStateUnknown, ConfigError, NotFoundError, RacesLost
from compaction_pipeline.core.tables.keyed.file_names import change_file
from compaction_pipeline.core.tables.keyed.key_hash import key_hash
from compaction_pipeline.core.tables.keyed.tree import DataTreeNode
from compaction_pipeline.core.tables.properties import resolve_properties
from compaction_pipeline.iceberg.catalogs import SqlCatalog
from compaction_pipeline.keyed import KeyedTable
from compaction_pipeline_tests.keyed.acting_catalog import Commit
from compaction_pipeline_tests.keyed.written import BY_REGION, SCHEMA, Keyed, give_up_soon, list_files, row, table_of
from compaction_pipeline_tests.reference_reader import Row, live_entries, metadata_of


@pytest.fixture
def keyed(tmp_path: Path) -> Keyed:
    return Keyed(tmp_path)


def test_a_new_table_has_the_two_stores_of_amoro(keyed: Keyed) -> None:
    base, change = keyed.stores()
    keyed.check([])
    assert base.properties["mixed-format.change.identifier"] == "db.t_change_"
    assert (base.properties["mixed-format.table-store"], change.properties["mixed-format.table-store"]) == ("base", "change")
    assert keyed.table.primary_key == ("id",)
    assert base.schema().as_struct() == change.schema().as_struct()
    for store in (base, change):
        assert store.properties["table-format"] == "MIXED_ICEBERG"
        assert store.properties["mixed-format.primary-key-fields"] == "id"
        assert store.format_version == 2


def test_changes_are_applied_in_the_order_of_the_rows(keyed: Keyed) -> None:
    assert keyed.write(("INSERT", row(1, "a")), ("INSERT", row(2, "b")), ("DELETE", row(1, "a")), ("INSERT", row(1, "c"))) == 1
    keyed.check([row(1, "c"), row(2, "b")])
    assert keyed.write(("UPDATE_BEFORE", row(1, "c")), ("UPDATE_AFTER", row(1, "d")), ("DELETE", row(2))) == 2
    keyed.check([row(1, "d")])


def test_interleaved_updates_of_two_keys_keep_both_new_rows(keyed: Keyed) -> None:
    keyed.write(("INSERT", row(1, "a")), ("INSERT", row(2, "b")))
    keyed.write(
        ("UPDATE_BEFORE", row(1, "a")), ("UPDATE_BEFORE", row(2, "b")), ("UPDATE_AFTER", row(1, "A")), ("UPDATE_AFTER", row(2, "B")),
        ("UPDATE_BEFORE", row(2, "B")), ("UPDATE_BEFORE", row(1, "A")), ("UPDATE_AFTER", row(1, "x")), ("UPDATE_AFTER", row(2, "y")),
    )  # fmt: skip
    keyed.check([row(1, "x"), row(2, "y")])


def test_an_update_that_changes_the_key_or_the_partition_moves_the_row(tmp_path: Path) -> None:
    keyed = Keyed(tmp_path, spec=BY_REGION)
    keyed.write(("INSERT", row(1, "a", "eu")), ("INSERT", row(2, "b", "eu")))
    keyed.write(
        ("UPDATE_BEFORE", row(1, "a", "eu")), ("UPDATE_AFTER", row(9, "a", "eu")),
        ("UPDATE_BEFORE", row(2, "b", "eu")), ("UPDATE_AFTER", row(2, "b", "l'été")),
    )  # fmt: skip
    keyed.check([row(9, "a", "eu"), row(2, "b", "l'été")])


def test_rows_are_ordered_by_a_column_and_a_row_before_comes_before_its_row_after(keyed: Keyed) -> None:
    keyed.write(("INSERT", row(1, "a")))
    changes = [
        ("UPDATE_AFTER", row(1, "c"), 3),
        ("UPDATE_AFTER", row(1, "b"), 2),
        ("UPDATE_BEFORE", row(1, "b"), 3),
        ("UPDATE_BEFORE", row(1, "a"), 2),
    ]
    keyed.write(*((kind, {**each, "seq": seq}) for kind, each, seq in changes), order_by="seq")
    keyed.check([row(1, "c")])


def test_an_upsert_table_keeps_one_row_of_each_key(tmp_path: Path) -> None:
    keyed = Keyed(tmp_path, upsert=True)
    keyed.write(("INSERT", row(1, "a")), ("INSERT", row(1, "b")), ("UPDATE_AFTER", row(2, "c")))
    keyed.check([row(1, "b"), row(2, "c")])
    keyed.write(("INSERT", row(1, "d")), ("UPDATE_AFTER", row(2, "e")), ("UPDATE_BEFORE", row(1, "d")), ("UPDATE_AFTER", row(1, "f")))
    keyed.check([row(1, "f"), row(2, "e")])


def test_files_lie_in_the_nodes_of_their_keys_under_names_of_amoro(tmp_path: Path) -> None:
    keyed = Keyed(tmp_path, key=("region", "id"), spec=BY_REGION, buckets=8)
    rows = [row(number, "v", region) for number in range(20) for region in ("l'été", "x y", None)]
    keyed.write(*(("INSERT", each) for each in rows))
    _, change = keyed.stores()
    seen = set()
    for entry in live_entries(metadata_of(change)):
        named = change_file(entry.path, entry.sequence)
        region = entry.file["partition"]["region"]
        numbers = [each["id"] for each in rows if each["region"] == region]
        of_node = [n for n in numbers if DataTreeNode.of_hash(7, key_hash([region, n], ["string", "long"])) == named.node]
        assert entry.file["record_count"] == len(of_node) > 0
        assert named.transaction_id == entry.sequence
        folder = {"l'été": "region=l%27%C3%A9t%C3%A9", "x y": "region=x+y", None: "region=null"}[region]
        assert f"/data/{folder}/{named.node.id}-I-0-00000-0-" in entry.path
        seen.add((region, named.node))
    assert len(seen) == len(live_entries(metadata_of(change)))
    keyed.check(rows)


def test_large_writes_are_split_at_the_target_size(tmp_path: Path) -> None:
    keyed = Keyed(tmp_path, buckets=1, properties={"write.target-file-size-bytes": "60000"})
    keyed.write(*(("INSERT", row(number, f"{number * 7919 % 100_003:040}")) for number in range(20_000)))
    _, change = keyed.stores()
    assert len(live_entries(metadata_of(change))) > 1
    assert keyed.table.scan().to_arrow().num_rows == 20_000


# ---- batches


def test_a_batch_lands_once(keyed: Keyed) -> None:
    assert keyed.write(("INSERT", row(1)), sink_id="orders", batch=4) == 1
    for replayed in (4, 3):
        assert keyed.write(("INSERT", row(1)), sink_id="orders", batch=replayed) is None
    assert keyed.write(("INSERT", row(2)), sink_id="orders", batch=5) == 2
    assert keyed.write(("INSERT", row(3)), sink_id="another", batch=0) == 3
    keyed.check([row(1), row(2), row(3)])


def test_an_empty_batch_leaves_its_mark_and_an_empty_write_leaves_nothing(keyed: Keyed) -> None:
    assert keyed.write() is None
    assert keyed.write(sink_id="orders", batch=7) == 1
    assert keyed.write(("INSERT", row(1)), sink_id="orders", batch=7) is None
    keyed.check([])


def test_two_writers_of_one_batch_land_it_once(keyed: Keyed) -> None:
    raced: list[int] = []

    def act(name: str, commit: Commit) -> None:
        if not raced:
            raced.append(1)
            keyed.write(("INSERT", row(1)), sink_id="orders", batch=1)
        commit()

    keyed.catalog.act = act
    assert keyed.write(("INSERT", row(1)), sink_id="orders", batch=1) is None
    keyed.check([row(1)])
    assert len(list_files(keyed)) == 1


def test_a_writer_that_loses_a_race_commits_after_the_winner(keyed: Keyed) -> None:
    raced: list[int] = []

    def act(name: str, commit: Commit) -> None:
        if not raced:
            raced.append(1)
            keyed.write(("INSERT", row(1, "winner")))
        commit()

    keyed.catalog.act = act
    assert keyed.write(("DELETE", row(1)), ("INSERT", row(2))) == 2
    keyed.check([row(2)])


def test_a_writer_that_always_loses_leaves_no_file(keyed: Keyed, monkeypatch: pytest.MonkeyPatch) -> None:
    def act(name: str, commit: Commit) -> None:
        raise CommitFailedException("another was faster")

    keyed.catalog.act = act
    give_up_soon(monkeypatch)
    with pytest.raises(RacesLost, match="nothing was written, write it again"):
        keyed.write(("INSERT", row(1)))
    assert list_files(keyed) == []


@pytest.mark.parametrize("lands", [True, False])
def test_after_a_lost_answer_the_same_batch_lands_once(keyed: Keyed, lands: bool) -> None:

    def act(name: str, commit: Commit) -> None:
        if lands:
            commit()
        raise ConnectionError("no answer")

    keyed.catalog.act = act
    if lands:
        assert keyed.write(("INSERT", row(1)), sink_id="orders", batch=1) == 1
    else:
        with pytest.raises(CommitStateUnknown, match="it may still land"):
            keyed.write(("INSERT", row(1)), sink_id="orders", batch=1)
        # Nothing proves that the commit will not land, so its file stays.
        assert len(list_files(keyed)) == 1
    keyed.catalog.act = None
    keyed.write(("INSERT", row(1)), sink_id="orders", batch=1)
    keyed.check([row(1)])


@pytest.mark.parametrize("options", [{}, {"sink_id": "orders", "batch": 1}])
def test_a_commit_that_landed_and_is_called_a_lost_race_is_not_made_again(keyed: Keyed, options: dict[str, Any]) -> None:

    def act(name: str, commit: Commit) -> None:
        # The client sent the request twice, and the second one lost against the first.
        commit()
        raise CommitFailedException("409")

    keyed.catalog.act = act
    assert keyed.write(("INSERT", row(1)), **options) == 1
    keyed.check([row(1)])


@pytest.mark.parametrize("lands", [True, False])
def test_an_interruption_during_the_commit_deletes_no_file_that_may_be_live(keyed: Keyed, lands: bool) -> None:

    def act(name: str, commit: Commit) -> None:
        if lands:
            commit()
        raise KeyboardInterrupt

    keyed.catalog.act = act
    with pytest.raises(KeyboardInterrupt):
        keyed.write(("INSERT", row(1)))
    assert len(list_files(keyed)) == 1
    keyed.check([row(1)] if lands else [])


# ---- refused


def test_rows_that_do_not_fit_are_refused_and_leave_nothing(keyed: Keyed) -> None:
    good = table_of([("INSERT", row(1))])
    wrong: list[tuple[Any, dict[str, Any], str]] = [
        (good.drop_columns(["_change_type"]), {}, "no column '_change_type'"),
        (table_of([("UPSERT", row(1))]), {}, "has the value 'UPSERT' but must be one of INSERT, DELETE"),
        (table_of([(None, row(1))]), {}, "has the value None but must be one of"),  # type: ignore[list-item]
        (good.append_column("x", pa.array([1])), {}, "a column 'x', but the table's columns are id, region"),
        (good.drop_columns(["id"]), {}, "the rows have no column 'id'"),
        (table_of([("DELETE", row(1))]).drop_columns(["id"]), {}, "have no column 'id', which decides where a row lies"),
        (table_of([("INSERT", row(1)), ("DELETE", row(2))]).drop_columns(["v"]), {}, "the rows have no column 'v': only rows that are all"),
        (good.set_column(0, "id", pa.array(["one"])), {}, "column 'id' has the type string"),
        (good, {"order_by": "seq"}, "order_by is 'seq', but the rows have no such column"),
        (good, {"order_by": "v"}, "1 rows have NULL there"),
        (good, {"sink_id": "orders"}, "both must be given, or neither"),
        (good, {"sink_id": "a.b", "batch": 1}, "sink_id is 'a.b' but must be"),
        (good, {"sink_id": "a", "batch": -1}, "is -1 but must be a whole number, at least 0"),
        (good, {"sink_id": "a", "batch": "1"}, "is '1' but must be a whole number"),
        (good, {"sink_id": 5, "batch": 1}, "sink_id is 5 but must be"),
        (good, {"sink_id": "a", "batch": 1, "watermark": "x"}, "watermark is 'x' but must be a datetime"),
        ([row(1)], {}, "the rows are a list but must be an Arrow table or a Spark DataFrame"),
    ]
    for rows, options, message in wrong:
        with pytest.raises(ConfigError, match=message):
            keyed.table.write_changes(rows, **options)
    assert list_files(keyed) == []
    keyed.check([])


@pytest.mark.parametrize("kind", [pa.large_string(), pa.string_view(), pa.dictionary(pa.int32(), pa.string())])
def test_change_types_may_be_any_texts(kind: Any, keyed: Keyed) -> None:
    for rows in (table_of([("INSERT", row(1)), ("INSERT", row(2))]), table_of([("DELETE", row(1))])):
        place = rows.schema.get_field_index("_change_type")
        keyed.table.write_changes(rows.set_column(place, "_change_type", rows.column("_change_type").cast(kind)))
    keyed.check([row(2)])
    rows = table_of([("INSERT", row(1))]).drop_columns(["_change_type"]).append_column("_change_type", pa.array([[1]]))
    with pytest.raises(ConfigError, match=r"column '_change_type' has the type list<item: int64>, but must hold texts"):
        keyed.table.write_changes(rows)


def test_rows_that_are_all_deleted_may_leave_columns_away(keyed: Keyed) -> None:
    keyed.write(("INSERT", row(1, "a")), ("INSERT", row(2, "b")))
    keyed.table.write_changes(table_of([("DELETE", row(1))]).select(["id", "_change_type"]))
    keyed.table.write_changes(table_of([("UPDATE_BEFORE", row(2))]).select(["id", "_change_type"]))
    keyed.check([])


@pytest.mark.parametrize("kind", ["DELETE", "UPDATE_BEFORE"])
def test_deletes_need_the_columns_that_decide_about_the_partition(kind: str, tmp_path: Path) -> None:
    # Without the column the delete would go to the partition of NULL, and the row would stay.
    keyed = Keyed(tmp_path, spec=BY_REGION)
    keyed.write(("INSERT", row(1, "a", "eu")), ("INSERT", row(2, "b", "eu")))
    with pytest.raises(ConfigError, match="the rows have no column 'region', which decides where a row lies"):
        keyed.table.write_changes(table_of([(kind, row(1))]).select(["id", "_change_type"]))
    keyed.table.write_changes(table_of([(kind, row(1, region="eu"))]).select(["id", "region", "_change_type"]))
    keyed.check([row(2, "b", "eu")])


def test_a_partition_by_a_field_of_a_struct_needs_the_struct(tmp_path: Path) -> None:
    home = NestedField(2, "home", StructType(NestedField(3, "city", StringType())))
    schema = Schema(NestedField(1, "id", LongType(), required=True), home, NestedField(4, "v", StringType()))
    spec = PartitionSpec(PartitionField(3, 1000, IdentityTransform(), "city"))
    catalog = SqlCatalog("lake", uri=f"sqlite:///{tmp_path}/catalog.db", warehouse=f"file://{tmp_path}/wh")
    catalog.create_namespace("db")
    table = KeyedTable.create(catalog, "db.t", schema, ["id"], spec)
    rows = [{"id": 1, "home": {"city": "Rome"}, "v": "a", "_change_type": "INSERT"}]
    types = pa.schema([("id", pa.int64()), ("home", pa.struct([("city", pa.string())])), ("v", pa.string()), ("_change_type", pa.string())])
    table.write_changes(pa.Table.from_pylist(rows, types))
    gone = pa.Table.from_pylist([{**rows[0], "_change_type": "DELETE"}], types)
    with pytest.raises(ConfigError, match="the rows have no column 'home', which decides where a row lies"):
        table.write_changes(gone.drop_columns(["home", "v"]))
    table.write_changes(gone.drop_columns(["v"]))
    assert table.scan().to_arrow().num_rows == 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"buckets": 5}, "the number of hash buckets is 5 but must be a power of two"),
        ({"buckets": 0}, "the number of hash buckets is 0"),
        ({"key": ()}, "must name one column or more"),
        ({"key": "id"}, r"primary_key is 'id' but must be a list of columns, for example \['id'\]"),
        ({"key": ("id", "id")}, "must name one column or more, each once"),
        ({"key": ("x",)}, "primary_key names 'x', but the columns are id"),
        ({"key": ("tags",)}, "which has no hash"),
        ({"spec": BY_REGION, "upsert": True}, "which is not in the primary key"),
        ({"spec": PartitionSpec(PartitionField(4, 1000, YearTransform(), "y"))}, "is by year"),
        ({"spec": PartitionSpec(PartitionField(5, 1000, IdentityTransform(), "s"))}, "has values of type double"),
        ({"spec": PartitionSpec(PartitionField(6, 1000, IdentityTransform(), "o"))}, "has values of type boolean"),
        ({"properties": {"table-format": "ICEBERG"}}, "property 'table-format' of a keyed table is set by the program"),
        ({"properties": {"compaction.delta-rewrite.enabled": "true"}}, "is set by the program; leave it out, and use the arguments"),
    ],
)
def test_a_table_that_could_be_read_in_two_ways_is_not_created(options: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=message):
        Keyed(tmp_path, **options)
    assert SqlCatalog("lake", uri=f"sqlite:///{tmp_path}/catalog.db", warehouse="x").list_tables("db") == []


def test_a_name_that_is_taken_leaves_the_table_that_has_it(keyed: Keyed) -> None:
    with pytest.raises(ConfigError, match=r"table db\.t_change_ exists already"):
        KeyedTable.create(keyed.catalog, "db.t", SCHEMA, ["id"])
    keyed.catalog.create_table("db.plain", SCHEMA)
    with pytest.raises(ConfigError, match=r"table db\.plain exists already"):
        KeyedTable.create(keyed.catalog, "db.plain", SCHEMA, ["id"])
    assert ("db", "plain_change_") not in keyed.catalog.list_tables("db")
    keyed.check([])


@pytest.mark.parametrize("name", ["", "t", "db.", (), ("db", "")])
def test_a_name_without_a_namespace_or_a_name_is_refused(name: Any, keyed: Keyed) -> None:
    for ask in (lambda: KeyedTable.open(keyed.catalog, name), lambda: KeyedTable.create(keyed.catalog, name, SCHEMA, ["id"])):
        with pytest.raises(ConfigError, match="but must have a namespace and a name, for example"):
            ask()


def test_a_missing_namespace_is_named(keyed: Keyed) -> None:
    with pytest.raises(NotFoundError, match=r"^namespace shop\.eu does not exist in catalog 'lake': create it first"):
        KeyedTable.create(keyed.catalog, "shop.eu.t", SCHEMA, ["id"])


def test_a_table_with_delta_rewrite_tells_amoro_to_leave_it_alone(tmp_path: Path) -> None:
    keyed = Keyed(tmp_path, delta_rewrite=True)
    for store in ("db.t", "db.t_change_"):
        properties = keyed.catalog.load_table(store).properties
        assert (properties["compaction.delta-rewrite.enabled"], properties["self-optimizing.enabled"]) == ("true", "false")
    found = resolve_properties(keyed.catalog.load_table("db.t").properties, {})
    assert (found.enabled, found.delta_rewrite) == (True, True)


# ---- against a dictionary


_KEYS = st.tuples(st.integers(0, 4), st.sampled_from([None, "eu", "us"]))
_EVENTS = st.lists(
    st.tuples(st.sampled_from(["put", "put", "delete", "move", "delete absent"]), _KEYS, _KEYS, st.sampled_from("abc")),
    min_size=1,
    max_size=8,
)


@given(
    batches=st.lists(_EVENTS, min_size=1, max_size=5),
    spec=st.sampled_from([PartitionSpec(), BY_REGION, PartitionSpec(PartitionField(1, 1000, BucketTransform(2), "b"))]),
    buckets=st.sampled_from([1, 2, 4, 8]),
    upsert=st.booleans(),
)
@settings(max_examples=max(8, settings.default.max_examples // 3), deadline=None)
def test_after_every_write_the_scan_equals_a_dictionary(
    batches: list[Any], spec: PartitionSpec, buckets: int, upsert: bool, tmp_path_factory: pytest.TempPathFactory
) -> None:
    keyed = Keyed(tmp_path_factory.mktemp("model"), key=("id", "region"), spec=spec, buckets=buckets, upsert=upsert)
    rows: dict[Any, Row] = {}
    for events in batches:
        changes: list[tuple[str, Row]] = []
        for event, key, other, v in events:
            now = row(key[0], v, key[1])
            if event == "put" and key in rows:
                # A stream without old rows says only what the new row is. Only an upsert table takes it.
                changes += [] if upsert else [("UPDATE_BEFORE", rows[key])]
                changes.append(("INSERT" if upsert and v == "a" else "UPDATE_AFTER", now))
                rows[key] = now
            elif event == "put":
                changes.append(("INSERT", now))
                rows[key] = now
            elif event == "delete absent" or (event == "delete" and key in rows):
                changes.append(("DELETE", now))
                rows.pop(key, None)
            elif event == "move" and key in rows and other not in rows:
                moved = row(other[0], v, other[1])
                changes += [("UPDATE_BEFORE", rows.pop(key)), ("UPDATE_AFTER", moved)]
                rows[other] = moved
        keyed.write(*changes)
        keyed.check(rows.values())
