"""The `compaction-pipeline` command: imports every command into the application, and runs it."""

from __future__ import annotations

from compaction_pipeline.cli.app import app
from compaction_pipeline.cli.commands import catalog, compaction, record, state, table

__all__ = ["app", "catalog", "compaction", "record", "run", "state", "table"]


def run() -> None:
    """Entry point of the installed command."""
    app(prog_name="compaction-pipeline")
