"""Stray files of killed writers, and runs that delete orphan files, for tests."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pyarrow as pa
import pytest

from compaction_pipeline.core.upkeep.orphan_looks import Cleaned
from compaction_pipeline_tests.iceberg.lake import LakeTable
from compaction_pipeline_tests.services.house import House
from compaction_pipeline_tests.services.upkeep.expiring import DAY

UUID = "ce13f4d2-9c1c-4d51-9f0a-2d3f6c1f7a{:02x}"


class Killed(BaseException):
    """The process ends here."""


@pytest.fixture
def table(house: House) -> LakeTable:
    """A table whose live files have most of the bytes."""
    return roomy(house, "t")


def roomy(house: House, name: str, files: int = 3, **properties: str) -> LakeTable:
    """A table of some small files and one large one."""
    made = house.fragmented(name, files, **properties)
    append(made, *range(100, 4000))
    return made


def append(table: LakeTable, *ids: int) -> None:
    """Append rows as PyIceberg does, which gives files the names of writers."""
    table.table.refresh()
    table.table.append(pa.table({"id": list(ids), "name": [f"n{one}" for one in ids]}, schema=table.table.schema().as_arrow()))


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
    return sorted(file.path for deletion in cleaned.deletions for file in deletion.deleted)


def in_the_next_run(house: House, step: str, act: Callable[[], object], times: int = 1) -> None:
    """Let somebody act the next time, or the time after so many, that a run has come to this step."""
    looker: Any = house.services._files_looker
    left = [times]

    def told(reached: str) -> None:
        if reached == step:
            left[0] -= 1
            if not left[0]:
                looker._on_step = lambda reached: None
                act()

    looker._on_step = told
