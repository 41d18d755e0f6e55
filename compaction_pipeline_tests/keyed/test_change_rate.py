"""How many change files a day a keyed table may get."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest

from compaction_pipeline.core.tables.data_file import FileContent, LiveFile
from compaction_pipeline.core.tables.keyed.change_rate import ChangeRate, change_rate
from compaction_pipeline_tests.keyed.program import TABLE, Program
from compaction_pipeline_tests.keyed.written import BY_REGION, row

_NOW = datetime(2026, 11, 23, 12, tzinfo=timezone.utc)


def change(name: str, snapshot: int) -> LiveFile:
    return LiveFile(f"{name}.parquet", FileContent.DATA, 0, (), 1, 1, 1, added_snapshot_id=snapshot)


@pytest.mark.parametrize(
    ("minutes_ago", "commits"),
    [
        ([], 0),
        ([5], 1),
        # The commits of a whole day are counted, older ones are not.
        ([*range(0, 24 * 60, 30), 25 * 60, 26 * 60], 48),
        # A stream that began two hours ago, with a commit each minute.
        (range(1, 121), 1440),
        # A first load a minute ago.
        ([1] * 50, 50),
        ([120, 120], 24),
    ],
)
def test_commits_of_a_day(minutes_ago: list[int], commits: int) -> None:
    found = change_rate([_NOW - timedelta(minutes=each) for each in minutes_ago], (), {()}, 4, _NOW)
    assert found == ChangeRate(commits, 1, 1, 4)
    assert found.most_files == commits * 4 * 2


def test_writers_are_the_most_files_of_one_kind_of_a_commit_in_a_node() -> None:
    files = [change(f"2-{kind}-0-0000{writer}-0-a-00001", 1) for kind in ("I", "ED") for writer in (0, 1)]
    files += [change("2-I-0-00002-0-a-00001", 1), change("3-I-0-00003-0-a-00001", 1), change("2-I-0-00001-0-b-00001", 2)]
    assert change_rate([_NOW], files, {(), (None,)}, 2, _NOW) == ChangeRate(1, 3, 2, 2)  # type: ignore[arg-type]


def test_a_table_says_what_it_may_get(tmp_path: Path) -> None:
    program = Program(tmp_path, BY_REGION, ("id", "region"))
    for number in range(3):
        program.keyed.write(*(("INSERT", row(each + 10 * number, "v", region)) for each in range(8) for region in ("eu", "us")))
    program.now = datetime.now(timezone.utc)
    rate = program.services.read_change_rate.read(TABLE)
    assert isinstance(rate, ChangeRate)
    assert (rate.writers, rate.partitions, rate.nodes) == (1, 2, 4)
    assert rate.commits >= 3
    assert rate.text.startswith(f"at most {rate.commits * 16:,} change files a day: {rate.commits:,} commits × 1 writers × 2 partitions")
    program.keyed.catalog.drop_table("db.t_change_")
    assert "its change files of a day cannot be counted" in str(program.services.read_change_rate.read(TABLE))
