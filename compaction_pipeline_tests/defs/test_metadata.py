"""The metadata that a person sees: figures with stable names, tables of at most 20 rows, plain values."""

from __future__ import annotations

from dataclasses import replace

import dagster as dg
import pytest

from compaction_pipeline.core.commit.record import CommitFigures
from compaction_pipeline.core.fragmentation.health import HealthStatus
from compaction_pipeline.core.fragmentation.health_score import UNREAD, HealthScore, ScoreParts
from compaction_pipeline.core.insight.overview import TableOverview
from compaction_pipeline.core.queue.task import TaskStatus
from compaction_pipeline.core.tables.figures import NodeMetrics
from compaction_pipeline.core.tables.table import TableIdentifier
from compaction_pipeline.defs.health_metadata import executing_tasks, node_metadata, worst_nodes
from compaction_pipeline.defs.markdown import is_shown_at_once
from compaction_pipeline.defs.metadata import clipped, megabytes, table_of
from compaction_pipeline.defs.table_figures import table_figures
from compaction_pipeline.defs.work_metadata import merged_metadata, record_metadata
from compaction_pipeline_tests.defs.values import NOW, ORDERS, overview, record, task
from compaction_pipeline_tests.plain_names import NAMES

_SUFFIXES = ("_count", "_mb", "_seconds", "_ratio", "_points")


def _numbers(metadata: dict[str, dg.MetadataValue]) -> set[str]:
    return {name for name, value in metadata.items() if isinstance(value, (dg.IntMetadataValue, dg.FloatMetadataValue))}


SCORE = HealthScore(ScoreParts.of(16, 40, 20), "12 data files cost 24 of 40 points", "a MINOR is due")


def test_no_score_is_shown_without_its_sentences() -> None:
    scored, unknown = replace(overview(), score=SCORE), overview(2)
    metadata = node_metadata(scored)
    assert metadata["health_score_points"].value == 76
    assert metadata["health_score"].value == (
        "76 of 100 (small files 16/40, equality deletes 40/40, position deletes 20/20): 12 data files cost 24 of 40 points; a MINOR is due"
    )
    rows = worst_nodes([scored, unknown]).value.records
    assert [row.data["score"] for row in rows] == [76, None]
    assert rows[0].data["score_says"] == metadata["health_score"].value
    assert "health_score_points" not in node_metadata(unknown)
    assert str(node_metadata(unknown)["health_score"].value).startswith("not known: ")


def test_the_scores_of_tables_are_plotted_by_name_beside_their_sentences() -> None:
    def table(name: str, score: HealthScore) -> TableOverview:
        return TableOverview(replace(ORDERS, name=name), 1, NodeMetrics(), HealthStatus.DUE, "why", is_read=True, score=score)

    figures = table_figures([table("orders", SCORE), table("users", UNREAD)], [])
    assert figures["lake.shop.orders health_score_points"].value == 76
    assert "lake.shop.users health_score_points" not in figures
    assert [row.data["score"] for row in figures["health_scores"].value.records] == [SCORE.text, UNREAD.text]


def test_every_plotted_figure_names_its_unit() -> None:
    found = record(conflicts={"t9": "conflict: the table moved"}, run_id="run-1")
    names = _numbers(node_metadata(replace(overview(), score=SCORE))) | _numbers(record_metadata(NAMES, found))
    assert len(names) > 25
    assert all(name.endswith(_SUFFIXES) for name in names)


def test_figures_of_a_record_keep_their_names_when_nothing_went_wrong() -> None:
    with_trouble = record_metadata(NAMES, record(conflicts={"t9": "moved"}, reason="1 conflict", run_id="run-1"))
    assert _numbers(record_metadata(NAMES, record())) == _numbers(with_trouble)


def test_a_reader_can_add_up_the_files_of_a_commit_and_of_its_table() -> None:
    figures = CommitFigures(
        files_before=2_013, files_after=1_950, input_files=64, output_files=1,
        delete_files_before=40, delete_files_after=38, delete_files_dropped=3, delete_files_added=1,
    )  # fmt: skip
    shown = str(record_metadata(NAMES, record(figures=figures))["counted"].value).replace("\\\n", " ")
    assert shown.startswith(
        "This commit: 64 data files → 1, 3 delete files dropped, 1 delete file added.\n\n"
        "The table: 2,013 data files → 1,950, 40 delete files → 38.\n\nThe table is counted just before"
    )


def test_the_pages_of_a_commit_say_which_counts_are_without_delete_files() -> None:
    merged = merged_metadata([task()], record())
    pages = {"node": merged, "record": record_metadata(NAMES, record())}
    said = {page: str(metadata["counted"].value).replace("\\\n", " ").replace("\\_", "_") for page, metadata in pages.items()}
    assert "merged_files_count, merged_mb and written_files_count are without delete files; written_mb is with them." in said["node"]
    assert "Figures named delete_files count delete files" in said["record"]
    assert "In a keyed table insert files count as data files and change files with deletes as delete files." in said["record"]
    assert all(is_shown_at_once(str(metadata["counted"].value)) for metadata in pages.values())
    # The words name figures that are there.
    assert {"merged_files_count", "merged_mb", "written_files_count", "written_mb"} <= merged.keys()


def test_a_table_shows_at_most_20_rows() -> None:
    shown = worst_nodes([overview(number) for number in range(1, 29)]).value
    assert len(shown.records) == 20


def test_the_reason_of_a_worst_node_fits_beside_its_names() -> None:
    long = replace(overview(), table=TableIdentifier("lake", ("department_of_sales",), "orders_of_all_customers"))
    (row,) = worst_nodes([replace(long, reason="12 small data files of 12, and no MINOR for 1 h 30 min")]).value.records
    lines = {name: str(row.data[name]).replace("\N{ZERO WIDTH SPACE}", " ").split(" ") for name in ("where", "reason")}
    # A character is 7.9 pixels wide, and the padding and lines of two cells take 40 of the 370 pixels of the column.
    assert sum(max(map(len, found)) for found in lines.values()) * 7.9 + 40 <= 370
    assert lines["where"] == ["lake.department_of", "…_of_all_customers", "day=2026-01-01"]
    assert (row.data["table"], row.data["node"]) == ("lake.department_of_sales.orders_of_all_customers", "day=2026-01-01")


@pytest.mark.parametrize(
    ("text", "most", "shown"),
    [
        ("a reason", 8, "a reason"),
        ("the table was planned just now", 20, "the table was…"),
        ("the table was planned just now", 22, "the table was planned…"),
        ("one/very/long/path/without/a/space", 12, "one/very/lo…"),
    ],
)
def test_a_clipped_reason_ends_behind_a_whole_word(text: str, most: int, shown: str) -> None:
    assert clipped(text, most) == shown


def test_a_missing_value_of_a_row_is_empty() -> None:
    shown = table_of([{"a": 1}], (("a", "int", "one", lambda row: row["a"]), ("b", "string", "two", lambda row: row.get("b"))))
    assert shown.value.records[0].data == {"a": 1, "b": None}


def test_an_executing_task_shows_who_holds_it_and_for_how_long() -> None:
    shown = executing_tasks([task(status=TaskStatus.EXECUTING)], NOW).value.records[0].data
    assert (shown["attempt"], shown["node"]) == ("1 (0 of 4 failed)", "day=2026-01-01")


def test_a_size_of_a_kilobyte_is_not_shown_as_zero() -> None:
    assert megabytes(1_000) == 0.001
