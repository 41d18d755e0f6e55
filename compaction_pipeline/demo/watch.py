"""What a person sees while the demo runs: each table as it is, and as it would be without compaction."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from rich.console import Console
from rich.table import Table

from compaction_pipeline.core.tables.properties import resolve_properties
from compaction_pipeline.demo import payments
from compaction_pipeline.demo.change_log import files_written
from compaction_pipeline.demo.keyed_live_files import KeyedLiveFiles
from compaction_pipeline.demo.live_files import Census, LiveFiles
from compaction_pipeline.demo.options import DemoOptions
from compaction_pipeline.demo.tables import PROPERTIES, TABLES
from compaction_pipeline.demo.warehouse import open_table

_WIDTH = 100
"""The width in characters when the output is no terminal."""


def small_bytes() -> int:
    """A file of the demo's tables is small up to this size."""
    properties = resolve_properties(PROPERTIES, {})
    return properties.target_size_bytes // properties.fragment_ratio


class Watch:
    """Counts the live files of all tables, again and again, and prints the numbers."""

    def __init__(self, options: DemoOptions) -> None:
        self._options = options
        self._console = Console(width=None if Console().is_terminal else _WIDTH, highlight=False)
        self._small_bytes = small_bytes()
        self._files: dict[str, LiveFiles] = {name: LiveFiles(open_table(options, table)) for name, table in TABLES.items()}
        self._files[payments.NAME] = KeyedLiveFiles(*payments.payment_stores(options))

    def census(self) -> dict[str, Census]:
        """Every table as it is now."""
        return {name: files.census(self._small_bytes) for name, files in self._files.items()}

    def show(self, title: str, counted: Mapping[str, Census] | None = None) -> None:
        """Print the numbers of all tables. `counted` has them when they were counted before."""
        self._console.print(title, markup=False, style="bold", soft_wrap=True)
        table = Table(box=None, pad_edge=False)
        table.add_column("table")
        for column in ("files", "small", "deletes", "n", "worst n", "stored MB", "│", "without us: files", "n"):
            table.add_column(column, justify="right")
        for name, census in (counted or self.census()).items():
            written = files_written(self._options.changes, name)
            table.add_row(
                name,
                f"{census.files:,}",
                f"{census.small_files:,}",
                f"{census.delete_files:,}",
                f"{census.opened_per_node:,.1f}",
                f"{census.opened_at_worst:,}",
                f"{census.stored_bytes / 1e6:,.1f}",
                "│",
                f"{written:,}",
                f"{written / max(1, census.nodes):,.1f}",
            )
        self._console.print(table)
        self._console.print()

    def say(self, text: str) -> None:
        """Print one line."""
        self._console.print(text, markup=False, soft_wrap=True)


def clock_title(now: datetime) -> str:
    return f"{now:%H:%M:%S}  (n: files that a reader of one partition opens)"
