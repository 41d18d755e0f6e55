"""Change files that are merged with each other hold the same log of changes, without what later changes have outdone."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import IcebergType, LongType, NestedField, StringType

from compaction_pipeline.core.queue.task import CompactionTask
from compaction_pipeline.core.tables.data_file import FileContent, LiveFile
from compaction_pipeline.core.tables.keyed.file_names import parse_name
from compaction_pipeline.core.work.ends import EndReason
from compaction_pipeline.core.work.result import MergeResult
from compaction_pipeline.iceberg.keyed.change_plan import read_keyed_files
from compaction_pipeline.iceberg.keyed.stores import load_stores
from compaction_pipeline_tests.keyed.base_merges import Choices, compact
from compaction_pipeline_tests.keyed.change_logs import ChangeLog, row
from compaction_pipeline_tests.keyed.delta_merges import MIB, opened_by, rewrite, run, task_of
from compaction_pipeline_tests.keyed.keys import KEYS, by, node_of
from compaction_pipeline_tests.merging.broken_writer import write_otherwise
from compaction_pipeline_tests.reference_reader import Row, bag_difference, canonical

SMALL, MIDDLE, LARGE = MIB // 64, 2 * MIB, 256 * MIB
"""The memory with which the deletes of `wide` are divided on disk, are read twice, and are read once."""


@pytest.fixture
def log(tmp_path: Path) -> ChangeLog:
    return ChangeLog(tmp_path)


def written(result: MergeResult) -> list[tuple[str, int, int, Any, str | None]]:
    """(Kind, transaction, offset, id, v) of each row in the new files, sorted."""
    rows = []
    for output in result.outputs:
        named = parse_name(output.path)
        assert named is not None
        for each in pq.read_table(output.path.removeprefix("file://")).to_pylist():
            rows.append((named.type.value, each["_transaction_id"], each["_file_offset"], each["id"], each["v"]))
    return sorted(rows)


def counts(result: MergeResult) -> tuple[int, int, int]:
    """(Rows read, left out, written)."""
    assert (result.rows_deleted_by_position, result.rows_kept) == (0, 0)
    return result.rows_read, result.rows_deleted_by_equality, result.rows_written


# ---- which rows stay


def test_each_row_keeps_its_own_transaction_and_offset(log: ChangeLog) -> None:
    log.commit(log.changes(1, "I", 0, [(row(1, v="a"), 1), (row(2, v="b"), 5)]))
    log.commit(log.changes(1, "I", 0, [(row(3, v="c"), 1)]), log.changes(1, "ED", 0, [(row(9), 2)]))
    log.commit(log.changes(1, "ED", 0, [(row(8), 7)]))
    result = rewrite(log, log.change_files())
    assert written(result) == [("ED", 2, 2, 9, None), ("ED", 3, 7, 8, None), ("I", 1, 1, 1, "a"), ("I", 1, 5, 2, "b"), ("I", 2, 1, 3, "c")]
    assert counts(result) == (5, 0, 5)
    log.commit(log.changes(1, "ED", 0, [(row(3), 0)]))
    assert bag_difference(log.scanned(), [row(1, v="a"), row(2, v="b")]) == ""


def test_merged_files_are_merged_again(log: ChangeLog) -> None:
    for number in (1, 2):
        log.commit(log.changes(1, "I", 0, [(row(number), 1)]))
    rewrite(log, log.change_files())
    log.commit(log.changes(1, "ED", 0, [(row(1), 1)]), log.changes(1, "I", 0, [(row(3), 2)]))
    result = rewrite(log, log.change_files())
    assert written(result) == [("ED", 4, 1, 1, None), ("I", 2, 1, 2, None), ("I", 4, 2, 3, None)]
    assert bag_difference(log.scanned(), [row(2), row(3)]) == ""
    assert [file.data_sequence_number for file in log.change_files()] == [4, 4]


def test_an_insert_goes_when_a_later_delete_of_its_key_is_merged_with_it(log: ChangeLog) -> None:
    log.commit(log.changes(1, "I", 0, [(row(1), 1), (row(2), 2)]), log.changes(1, "ED", 0, [(row(2), 1), (row(1), 2)]))
    assert written(rewrite(log, log.change_files())) == [("ED", 1, 1, 2, None), ("ED", 1, 2, 1, None), ("I", 1, 2, 2, None)]
    assert bag_difference(log.scanned(), [row(2)]) == ""


def test_a_row_after_an_update_has_the_offset_of_its_delete_and_stays(log: ChangeLog) -> None:
    log.commit(log.changes(1, "I", 0, [(row(1, v="old"), 1)]))
    log.commit(log.changes(1, "ED", 0, [(row(1, v="old"), 4)]), log.changes(1, "I", 0, [(row(1, v="new"), 4)]))
    assert written(rewrite(log, log.change_files())) == [("ED", 2, 4, 1, "old"), ("I", 2, 4, 1, "new")]


def test_of_the_deletes_of_a_key_the_last_one_stays_and_reaches_what_is_not_merged(log: ChangeLog) -> None:
    log.commit_base(log.base_rows(1, 0, [row(1), row(2)]))
    log.commit(log.changes(1, "I", 0, [(row(1, v="large"), 1)]))
    (large,) = log.change_files()
    log.commit(log.changes(1, "ED", 0, [(row(1), 5)]), log.changes(1, "I", 0, [(row(1, v="x"), 5)]))
    log.commit(log.changes(1, "ED", 0, [(row(1), 3)]))
    result = rewrite(log, [file for file in log.change_files() if file.path != large.path])
    # The insert that the delete has met is gone. The delete still owes something to the base store and to the file that stays.
    assert written(result) == [("ED", 3, 3, 1, None)]
    assert bag_difference(log.scanned(), [row(2)]) == ""


def test_without_upsert_two_inserts_of_a_key_stay(log: ChangeLog) -> None:
    log.commit(log.changes(1, "I", 0, [(row(1, v="a"), 1)]))
    log.commit(log.changes(1, "I", 0, [(row(1, v="b"), 1)]))
    result = rewrite(log, log.change_files(), write__upsert__enabled="true")
    assert [each[4] for each in written(result)] == ["a", "b"]


@pytest.mark.parametrize("memory", [SMALL, LARGE])
def test_in_an_upsert_table_only_the_newest_insert_of_a_key_stays(log: ChangeLog, memory: int) -> None:
    log.commit(log.changes(1, "I", 0, [(row(1, v="a"), 9), (row(2, v="x"), 9), *((row(n), n) for n in range(10, 400))]))
    (first,) = log.change_files()
    log.commit(log.changes(1, "ED", 0, [(row(1), 1)]), log.changes(1, "I", 0, [(row(1, v="b"), 2), (row(1, v="c"), 2)]))
    second = next(file for file in log.change_files() if "-I-" in file.path and file.path != first.path)
    # The delete file is not merged, as if it were large.
    before = log.scanned()
    result = rewrite(log, [first, second], memory, compaction__upsert="true")
    assert [each for each in written(result) if each[3] < 10] == [("I", 1, 9, 2, "x"), ("I", 2, 2, 1, "b"), ("I", 2, 2, 1, "c")]
    assert counts(result) == (394, 1, 393)
    assert bag_difference(log.scanned(), before) == ""


def test_a_delete_of_an_earlier_update_is_not_taken_for_the_one_before_an_insert(log: ChangeLog) -> None:
    log.commit(log.changes(1, "ED", 0, [(row(1), 1)]), log.changes(1, "I", 0, [(row(1, v="a"), 1), (row(1, v="b"), 3)]))
    taken = log.change_files()
    log.commit(log.changes(1, "ED", 1, [(row(1), 2)]))
    assert written(rewrite(log, taken, compaction__upsert="true")) == [("ED", 1, 1, 1, None), ("I", 1, 3, 1, "b")]


def test_in_an_upsert_table_the_deletes_before_inserts_do_the_work(log: ChangeLog) -> None:
    for number in range(3):
        log.commit(
            log.changes(1, "ED", 0, [(row(1), 1), (row(2), 3)]),
            log.changes(1, "I", 0, [(row(1, v=str(number)), 2), (row(2, v=str(number)), 3)]),
        )
    inserts = [file.path for file in log.change_files() if "-I-" in file.path]
    opened = opened_by(log, log.change_files(), compaction__upsert="true")
    result = rewrite(log, log.change_files(), compaction__upsert="true")
    assert written(result) == [("ED", 3, 1, 1, None), ("ED", 3, 3, 2, None), ("I", 3, 2, 1, "2"), ("I", 3, 3, 2, "2")]
    assert [path for path in opened if path in inserts] == inserts, "inserts that are compared with each other are read twice"


def test_when_every_insert_goes_only_a_delete_file_is_written(log: ChangeLog) -> None:
    log.commit(log.changes(1, "I", 0, [(row(1), 1)]), log.changes(1, "ED", 0, [(row(1), 2)]))
    log.commit(log.changes(1, "I", 0, [(row(1), 1)]), log.changes(1, "ED", 0, [(row(1), 2)]))
    result = rewrite(log, log.change_files())
    assert written(result) == [("ED", 2, 2, 1, None)]
    assert log.scanned() == []


_EVENTS = st.lists(st.tuples(st.sampled_from(["put", "put", "update", "delete"]), st.integers(0, 4)), min_size=1, max_size=7)
_TURNS = st.tuples(_EVENTS, st.booleans(), st.lists(st.booleans(), min_size=1, max_size=5), st.sampled_from([SMALL, LARGE]))


@given(turns=st.lists(_TURNS, min_size=1, max_size=6))
@settings(max_examples=max(10, settings.default.max_examples // 2), deadline=None)
def test_whatever_is_merged_of_an_upsert_table_one_row_of_a_key_stays(turns: list[Any], tmp_path_factory: pytest.TempPathFactory) -> None:
    log = ChangeLog(tmp_path_factory.mktemp("upsert"))
    rows: dict[int, Row] = {}
    for turn, (events, apart, chosen, memory) in enumerate(turns):
        logged: dict[str, list[Any]] = {"ED": [], "I": []}
        offset = 0
        for place, (event, key) in enumerate(events):
            offset += 1
            logged["ED"].append((row(key), offset))
            rows.pop(key, None)
            if event != "delete":
                # The row after an update has the offset of its delete, and any other row the next one.
                offset += event == "put"
                rows[key] = row(key, v=f"{turn}.{place}")
                logged["I"].append((rows[key], offset))
        # A writer may also divide its rows into two files.
        parts = [(kind, part) for kind, each in logged.items() for part in ([each[::2], each[1::2]] if apart else [each]) if part]
        log.commit(*(log.changes(1, kind, 0, part) for kind, part in parts))
        files = sorted(log.change_files(), key=lambda file: file.path)
        taken = [file for number, file in enumerate(files) if chosen[number % len(chosen)]]
        if taken:
            rewrite(log, taken, memory, compaction__upsert="true")
        assert bag_difference(log.scanned(), list(rows.values())) == ""
    rewrite(log, log.change_files(), compaction__upsert="true")
    (merged,) = [file for file in log.change_files() if "-I-" in file.path] or [None]
    assert (merged.record_count if merged is not None else 0) == len(rows)
    assert bag_difference(log.scanned(), list(rows.values())) == ""


# ---- by memory


def wide(log: ChangeLog) -> None:
    """Rows of many bytes that compress well, some of them deleted, in three commits."""
    text = "x" * 8_000
    for number in range(3):
        log.commit(
            log.changes(1, "I", 0, [(row(key, v=f"{number}{text}"), key) for key in range(number * 40, number * 40 + 80)]),
            log.changes(1, "ED", 0, [(row(key, v=text), 1 if key % 2 else 500) for key in range(0, 200, 2 + number)]),
        )


def test_the_same_rows_stay_whatever_fits_in_memory(tmp_path: Path) -> None:
    found = {}
    for memory in (LARGE, MIDDLE, SMALL):
        log = ChangeLog(tmp_path / str(memory))
        wide(log)
        before = log.scanned()
        first = next(file.path for file in log.change_files() if "-ED-" in file.path)
        times = opened_by(log, log.change_files(), memory).count(first)
        result = rewrite(log, log.change_files(), memory)
        found[memory] = written(result)
        assert bag_difference(log.scanned(), before) == ""
        # Once for both; for the try to hold its rows, for its keys and for its rows; for its keys, for its rows and for each part.
        assert times == {LARGE: 1, MIDDLE: 3}.get(memory, times)
        assert memory > SMALL or times > 4
        assert counts(result)[1] > 0
    assert found[SMALL] == found[MIDDLE] == found[LARGE]


# ---- every type of key


@pytest.mark.parametrize("memory", [SMALL, LARGE])
@pytest.mark.parametrize(("kind", "values"), KEYS, ids=[str(kind) for kind, _ in KEYS])
def test_every_type_of_key_is_compared_as_java_compares_it(kind: IcebergType, values: list[Any], memory: int, tmp_path: Path) -> None:
    schema = Schema(NestedField(1, "n", LongType(), required=True), NestedField(2, "k", kind), NestedField(3, "v", StringType()))
    log = ChangeLog(tmp_path, schema, key=("n", "k"))
    keys = [{"n": number, "k": value} for number in (1, 2) for value in [*values, None]]
    log.commit(log.changes(1, "I", 0, [({**key, "v": "new"}, place) for place, key in enumerate(keys)]))
    deleted = keys[::2]
    log.commit(log.changes(1, "ED", 0, [({**key, "v": None}, place) for place, key in enumerate(deleted)]))
    left = {canonical(key): {**key, "v": "new"} for key in keys}
    gone = {canonical(key) for key in deleted}
    result = rewrite(log, log.change_files(), memory)
    assert counts(result) == (len(keys) + len(deleted), len([key for key in keys if canonical(key) in gone]), result.rows_written)
    assert bag_difference(log.scanned(), [each for key, each in left.items() if key not in gone]) == ""
    # Amoro's readers skip the merged files once their changes are in the base store.
    compact(log, 2, Choices(mask=3))
    log.check([each for key, each in left.items() if key not in gone])


# ---- what the new files are like


def test_new_files_lie_where_the_old_ones_do_and_are_marked(tmp_path: Path) -> None:
    log = ChangeLog(tmp_path, spec=by("region", IdentityTransform()))
    for _ in range(2):
        log.commit(log.changes(node_of(1, 4), "I", 0, [(row(1, "eu"), 1)]), log.changes(node_of(1, 4), "ED", 0, [(row(1, "eu"), 0)]))
    result = rewrite(log, log.change_files(), write__metadata__metrics__default="none")
    for output in result.outputs:
        named = parse_name(output.path)
        assert named is not None
        assert (named.node.id, named.transaction_id, output.partition[0].value, output.content) == (
            node_of(1, 4),
            0,
            "eu",
            FileContent.DATA,
        )
        assert output.path.startswith(f"{log.change.location()}/data/region=eu/")
        assert "ab12cd34-plan7-00003" in output.path
        # Whatever the table says about metrics, the bounds of the transactions mark the file, so that no plan has to open it.
        assert {2147482646} == output.lower_bounds.keys() == output.upper_bounds.keys()
    spans = read_keyed_files(load_stores(log.catalog, ("db", "t"))).row_spans
    assert {(spans[output.path].lowest, spans[output.path].highest) for output in result.outputs} <= {(1, 2), (2, 2)}
    assert len(spans) == 2


def test_a_column_that_came_later_is_null_in_older_rows(log: ChangeLog) -> None:
    log.commit(log.changes(1, "I", 0, [(row(1), 1)]))
    for store in (log.base, log.change):
        with store.refresh().update_schema() as update:
            update.add_column("late", StringType())
    log.base.refresh(), log.change.refresh()
    log.commit(log.changes(1, "I", 0, [({**row(2), "late": "yes"}, 1)]))
    before = log.scanned()
    rewrite(log, log.change_files())
    assert bag_difference(log.scanned(), before) == ""
    assert {each["id"]: each["late"] for each in before} == {1: None, 2: "yes"}


# ---- what is refused, and what fails


def refused(log: ChangeLog, files: list[LiveFile], **work: Any) -> tuple[EndReason, str]:
    task: CompactionTask = task_of(log, files)
    result = run(log, replace(task, work=replace(task.work, **work)))
    assert result.outputs == ()
    return result.end_reason, result.error or ""


def test_a_file_whose_two_numbers_differ_is_not_merged(log: ChangeLog) -> None:
    begun = log.begin()
    log.commit(log.changes(1, "I", begun, [(row(1), 1)]))
    end, error = refused(log, log.change_files())
    assert (end, "is of transaction 1, but its data sequence number is 2" in error) == (EndReason.FAILED, True)


def test_a_file_of_another_node_is_not_merged(log: ChangeLog) -> None:
    log.commit(log.changes(2, "I", 0, [(row(1), 1)]), log.changes(3, "I", 0, [(row(2), 1)]))
    assert "but the task merges files of" in refused(log, log.change_files())[1]


def test_a_base_file_among_the_changes_is_not_merged(log: ChangeLog) -> None:
    log.commit(log.changes(1, "B", 0, [(row(1), 1)]), log.changes(1, "I", 0, [(row(2), 1)]))
    assert refused(log, log.change_files())[0] is EndReason.REFUSED


def test_a_file_that_is_named_twice_is_not_merged(log: ChangeLog) -> None:
    log.commit(log.changes(1, "I", 0, [(row(1), 1)]))
    assert "is there twice" in refused(log, log.change_files() * 2)[1]


def test_a_task_of_another_partition_spec_is_not_merged(log: ChangeLog) -> None:
    log.commit(log.changes(1, "I", 0, [(row(1), 1)]))
    assert "plan the node again" in refused(log, log.change_files(), output_spec_id=7)[1]


@pytest.mark.parametrize("without", ["offset", "transaction"])
def test_rows_without_a_place_in_the_log_are_refused(log: ChangeLog, without: str) -> None:
    values: tuple[Any, ...] = (None,) if without == "offset" else (1, None)
    log.commit(log.changes(1, "I", 0, [(row(1), *values)]))
    end, error = refused(log, log.change_files())
    assert (end, f"has rows without '_{'file_offset' if without == 'offset' else 'transaction_id'}'" in error) == (EndReason.REFUSED, True)


def test_a_transaction_above_the_files_own_number_is_refused(log: ChangeLog) -> None:
    log.commit(log.changes(1, "I", 0, [(row(1), 1, 5)]))
    end, error = refused(log, log.change_files())
    assert (end, "transactions from 5 to 5" in error) == (EndReason.REFUSED, True)


@pytest.mark.parametrize("how", ["lost", "changed"])
def test_a_row_that_is_lost_or_changed_on_its_way_shows_and_no_file_stays(
    log: ChangeLog, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def change(batch: Any) -> list[Any]:
        return [batch.slice(1) if how == "lost" else batch.set_column(5, batch.schema.field(5), pc.add(batch.column(5), 1))]

    log.commit(log.changes(1, "I", 0, [(row(1), 1), (row(2), 2)]))
    log.commit(log.changes(1, "I", 0, [(row(3), 1), (row(4), 2)]))
    write_otherwise(monkeypatch, change)
    before = set(Path(log.change.location().removeprefix("file://")).rglob("*.parquet"))
    result = run(log, task_of(log, log.change_files()))
    assert result.end_reason is EndReason.DIGEST_MISMATCH
    assert set(Path(log.change.location().removeprefix("file://")).rglob("*.parquet")) == before
