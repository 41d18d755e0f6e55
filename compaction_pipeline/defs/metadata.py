"""How figures become metadata of Dagster: numbers in MB (10⁶ bytes) and tables of at most 20 rows."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

import dagster as dg

from compaction_pipeline.core.insight.overview import SHOWN

T = TypeVar("T")
Cell = str | int | float | bool | None
Column = tuple[str, str, str, Callable[[T], Cell]]
"""The name, the type and the description of a column, and what it shows of an item."""

_BYTES_PER_MB = 1_000_000


def megabytes(size_bytes: int) -> float:
    """Bytes as MB with three decimals, so that a file of 1 kB still shows in a plot."""
    return round(size_bytes / _BYTES_PER_MB, 3)


def clipped(text: str, most: int = 240) -> str:
    """A reason that is short enough for a cell of a table. It ends behind a whole word, unless a word is very long."""
    if len(text) <= most:
        return text
    kept = text[: most - 1]
    whole = kept if text[most - 1].isspace() else kept.rpartition(" ")[0]
    return (whole if len(whole) >= most // 2 else kept).rstrip(" ,;:") + "…"


def unbroken(text: str, width: int = 40) -> str:
    """A reason that a cell shows on lines of about 40 characters. The UI would put each word on a line of its own."""
    lines = textwrap.wrap(text, width, break_long_words=False, break_on_hyphens=False)
    return " ".join(line.replace(" ", "\N{NO-BREAK SPACE}") for line in lines)


def table_of(items: Sequence[T], columns: Sequence[Column[T]]) -> dg.MetadataValue:
    """A table of at most 20 rows, one for each item."""
    return dg.MetadataValue.table(
        records=[dg.TableRecord({name: cell(item) for name, _, _, cell in columns}) for item in items[:SHOWN]],
        schema=dg.TableSchema(columns=[dg.TableColumn(name, type, description=text) for name, type, text, _ in columns]),
    )


def reasons_of(reasons: Mapping[str, str], first: tuple[str, str], why: str = "why") -> dg.MetadataValue:
    """A table of things with their reasons. `first` is the name of the first column, and its description."""
    return table_of(
        list(reasons.items()),
        ((first[0], "string", first[1], lambda row: row[0]), ("reason", "string", why, lambda row: row[1])),
    )
