"""Output files that were tampered with after their merge."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from compaction_pipeline.formats.parquet.footer import MAGIC
from compaction_pipeline.formats.parquet.thrift import BINARY, I64, Struct, read_struct, write_struct
from compaction_pipeline_tests.api.liars import ID, NAME, Report

FooterLie = Callable[[Struct], object]


LONG_5 = (5).to_bytes(8, "little")


def groups(meta: Struct) -> list[Struct]:
    found: list[Struct] = meta[4][1][1]
    return found


def column(meta: Struct, number: int) -> Struct:
    """A `ColumnChunk` of the first row group. Columns are numbered from 1, as the first ids of the schema."""
    found: Struct = groups(meta)[0][1][1][1][number - 1]
    return found


def chunk(meta: Struct, number: int) -> Struct:
    """The `ColumnMetaData` of a column."""
    found: Struct = column(meta, number)[3][1]
    return found


def statistics(meta: Struct, number: int) -> Struct:
    found: Struct = chunk(meta, number)[12][1]
    return found


def in_statistics(number: int, field: int, value: Any) -> FooterLie:
    return lambda meta: statistics(meta, number).update({field: value})


def bounds(number: int, lower: bytes, upper: bytes) -> FooterLie:
    def lie(meta: Struct) -> None:
        statistics(meta, number).update({1: (BINARY, upper), 2: (BINARY, lower), 5: (BINARY, upper), 6: (BINARY, lower)})

    return lie


def nothing(meta: Struct) -> None:
    """No lie."""


ONLY_PAGES_SHOW: Mapping[str, FooterLie] = {
    "bounds that are narrower than the values": bounds(ID, LONG_5, (9).to_bytes(8, "little")),
    "NULLs that are not there": in_statistics(NAME, 3, (I64, 1)),
}
"""Believed until the rows are read again. `docs/security.md` says so."""


def local(path: str) -> Path:
    return Path(path.removeprefix("file://"))


def rewritten(report: Report, lie: Callable[[bytes], bytes]) -> Report:
    """Give the first file of the report another footer, and tell its new sizes."""
    [output] = report["outputs"]
    path = local(output["path"])
    data = path.read_bytes()
    length = int.from_bytes(data[-8:-4], "little")
    footer = lie(data[-8 - length : -8])
    path.write_bytes(data[: -8 - length] + footer + len(footer).to_bytes(4, "little") + MAGIC)
    output.update(footer_bytes=len(footer), file_size_bytes=path.stat().st_size)
    return report


def tampered(lie: FooterLie) -> Callable[[bytes], bytes]:
    def changed(footer: bytes) -> bytes:
        meta = read_struct(footer)[0]
        lie(meta)
        written = write_struct(meta)
        assert (written == footer) is (lie is nothing)
        return written

    return changed
