"""Which functions of the package may ask for the kind of a task or of a table. Any other one gets its answer from a member of the value."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / ".ci"))

from shapes.code import Code
from shapes.kinds import Kinds

# One function of a column matches on the union of `core/work/work.py`, exhaustively.
_TASKS = {
    "core/commit/landed.py: went_in",
    "core/commit/validation.py: _reason",
    "core/insight/node_change.py: before_and_after",
    "core/work/expected.py: expected_of",
    "core/work/merged.py: by_kind",
    "core/work/reported_paths.py: places_of",
    "merging/kernel.py: _merged",
}
# Elsewhere `TableLayout.kind` and the value of `iceberg/stores.py` answer.
_TABLES = {
    "cli/commands/table.py: show",
    "core/tables/properties.py: resolve_properties",
    "core/tables/table.py: TableLayout.kind",
    "iceberg/dependencies/facts_reader.py: IcebergFactsReader.read",
    "iceberg/stores.py: stores_of",
    "iceberg/upkeep/old_rows.py: DropOldRows._way",
    "services/insight/read_files.py: ReadFiles.read",
    "services/planning/decide_plan.py: DecidePlan._decide_by",
    "services/tables/refresh_chunks.py: RefreshChunks._read_first",
    "services/tables/refresh_files.py: RefreshFiles._anew_if_recreated",
    "services/tables/refresh_files.py: RefreshFiles._refresh",
}


def _named(functions: list[str]) -> set[str]:
    return {name.removeprefix("compaction_pipeline/") for name in functions}


def test_only_these_functions_ask_for_the_kind_of_a_task_or_of_a_table_and_none_asks_through_another() -> None:
    """It is one test, because to find the questions takes long, and two workers would do it twice."""
    kinds = Kinds(Code.of(Path(__file__).parents[1]))
    assert _named(kinds.tasks) == _TASKS
    assert _named(kinds.tables) == _TABLES
    assert kinds.through == []
