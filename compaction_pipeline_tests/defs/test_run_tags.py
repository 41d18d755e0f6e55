"""A run says on which tables it worked, so that the runs of one table can be listed, and which nodes it committed."""

from __future__ import annotations

from urllib.parse import parse_qs, urlsplit

import dagster as dg
import pytest

from compaction_pipeline.core.tables.table import TableIdentifier
from compaction_pipeline.definitions import defs
from compaction_pipeline.defs.run_tags import MOST_TABLES, RunTags, runs_page
from compaction_pipeline_tests.defs.executed import events, failure, launch, run
from compaction_pipeline_tests.defs.lake import Lake, key
from compaction_pipeline_tests.plain_names import COMPACTED_FILES, COMPACTION_RECORDS


def filtered(instance: dg.DagsterInstance, table: TableIdentifier) -> list[str]:
    """The runs that the link of a table shows."""
    (token,) = parse_qs(urlsplit(runs_page(table)).query)["q[]"]
    name, value = token.removeprefix("tag:").split("=")
    return [found.run_id for found in instance.get_runs(dg.RunsFilter(tags={name: value}))]


def test_a_run_has_the_number_of_its_tables_and_is_found_by_each(lake: Lake, instance: dg.DagsterInstance) -> None:
    lake.create("shop.other")
    lake.append_small_files(1, 4, table="shop.other")
    done = run(instance, "compact_job", tables=["lake.shop.orders", "lake.shop.other"])
    assert done.success
    (made,) = instance.get_runs()
    assert made.tags["compaction/tables"] == "2"
    assert filtered(instance, Lake.identifier) == filtered(instance, TableIdentifier("lake", ("shop",), "other")) == [made.run_id]
    assert filtered(instance, TableIdentifier("lake", ("shop",), "third")) == []
    (output,) = [event for event in done.all_events if event.event_type is dg.DagsterEventType.STEP_OUTPUT]
    metadata = output.step_output_data.metadata
    assert metadata["nodes_count"].value == 3
    assert {str(row.data["node"]) for row in metadata["nodes"].records} == {key(1), key(2), key(1, "other")}
    record = events(instance, COMPACTION_RECORDS)[-1]
    assert f"[all runs of this table]({runs_page(TableIdentifier.parse(str(record.metadata['table'].value)))})" in str(
        record.metadata["links"].value
    )


def test_a_failed_launch_is_found_too_and_shows_what_it_committed(lake: Lake, instance: dg.DagsterInstance) -> None:
    lake.corrupt_a_file(2)
    done = launch(instance, COMPACTED_FILES, key(1), key(2))
    assert "1 failed, and the rest is committed" in failure(done)
    assert filtered(instance, Lake.identifier) == [done.run_id]
    (failed,) = [event for event in done.all_events if event.is_step_failure]
    data = failed.step_failure_data.user_failure_data
    assert data is not None
    assert data.metadata["nodes_count"].value == 1


def test_a_run_without_work_counts_no_table(lake: Lake, instance: dg.DagsterInstance) -> None:
    assert run(instance, "compact_job").success
    (made,) = instance.get_runs()
    assert made.tags["compaction/tables"] == "0"


@pytest.mark.parametrize("tables", [MOST_TABLES, MOST_TABLES + 3])
def test_only_the_first_tables_get_a_tag_and_all_are_counted(tables: int, instance: dg.DagsterInstance) -> None:
    made = instance.create_run_for_job(defs.resolve_job_def("compact_job"))
    tags = RunTags(instance, made.run_id)
    names = [TableIdentifier("lake", ("shop",), f"t{number}") for number in range(tables)]
    for table in [*names, *names]:
        tags.works_on(table)
    tags.close()
    found = instance.get_runs()[0].tags
    assert found["compaction/tables"] == str(tables)
    assert sum(name.startswith("compaction.table/") for name in found) == MOST_TABLES
