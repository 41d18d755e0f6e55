"""The check of key uniqueness: it reads what readers see, and names a key that has two live rows."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import pytest

from compaction_pipeline.core.insight.checks.every_check import CHECKS, CheckResult
from compaction_pipeline.core.insight.checks.judgement import Judgement
from compaction_pipeline.core.tables.data_file import LiveFile
from compaction_pipeline.core.tables.keyed import key_reading
from compaction_pipeline.core.tables.keyed.key_reading import chosen, related, stored_rows
from compaction_pipeline.core.tables.keyed.merge_on_read import NodeRead
from compaction_pipeline.core.tables.keyed.tree import DataTreeNode
from compaction_pipeline.iceberg.keyed.read_keys import IcebergKeyReader
from compaction_pipeline.iceberg.keyed.stores import KeyedStores, load_stores
from compaction_pipeline.iceberg.scan import layout_of
from compaction_pipeline.merging.keyed.repeated_keys import KeyCounter, NodeKeys
from compaction_pipeline.merging.reading.file_access import FileAccess
from compaction_pipeline_tests.keyed.program import FULL, TABLE, Program
from compaction_pipeline_tests.keyed.written import BY_REGION, Keyed, row

CHECK = next(check for check in CHECKS if check.name == "unique_keys")


def set_upsert(keyed: Keyed, value: str) -> None:
    """Change the property by force, which no writer may do."""
    keyed.stores()[1].transaction().set_properties({"compaction.upsert": value, "write.upsert.enabled": value}).commit_transaction()


def insert_twice(keyed: Keyed, number: int) -> None:
    """Put two rows of a key into one transaction, without the delete that an upsert table's writer puts between them."""
    set_upsert(keyed, "false")
    keyed.write(("INSERT", row(number, "a")), ("INSERT", row(number, "b")))
    set_upsert(keyed, "true")


@pytest.fixture
def program(tmp_path: Path) -> Program:
    program = Program(tmp_path)
    set_upsert(program.keyed, "true")
    return program


def judged(program: Program) -> Judgement:
    program.services.one_table.refresh(TABLE)
    results = program.services.check_tables.check([TABLE]).results
    return next(result.judgement for result in results if result.check.name == CHECK.name)


def test_an_upsert_table_passes_and_the_text_says_what_was_read(program: Program) -> None:
    program.keyed.write(*(("INSERT", row(number, "a")) for number in range(20)))
    program.keyed.write(*(("INSERT", row(number, "b")) for number in range(10)))
    found = judged(program)
    assert found.passed
    assert found.judged == 4
    assert "20 live rows read in 4 of 4 nodes (unpartitioned node 3-" in found.text
    assert "base alone" not in found.text
    assert dict(found.figures) == {"judged_row_count": 20}


def test_base_alone_is_judged_where_all_changes_are_merged(program: Program) -> None:
    program.keyed.write(*(("INSERT", row(number, "a")) for number in range(20)))
    program.keyed.write(*(("INSERT", row(number, "b")) for number in range(10)))
    assert program.services.compact_tables.compact(TABLE, FULL).committed
    found = judged(program)
    assert found.passed
    assert "20 live rows" in found.text
    assert "; 4 of them on base alone" in found.text


def test_a_key_with_two_live_rows_fails_and_is_named_before_and_after_the_merge(program: Program) -> None:
    program.keyed.write(*(("INSERT", row(number, "a")) for number in range(20)))
    insert_twice(program.keyed, 100)
    for _ in range(2):
        found = judged(program)
        [failure] = found.failures
        assert not found.passed
        assert (failure.table, str(failure.node)[:16]) == (TABLE, "unpartitioned no")
        assert "key id=100 has 2 live rows on merge-on-read, but an upsert table has one" in failure.reason
        assert "22 live rows read in 4 of 4 nodes" in failure.reason
        assert program.services.compact_tables.compact(TABLE, FULL).committed or "on base alone" in failure.reason
    assert "4 of them on base alone" in failure.reason


def test_tables_without_upsert_are_not_judged(program: Program) -> None:
    insert_twice(program.keyed, 1)
    set_upsert(program.keyed, "false")
    assert judged(program).text == "no upsert table to judge"


