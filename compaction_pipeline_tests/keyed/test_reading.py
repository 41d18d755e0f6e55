"""Reads tables whose change logs are hard, by name, and random ones. The reader of Amoro's rules reads each of them too."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.snapshots import Operation
from pyiceberg.transforms import BucketTransform, DayTransform, IdentityTransform, MonthTransform
from pyiceberg.typedef import Record
from pyiceberg.types import IcebergType, LongType, NestedField, StringType, StructType

from compaction_pipeline.core.errors import ConfigError, MergeRefused, TableRefused
from compaction_pipeline.demo.row_delta import row_delta
from compaction_pipeline.iceberg.keyed.stores import load_stores
from compaction_pipeline.iceberg.scan import layout_of
from compaction_pipeline.keyed import KeyedTable
from compaction_pipeline.merging.keyed.merge_on_read import KeyedReader
from compaction_pipeline.merging.reading.read import TableShape
from compaction_pipeline_tests.keyed.change_logs import SCHEMA, ChangeLog, partition_of, positions_file, row
from compaction_pipeline_tests.keyed.keys import KEYS, by, node_of
from compaction_pipeline_tests.merging.counted_files import CountedFiles
from compaction_pipeline_tests.reference_reader import Row, bag_difference, canonical


@pytest.fixture
def log(tmp_path: Path) -> ChangeLog:
    return ChangeLog(tmp_path)


# ---- by name


def test_an_insert_before_its_delete_in_one_transaction_dies(log: ChangeLog) -> None:
    log.commit(log.changes(1, "I", 0, [(row(1), 1), (row(2), 3)]), log.changes(1, "ED", 0, [(row(1), 2)]))
    log.check([row(2)])


def test_an_insert_with_the_offset_of_its_delete_stays(log: ChangeLog) -> None:
    log.commit(log.changes(1, "I", 0, [(row(1, v="old"), 1)]))
    log.commit(log.changes(1, "ED", 0, [(row(1, v="old"), 1)]), log.changes(1, "I", 0, [(row(1, v="new"), 1)]))
    log.check([row(1, v="new")])


def test_only_the_end_of_a_chain_of_updates_stays(log: ChangeLog) -> None:
    log.commit(log.changes(1, "I", 0, [(row(1, v="0"), 1)]))
    for number in range(1, 5):
        log.commit(
            log.changes(1, "ED", 0, [(row(1, v=str(number - 1)), 7)]),
            log.changes(1, "I", 0, [(row(1, v=str(number)), 7)]),
        )
    log.check([row(1, v="4")])


def test_deletes_of_keys_that_never_were_delete_nothing(log: ChangeLog) -> None:
    log.commit_base(log.base_rows(1, 0, [row(1)]))
    log.commit(log.changes(1, "ED", 0, [(row(2), 1), (row(3), 2)]))
    log.check([row(1)])


def test_a_node_with_deletes_only_has_no_rows(log: ChangeLog) -> None:
    log.commit(log.changes(node_of(1, 4), "ED", 0, [(row(1), 1)]))
    log.check([])


def test_a_table_whose_rows_are_all_deleted_is_empty(log: ChangeLog) -> None:
    log.commit_base(log.base_rows(1, 1, [row(number) for number in range(9)]))
    log.begin()
    log.commit(log.changes(1, "ED", 0, [(row(number), number) for number in range(9)]))
    log.check([])


def test_two_inserts_of_a_key_without_a_delete_both_stay(log: ChangeLog) -> None:
    log.commit(log.changes(1, "I", 0, [(row(1, v="a"), 1), (row(1, v="b"), 2)]))
    log.check([row(1, v="a"), row(1, v="b")])


def test_a_delete_in_the_transaction_of_a_base_file_leaves_its_rows(log: ChangeLog) -> None:
    transaction = log.begin()
    log.commit_base(log.base_rows(1, transaction, [row(1), row(2)]))
    log.commit(log.changes(1, "ED", transaction, [(row(1), 99)]))
    log.commit(log.changes(1, "ED", 0, [(row(2), 1)]))
    log.check([row(1)])


def test_the_number_of_buckets_may_grow(log: ChangeLog) -> None:
    keys = range(40)
    log.commit_base(*(log.base_rows(2 + index, 0, [row(key) for key in keys if node_of(key, 2) == 2 + index]) for index in range(2)))
    for buckets, gone in ((2, range(8)), (4, range(8, 16)), (8, range(16, 24))):
        files = []
        for node in range(buckets, 2 * buckets):
            deletes = [(row(key), key) for key in gone if node_of(key, buckets) == node]
            inserts = [(row(key + 100 * buckets, v=str(buckets)), key) for key in gone if node_of(key + 100 * buckets, buckets) == node]
            files += [log.changes(node, kind, 0, rows) for kind, rows in (("ED", deletes), ("I", inserts)) if rows]
        log.commit(*files)
    # Deletes by the first number of buckets reach rows that were written with the last one, and the other way around.
    log.commit(log.changes(node_of(816, 2), "ED", 0, [(row(816), 1)]), log.changes(node_of(200, 8), "ED", 0, [(row(200), 2)]))
    added = [
        row(key + 100 * buckets, v=str(buckets)) for buckets, gone in ((2, range(8)), (4, range(8, 16)), (8, range(16, 24))) for key in gone
    ]
    log.check([row(key) for key in range(24, 40)] + [each for each in added if each["id"] not in (816, 200)])


def test_a_file_with_another_name_holds_inserts_in_the_change_store_and_old_rows_in_the_base_store(log: ChangeLog) -> None:
    log.commit_base(log.base_rows(1, 0, [row(1), row(2)], name="00000-0-hive"))
    log.commit(log.changes(1, "I", 0, [(row(3), 1), (row(4), 2)], name="00001-0-spark"))
    log.commit(log.changes(node_of(1, 8), "ED", 0, [(row(1), 1)]), log.changes(node_of(3, 8), "ED", 0, [(row(3), 2)]))
    log.check([row(2), row(4)])


def test_a_transaction_that_arrives_late_has_its_own_place_in_the_log(log: ChangeLog) -> None:
    late = log.begin()
    log.commit(log.changes(1, "I", log.begin(), [(row(1, v="new"), 1), (row(2), 2)]))
    log.commit(log.changes(1, "ED", late, [(row(1), 5)]), log.changes(1, "I", late, [(row(3), 6)]))
    log.check([row(1, v="new"), row(2), row(3)])


def test_merged_changes_do_not_count_again(log: ChangeLog) -> None:
    merged = log.commit(log.changes(1, "I", 0, [(row(1), 1), (row(2), 2)]))
    log.commit_base(log.base_rows(1, merged, [row(1), row(2)]), sequences={"": merged})
    log.check([row(1), row(2)])
    log.commit(log.changes(1, "ED", 0, [(row(2), 1)]))
    log.check([row(1)])
    # A later snapshot of the base store that says nothing leaves the numbers in force.
    log.commit_base(log.base_rows(1, 0, [row(9)]))
    log.check([row(1), row(9)])


def test_positions_delete_rows_of_the_base_store(log: ChangeLog) -> None:
    first = log.base_rows(1, 1, [row(1), row(2), row(3)])
    log.commit_base(first)
    merged = log.commit(log.changes(1, "ED", 0, [(row(2), 1)]))
    log.commit_base(deleted={first.path: [1]}, sequences={"": merged})
    log.check([row(1), row(3)])


def test_the_property_of_old_versions_counts_when_no_snapshot_has_the_numbers(log: ChangeLog) -> None:
    merged = log.commit(log.changes(1, "I", 0, [(row(1), 1)]))
    log.commit_base(log.base_rows(1, merged, [row(1)]))
    with log.base.transaction() as transaction:
        transaction.set_properties({"table.partition-properties": f'{{"": {{"max-txId": "{merged}"}}}}'})
    log.check([row(1)])


# ---- files with rows of several transactions


def test_a_file_with_several_transactions_is_read_row_by_row(log: ChangeLog) -> None:
    for number in range(4):
        log.commit(log.changes(1, "I", 0, [(row(10 + number), 1)]))
    # Sequence 5: rows of the transactions 1 to 5. Of those, 1 to 3 are in the base store.
    rows = [(row(number, v=f"tx {number}"), 1, number) for number in range(1, 6)]
    deletes = [(row(13), 0, 3), (row(12), 2, 5)]
    log.commit(log.changes(1, "I", 0, rows), log.changes(1, "ED", 0, deletes))
    log.commit_base(log.base_rows(1, 3, [row(1), row(2), row(3), row(10), row(11), row(12)]), sequences={"": 3})
    expected = [row(1), row(2), row(3), row(10), row(11), row(13), row(4, v="tx 4"), row(5, v="tx 5")]
    assert bag_difference(log.scanned(), expected) == ""


def test_a_row_beyond_the_transactions_of_its_file_is_refused(log: ChangeLog) -> None:
    log.commit(log.changes(1, "I", 0, [(row(1), 1, 7)]), log.changes(1, "ED", 0, [(row(1), 1, 1)]))
    with pytest.raises(MergeRefused, match=r"transactions from 7 to 7, but .* in 0\.\.1"):
        log.scanned()


# ---- refused


def test_a_change_store_that_was_compacted_as_a_plain_table_is_refused(log: ChangeLog) -> None:
    log.commit(log.changes(1, "I", 0, [(row(1), 1)]), log.changes(1, "ED", 0, [(row(1), 2)]))
    log.commit(log.changes(1, "I", 0, [(row(1), 1), (row(1), 2)], name="00000-0-rewritten"), operation=Operation.REPLACE)
    with pytest.raises(TableRefused, match="compacted the store as a plain table: deletes became inserts in it"):
        log.scanned()


def test_delete_files_of_iceberg_in_the_change_store_are_refused(log: ChangeLog) -> None:
    first = log.changes(1, "I", 0, [(row(1), 1)])
    log.commit(first)
    row_delta(log.change, position_deletes=[positions_file(log.change, [(first.path, 0)], "1-PD-0-00000-0-1-00001")])
    with pytest.raises(TableRefused, match="is a delete file of Iceberg, but the change store holds deletes as rows"):
        log.scanned()


@pytest.mark.parametrize("kind", ["B", "PD", "L"])
def test_a_change_file_of_another_type_is_refused(log: ChangeLog, kind: str) -> None:
    log.commit(log.changes(1, kind, 0, [(row(1), 1)]))
    with pytest.raises(TableRefused, match=f"is called a file of type {kind}, but data files of this store hold inserts"):
        log.scanned()


def test_a_base_file_of_deletes_is_refused(log: ChangeLog) -> None:
    log.commit_base(log.base_rows(1, 0, [row(1)], name="1-ED-3-00000-0-1-00001"))
    with pytest.raises(TableRefused, match="is called a file of type ED, but data files of this store hold base rows"):
        log.scanned()


def test_a_change_without_an_offset_is_refused(log: ChangeLog) -> None:
    file = log.changes(1, "I", 0, [(row(1),)], name="00000-0-foreign")
    log.commit(file)
    with pytest.raises(MergeRefused, match="has rows without '_file_offset', so it is unknown which change came first") as caught:
        log.scanned()
    assert file.path in str(caught.value)


def test_a_filter_on_a_field_of_a_struct_does_not_look_at_a_column_of_the_same_name(tmp_path: Path) -> None:
    home = NestedField(3, "home", StructType(NestedField(4, "city", StringType())))
    log = ChangeLog(tmp_path, Schema(NestedField(1, "id", LongType(), required=True), NestedField(2, "city", StringType()), home))
    rows = [{"id": 1, "city": "a", "home": {"city": "b"}}, {"id": 2, "city": "b", "home": {"city": "a"}}, {"id": 3, "city": "a"}]
    log.commit(log.changes(1, "I", 0, [({"home": None, **each}, place) for place, each in enumerate(rows)]))
    for selected in (None, ["id"]):
        found = KeyedTable.open(log.catalog, "db.t").scan("home.city = 'a'", selected).to_arrow()
        assert found["id"].to_pylist() == [2]


@pytest.mark.parametrize(
    ("row_filter", "said"),
    [
        ("nope = 1", r"'nope = 1' does not fit table .*nope.*; its columns are id \(long\), "),
        ("id = 'x'", "does not fit table .*Could not convert x into a long"),
        (5, "^row_filter 5 does not fit table "),
        ("id == = 1", r"^row_filter 'id == = 1' of table \S+ cannot be understood; write comparisons such as id = 1"),
        ("", "^row_filter '' of table .* cannot be understood"),
    ],
)
def test_a_filter_that_does_not_fit_is_refused_in_words(row_filter: Any, said: str, log: ChangeLog) -> None:
    with pytest.raises(ConfigError, match=said):
        KeyedTable.open(log.catalog, "db.t").scan(row_filter)


def test_columns_are_selected_by_a_list(log: ChangeLog) -> None:
    table = KeyedTable.open(log.catalog, "db.t")
    with pytest.raises(ConfigError, match=r"selected_fields is the text 'id' but must be a list of columns, for example \['id'\]"):
        table.scan(selected_fields="id")
    with pytest.raises(ConfigError, match="has no column 'nope': its columns are id, "):
        table.scan(selected_fields=["id", "nope"])


def test_stores_whose_specs_differ_under_one_number_are_refused(log: ChangeLog) -> None:
    for store, column in ((log.base, "v"), (log.change, "region")):
        with store.update_spec() as update:
            update.add_identity(column)
    log.commit_base(log.base_rows(1, 0, [row(1, "eu")]))
    log.commit(log.changes(1, "ED", 0, [(row(1, "eu"), 1)]))
    with pytest.raises(TableRefused, match="partition spec 1 of its base store is not that of its change store"):
        log.scanned()


def test_null_and_the_text_null_are_refused_when_one_number_stands_for_both(tmp_path: Path) -> None:
    log = ChangeLog(tmp_path, spec=by("region", IdentityTransform()), key=("id", "region"))
    log.commit(log.changes(1, "I", 0, [(row(1, None), 1)]), log.changes(1, "I", 0, [(row(1, "null"), 1)]))
    assert bag_difference(log.scanned(), [row(1, None), row(1, "null")]) == ""
    log.commit_base(log.base_rows(1, 1, [row(1, None)]), sequences={"region=null": 1})
    with pytest.raises(TableRefused, match="'region=null' is the path of 2 partitions"):
        log.scanned()


# ---- key types


@pytest.mark.parametrize(("kind", "values"), KEYS, ids=[str(kind) for kind, _ in KEYS])
def test_every_type_of_key_is_compared_as_java_compares_it(kind: IcebergType, values: list[Any], tmp_path: Path) -> None:
    schema = Schema(NestedField(1, "n", LongType(), required=True), NestedField(2, "k", kind), NestedField(3, "v", StringType()))
    keys = [{"n": number, "k": value} for number in (1, 2) for value in [*values, None]]
    for gone in range(2):
        log = ChangeLog(tmp_path / str(gone), schema, key=("n", "k"))
        in_base, in_changes = keys[: len(values)], keys[len(values) :]
        log.commit_base(log.base_rows(1, 0, [{**key, "v": "base"} for key in in_base]))
        log.commit(log.changes(1, "I", 0, [({**key, "v": "new"}, place) for place, key in enumerate(in_changes)]))
        deleted = keys[gone::2]
        log.commit(log.changes(1, "ED", 0, [({**key, "v": None}, place) for place, key in enumerate(deleted)]))
        left = {canonical(key): {**key, "v": "base" if key in in_base else "new"} for key in [*in_base, *in_changes]}
        for key in deleted:
            del left[canonical(key)]
        log.check(list(left.values()))


# ---- random logs


SPECS = [
    PartitionSpec(),
    by("region", IdentityTransform()),
    by("id", BucketTransform(3)),
    by("ts", DayTransform()),
    by("ts", MonthTransform()),
]
_rows = st.builds(
    lambda number, region, moment, v: {"id": number, "region": region, "ts": moment, "v": v},
    st.integers(-2, 3), st.sampled_from([None, "eu", "l'été", "a~b/*"]),
    st.sampled_from([None, datetime(2026, 1, 15, 10), datetime(2026, 2, 1), datetime(1969, 12, 31, 23)]), st.sampled_from("ab"),
)  # fmt: skip
_steps = st.one_of(
    st.tuples(
        st.just("commit"), st.sampled_from([1, 2, 4, 8]), st.sampled_from(["flink", "spark", "late", "foreign"]),
        st.lists(st.tuples(st.sampled_from(["I", "I", "ED"]), _rows), min_size=1, max_size=8), st.integers(0, 2),
    ),
    st.tuples(st.just("base"), st.sampled_from([1, 2, 8]), st.integers(0, 6), st.lists(_rows, max_size=4), st.booleans()),
)  # fmt: skip


@given(spec=st.sampled_from(SPECS), steps=st.lists(_steps, min_size=1, max_size=5))
@settings(max_examples=max(10, settings.default.max_examples // 3), deadline=None)
def test_random_logs_are_read_as_amoros_rules_say(spec: PartitionSpec, steps: list[Any], tmp_path_factory: pytest.TempPathFactory) -> None:
    log = ChangeLog(tmp_path_factory.mktemp("log"), spec=spec, key=("id",))
    late = log.begin()
    paths: dict[tuple[Any, ...], str] = {}
    sequences: dict[str, int] = {}

    def place(each: Row) -> tuple[Any, ...]:
        where = partition_of(log.base, each)
        paths[where] = spec.partition_to_path(Record(*where), SCHEMA) if spec.fields else ""
        return where

    for step in steps:
        files: dict[Any, list[Any]] = {}
        if step[0] == "commit":
            _, buckets, writer, rows, first = step
            transaction = {"flink": 0, "spark": log.begin() if writer == "spark" else 0, "late": late, "foreign": 0}[writer]
            for number, (kind, each) in enumerate(rows):
                kind = "I" if writer == "foreign" else kind
                files.setdefault((place(each), kind, node_of(each["id"], buckets)), []).append((each, first + number // 2))
            log.commit(
                *(
                    log.changes(node, kind, transaction, each, name=f"0000-foreign-{log.number()}" if writer == "foreign" else None)
                    for (_, kind, node), each in files.items()
                )
            )
        else:
            _, buckets, transaction, rows, merged = step
            for each in rows:
                files.setdefault((place(each), node_of(each["id"], buckets)), []).append(each)
            if merged:
                sequences = dict.fromkeys(paths.values(), log.sequence)
            log.commit_base(
                *(log.base_rows(node, transaction, each) for (_, node), each in files.items()), sequences=sequences if merged else None
            )
    judged = log.judged()
    assert bag_difference(log.scanned(), judged) == ""
    assert bag_difference(read_with(log, 500)[0], judged) == "", "deletes that do not fit in memory"


# ---- many deletes


def test_deletes_that_do_not_fit_in_memory_delete_the_same_rows(log: ChangeLog) -> None:
    first = log.base_rows(1, 1, [row(number, v="base") for number in range(0, 3000, 2)])
    log.commit_base(first)
    log.commit_base(deleted={first.path: [1, 2]})
    log.commit(log.changes(1, "I", 0, [(row(number, v="new"), number) for number in range(1, 3000, 2)]))
    log.commit(log.changes(1, "ED", 0, [(row(number), number) for number in range(0, 3000, 3)]))
    log.commit(log.changes(3, "I", 0, [(row(number, v="again"), number) for number in range(0, 90, 9)]))
    held = log.scanned()
    found, opened = read_with(log, 20_000)
    assert bag_difference(found, held) == ""
    assert opened.count(first.path) > 5, "it is read once for each of more than four parts of the deletes, and once for its rows"
    log.check(held)


def read_with(log: ChangeLog, delete_bytes: int) -> tuple[list[Row], list[str]]:
    """The rows that the product reads with this memory for deletes, and the paths of the files that it opens, once each time."""
    stores = load_stores(log.catalog, ("db", "t"))
    base, change = (TableShape.of(layout_of(store.metadata)) for store in (stores.base, stores.change))
    files = CountedFiles(stores.base.io.properties, stores.base.location())
    reader = KeyedReader(files, base, change, stores.key, stores.base.schema().fields, 256 * 1024 * 1024, delete_bytes)
    rows = [row for node in stores.nodes(lambda file: True) for batch in reader.batches(node) for row in batch.to_pylist()]
    return rows, files.opened
