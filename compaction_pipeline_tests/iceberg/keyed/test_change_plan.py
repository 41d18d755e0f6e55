"""Plans of change merges, made from the metadata of real tables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path

import pytest
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.snapshots import Operation
from pyiceberg.transforms import IdentityTransform, YearTransform
from pyiceberg.types import IntegerType, LongType, NestedField, TimestampType

from compaction_pipeline.core.errors import TableRefused
from compaction_pipeline.core.planning.keyed.to_base import PartitionPlan, ToBaseOptions, plan_to_base
from compaction_pipeline.core.tables.data_file import OutputFile
from compaction_pipeline.core.tables.keyed.keyed_files import KeyedFiles, TransactionSpan
from compaction_pipeline.core.tables.properties import TableProperties
from compaction_pipeline.core.work.kinds import CompactionType
from compaction_pipeline.demo.row_delta import row_delta
from compaction_pipeline.iceberg.catalogs import SqlCatalog
from compaction_pipeline.iceberg.keyed.change_plan import read_keyed_files
from compaction_pipeline.iceberg.keyed.stores import load_stores
from compaction_pipeline.iceberg.keyed.transactions import read_open_transactions
from compaction_pipeline_tests.keyed.change_logs import ChangeLog, row
from compaction_pipeline_tests.scenarios.examples.unpacking import CATALOG_NAME, KEYED_EXAMPLES, catalog_properties, unpack


@pytest.fixture
def log(tmp_path: Path) -> ChangeLog:
    return ChangeLog(tmp_path)


def read(log: ChangeLog) -> KeyedFiles:
    return read_keyed_files(load_stores(log.catalog, ("db", "t")))


def plans(log: ChangeLog) -> Sequence[PartitionPlan]:
    stores, files = load_stores(log.catalog, ("db", "t")), read(log)
    now = datetime.now(timezone.utc)
    opened = read_open_transactions(stores.change.metadata, stores.base.metadata, files.changes, files.base, now)
    return plan_to_base(files, ToBaseOptions(CompactionType.MAJOR, TableProperties(), opened))


def spanned(file: OutputFile, lowest: int, highest: int) -> OutputFile:
    """The file with bounds of the transactions of its rows."""
    bounds = [{2147482646: number.to_bytes(8, "little", signed=True).hex()} for number in (lowest, highest)]
    return replace(file, lower_bounds=bounds[0], upper_bounds=bounds[1])


@pytest.mark.parametrize("name", KEYED_EXAMPLES)
def test_a_table_of_amoro_gets_a_plan_of_all_its_changes(name: str, tmp_path: Path) -> None:
    catalog = SqlCatalog(CATALOG_NAME, **catalog_properties(unpack(name, tmp_path)))
    files = read_keyed_files(load_stores(catalog, ("db", "t")))
    found = plan_to_base(files, ToBaseOptions(CompactionType.MAJOR, TableProperties()))
    spans = [work.changes for plan in found for work in plan.tasks if work.changes is not None]
    assert spans
    kept = {file.path for file in files.changes if file.data_sequence_number > (files.sequences.of(file.partition) or -1)}
    assert {file.path for span in spans for file in (*span.inserts, *span.deletes)} == kept
    assert {span.up_to for span in spans} <= {file.data_sequence_number for file in files.changes}
    assert all(span.change_snapshot_id == files.change_snapshot_id for span in spans)


def test_a_plan_waits_for_a_begun_transaction(log: ChangeLog) -> None:
    log.commit(log.changes(1, "I", 0, [(row(1), 1)]))
    begun = log.begin()
    log.commit(log.changes(1, "I", 0, [(row(2), 1)]))
    (plan,) = plans(log)
    assert plan.tasks[0].changes is not None
    assert plan.tasks[0].changes.up_to == begun - 1
    log.commit(log.changes(1, "I", begun, [(row(3), 1)]))
    (plan,) = plans(log)
    assert plan.tasks[0].changes is not None
    assert (plan.tasks[0].changes.up_to, len(plan.tasks[0].changes.inserts)) == (4, 3)


def test_bounds_mark_a_file_with_rows_of_several_transactions(log: ChangeLog) -> None:
    plain = log.changes(1, "I", 0, [(row(1), 1)])
    several = spanned(log.changes(1, "I", 0, [(row(2), 1, 3), (row(3), 1, 300)]), 3, 300)
    log.commit(plain, several)
    assert read(log).row_spans == {several.path: TransactionSpan(3, 300)}


def test_a_rewritten_change_file_without_bounds_is_opened(log: ChangeLog) -> None:
    log.commit(log.changes(1, "I", 0, [(row(1), 1)]))
    rewritten = log.changes(1, "I", 0, [(row(2), 1, 1)])
    log.commit(rewritten, operation=Operation.OVERWRITE)
    assert read(log).row_spans == {rewritten.path: TransactionSpan(1, 1)}


def test_a_partition_by_year_is_refused(tmp_path: Path) -> None:
    schema = Schema(NestedField(1, "id", LongType(), required=True), NestedField(2, "ts", TimestampType()))
    log = ChangeLog(tmp_path, schema, spec=PartitionSpec(PartitionField(2, 1000, YearTransform(), "ts_year")))
    with pytest.raises(TableRefused, match=r"the base store of table lake\.db\.t of a keyed table is partitioned by year"):
        read(log)


def test_a_store_with_two_partition_specs_is_refused(log: ChangeLog) -> None:
    with log.change.update_spec() as update:
        update.add_field("region", IdentityTransform())
    with pytest.raises(TableRefused, match=r"the change store of table lake\.db\.t of a keyed table has the partition specs 0, 1"):
        read(log)


def test_a_key_that_was_promoted_is_refused(tmp_path: Path) -> None:
    log = ChangeLog(tmp_path, Schema(NestedField(1, "id", IntegerType(), required=True)))
    read(log)
    for store in (log.base, log.change):
        with store.update_schema() as update:
            update.update_column("id", LongType())
    with pytest.raises(TableRefused, match="column 'id' of the primary key has had the types int and long"):
        read(log)


def test_merged_changes_without_a_flag_are_refused(log: ChangeLog) -> None:
    log.commit_base(log.base_rows(1, 7, [row(1)]))
    with pytest.raises(TableRefused, match="has changes of transaction 7: which changes are already in the base store is unknown"):
        read(log)


def test_a_sequence_that_became_lower_is_refused_but_not_after_a_rollback(log: ChangeLog) -> None:
    while log.begin() < 7:
        pass
    log.commit_base(log.base_rows(1, 3, [row(1)]), sequences={"": 3})
    first = log.base.refresh().current_snapshot()
    log.commit_base(log.base_rows(1, 7, [row(2)]), sequences={"": 7})
    assert first is not None
    log.base.refresh().manage_snapshots().set_current_snapshot(first.snapshot_id).commit()
    log.commit_base(log.base_rows(1, 5, [row(3)]), sequences={"": 5})
    assert read(log).sequences.of(()) == 5
    log.commit_base(log.base_rows(1, 4, [row(4)]), sequences={"": 4})
    with pytest.raises(TableRefused, match=r"has the optimized sequence 4 for the partition '', but snapshot .* before it has 5"):
        read(log)


def test_a_commit_of_another_optimizer_after_our_own_is_refused(log: ChangeLog) -> None:
    row_delta(log.base, properties={"snapshot.producer": "OPTIMIZE"})
    row_delta(log.base, properties={"compaction-pipeline.record-id": "r-1"})
    read(log)
    row_delta(log.base, properties={"snapshot.producer": "OPTIMIZE"})
    with pytest.raises(TableRefused, match="was committed by another optimizer"):
        read(log)
