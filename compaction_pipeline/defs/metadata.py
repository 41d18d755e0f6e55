"""How figures become metadata of Dagster: numbers in MB (10⁶ bytes) and tables of at most 20 rows."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence

import dagster as dg

from compaction_pipeline.core.insight.overview import SHOWN

Cell = str | int | float | bool | None

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


def table_of(rows: Sequence[Mapping[str, Cell]], columns: Sequence[tuple[str, str, str]]) -> dg.MetadataValue:
    """A table of at most 20 rows. `columns` are (name, type, description). A row may lack a value."""
    return dg.MetadataValue.table(
        records=[dg.TableRecord({name: row.get(name) for name, _, _ in columns}) for row in rows[:SHOWN]],
        schema=dg.TableSchema(columns=[dg.TableColumn(name, type, description=text) for name, type, text in columns]),
    )
