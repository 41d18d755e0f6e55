"""Commits to the change store are no rollbacks of the base store, whose history does not name them."""

from __future__ import annotations

from pathlib import Path

from compaction_pipeline_tests.keyed.program import MAJOR, TABLE, Program
from compaction_pipeline_tests.keyed.written import row


def test_rewrites_of_changes_are_not_told_as_rolled_back(tmp_path: Path) -> None:
    program = Program(tmp_path, delta_rewrite=True)
    for turn in range(2):
        program.upsert(*(row(each, f"x{turn}") for each in range(100)))
        program.services.compact_tables.compact(TABLE, MAJOR)
        program.pass_time(60)
    for number in range(13):
        program.upsert(row(1, f"a{number}"), row(2, f"b{number}"), row(10 + number))
    program.services.compact_tables.compact(TABLE)
    program.pass_time(60)
    program.upsert(row(500))
    program.refresh()
    assert [one.rolled_back_at for one in program.services.stores.records.records(TABLE)] == [None] * 3