def test_whoever_judges_again_and_again_reads_small_tables_and_says_that_large_ones_are_judged_on_demand(
    program: Program,
) -> None:
    insert_twice(program.keyed, 1)
    program.services.one_table.refresh(TABLE)

    def often_judged() -> CheckResult:
        results = program.services.judge_compaction.judge(only_changed=True)
        assert {result.check.name for result in results} == {check.name for check in CHECKS}
        assert [result.check.name for result in results if result.on_demand] in ([], [CHECK.name])
        return next(result for result in results if result.check == CHECK)

    assert (often_judged().failed, often_judged().on_demand) == (True, False)
    program.keyed.write(*(("INSERT", row(number)) for number in range(100, 100 + key_reading.CHEAP_ROWS)))
    program.services.one_table.refresh(TABLE)
    large = often_judged()
    assert (large.on_demand, large.judgement.judged) == (True, 0)
    assert large.judgement.text.startswith(
        "on demand: nothing was judged now, because the upsert tables together have more than 100,000 rows"
    )
    set_upsert(program.keyed, "false")
    program.services.one_table.refresh(TABLE)
    assert (often_judged().passed, often_judged().on_demand) == (True, False)


def test_a_table_that_cannot_be_read_fails(program: Program) -> None:
    insert_twice(program.keyed, 1)
    program.services.one_table.refresh(TABLE)
    program.keyed.catalog.drop_table("db.t_change_")
    [result] = program.services.judge_compaction.judge([CHECK])
    assert "its keys could not be read" in result.judgement.text


def test_nodes_that_are_too_large_are_left_out_and_the_text_says_so(program: Program) -> None:
    insert_twice(program.keyed, 1)
    program.services.one_table.refresh(TABLE)
    program.services.judge_compaction._keys = IcebergKeyReader(program.services._catalogs, most_rows=1)
    [result] = program.services.judge_compaction.judge([CHECK])
    assert not result.evaluated
    assert result.judgement.text == (
        "not evaluated: lake.db.t could not be judged: no node was small enough to be read; 0 live rows read in 0 of 1 node"
    )


def count_all(stores: KeyedStores, memory_bytes: int) -> list[NodeKeys]:
    base, change = layout_of(stores.base.metadata), layout_of(stores.change.metadata)
    with closing(FileAccess(dict(stores.base.io.properties), base.location, 2**20, change.location)) as files:
        counter = KeyCounter(files, base, change, stores.key, memory_bytes)
        return [counter.count(group) for group in related(nodes_of(stores))]


def nodes_of(stores: KeyedStores) -> Sequence[NodeRead]:
    def every(file: LiveFile) -> bool:
        return True

    return stores.nodes(every)


@pytest.mark.parametrize("memory_bytes", [1024, 2**28])
def test_many_parts_on_disk_find_the_same_as_one(tmp_path: Path, memory_bytes: int) -> None:
    keyed = Keyed(tmp_path, key=("id", "region"), spec=BY_REGION, buckets=2)
    keyed.write(*(("INSERT", row(number, "a", region)) for number in range(300) for region in ("eu", "us")))
    keyed.write(("INSERT", row(7, "b", "us")))
    found = count_all(load_stores(keyed.catalog, ("db", "t")), memory_bytes)
    assert sum(each.rows for each in found) == 601
    assert [each.repeated for each in found if each.repeated is not None] == [("id=7, region='us'", 2)]


def test_a_key_with_a_row_in_a_node_and_one_in_a_node_above_is_found(tmp_path: Path) -> None:
    keyed = Keyed(tmp_path, buckets=4)
    keyed.write(*(("INSERT", row(number, "a")) for number in range(20)))
    keyed.stores()[1].transaction().set_properties({"change.file-index.hash-bucket": "1"}).commit_transaction()
    keyed.write(("INSERT", row(3, "b")))
    stores = load_stores(keyed.catalog, ("db", "t"))
    nodes = stores.nodes(lambda file: True)
    assert {read.node.tree for read in nodes} == {DataTreeNode(), *(DataTreeNode(3, index) for index in range(4))}
    assert [each.repeated for each in count_all(stores, 2**28)] == [("id=3", 2)]


def test_each_day_begins_with_another_group_and_stays_within_the_rows(tmp_path: Path) -> None:
    keyed = Keyed(tmp_path, buckets=4)
    keyed.write(*(("INSERT", row(number, "a")) for number in range(20)))
    groups = related(load_stores(keyed.catalog, ("db", "t")).nodes(lambda file: True))
    most = max(map(stored_rows, groups))
    days = [chosen(groups, day, most) for day in range(4)]
    assert {day[0] for day in days} == set(groups)
    assert all(sum(map(stored_rows, day)) <= most for day in days)
