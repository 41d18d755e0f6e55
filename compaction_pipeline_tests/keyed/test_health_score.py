"""The health score of a keyed table: its change files count as data files, and its changes with deletes as equality deletes."""

from __future__ import annotations

from pathlib import Path

from compaction_pipeline.core.fragmentation.health_score import HealthScore
from compaction_pipeline_tests.keyed.program import FULL, TABLE, Program
from compaction_pipeline_tests.keyed.written import row


def score(program: Program) -> HealthScore:
    program.refresh()
    return program.services.read_tables.table(TABLE).overview.score


def test_changes_with_deletes_cost_points_until_they_are_merged_into_the_base(tmp_path: Path) -> None:
    program = Program(tmp_path)
    with program.keyed.stores()[0].transaction() as transaction:
        transaction.set_properties({"self-optimizing.target-size": "4000"})
    for _ in range(4):
        program.upsert(*(row(number, "a") for number in range(16)))
    figures = program.figures()
    assert (figures.rows, figures.equality_delete_rows, figures.deleted_positions) == (64, 48, 0)
    before = score(program)
    assert before.parts is not None
    assert before.parts.equality_deletes < 40
    assert before.parts.position_deletes == 20
    assert program.services.compact_tables.compact(TABLE, FULL).committed
    after = score(program)
    assert after.parts is not None
    assert (after.parts.equality_deletes, after.parts.position_deletes) == (40, 20)
    assert after.parts.total > before.parts.total
    program.check()
