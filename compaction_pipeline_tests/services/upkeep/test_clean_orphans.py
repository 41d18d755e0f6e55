"""Orphan files go after two looks a day apart and a third one, and everything that anybody may need stays."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from compaction_pipeline.core.upkeep.orphan_looks import Cleaned
from compaction_pipeline_tests.iceberg.lake import LakeTable
from compaction_pipeline_tests.services.house import House
from compaction_pipeline_tests.services.upkeep.expiring import DAY

UUID = "ce13f4d2-9c1c-4d51-9f0a-2d3f6c1f7a{:02x}"


@pytest.fixture
def table(house: House) -> LakeTable:
    made = house.fragmented("t", 3)
    made.ids(*range(100, 3000))
    return made


def stray(table: LakeTable, number: int = 0, name: str | None = None, content: bytes = b"12345") -> str:
    """Leave a file of a writer that was killed, and return its path as the table writes paths."""
    path = f"{table.table.metadata.location}/data/{name or f'00000-0-{UUID.format(number)}-00001.parquet'}"
    local(path).parent.mkdir(parents=True, exist_ok=True)
    local(path).write_bytes(content)
    return path


def local(path: str) -> Path:
    return Path(urlsplit(path).path)


def delete(house: House, table: LakeTable, **options: Any) -> Cleaned:
    return house.services.clean_orphans.delete(table.identifier, **options)


def looked_at(house: House, table: LakeTable, days: float = 4) -> None:
    """Let the files become old, and store a first look. A day later the second may follow."""
    house.pass_time(days * DAY)
    house.services.clean_orphans.look(table.identifier)
    house.pass_time(DAY)


def deleted(cleaned: Cleaned) -> list[str]:
    return [file.path for deletion in cleaned.deletions for file in deletion.deleted]


def test_what_two_looks_a_day_apart_found_is_deleted_and_recorded(house: House, table: LakeTable) -> None:
    paths = [stray(table, 1), stray(table, 2)]
    rows = table.rows()
    looked_at(house, table)
    late = stray(table, 3)
    cleaned = delete(house, table)
    assert sorted(deleted(cleaned)) == paths
    assert [local(path).exists() for path in (*paths, late)] == [False, False, True]
    assert table.rows() == rows
    [deletion] = house.services.clean_orphans.deletions(table.identifier, 10)
    assert (sorted(file.path for file in deletion.deleted), deletion.summary) == (paths, "2 orphan files deleted (10 B)")


def test_one_look_or_two_within_a_day_delete_nothing(house: House, table: LakeTable) -> None:
    path = stray(table)
    house.pass_time(4 * DAY)
    assert deleted(delete(house, table)) == []
    house.pass_time(DAY - 60)
    assert deleted(delete(house, table)) == []
    house.pass_time(60)
    assert deleted(delete(house, table)) == [path]


def test_looks_older_than_a_week_confirm_nothing(house: House, table: LakeTable) -> None:
    path = stray(table)
    looked_at(house, table)
    house.pass_time(7 * DAY)
    assert deleted(delete(house, table)) == []
    assert local(path).exists()


def test_looks_of_a_clock_that_ran_ahead_confirm_nothing(house: House, table: LakeTable) -> None:
    stray(table)
    house.pass_time(40 * DAY)
    house.services.clean_orphans.look(table.identifier)
    house.pass_time(-36 * DAY)
    assert deleted(delete(house, table)) == []


@pytest.mark.parametrize("when", ["before the second look", "before the third look"])
def test_a_file_that_was_written_anew_stays(house: House, table: LakeTable, when: str) -> None:
    path = stray(table)
    looked_at(house, table)

    def write_anew() -> None:
        local(path).write_bytes(b"54321")
        os.utime(local(path), (0, 0))

    if when == "before the second look":
        write_anew()
    else:
        look = house.services._files_looker.look
        steps = iter([lambda: None, write_anew])
        house.services.on_step = lambda step: None
        house.services._files_looker.look = lambda *given: [next(steps)(), look(*given)][1]  # type: ignore[func-returns-value,method-assign]
    assert deleted(delete(house, table)) == []
    assert local(path).exists()
