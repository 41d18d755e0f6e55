"""Leaves tables alone for a while, and takes them up again."""

from __future__ import annotations

from compaction_pipeline.core.tables.ports import SwitchStore
from compaction_pipeline.core.tables.table import TableIdentifier


class PauseTables:
    """One verb and its opposite: pause and resume.

    A paused table is measured, but nothing is planned for it, and its waiting tasks have no turn. Tasks that run when the pause begins are
    finished and committed. Waiting tasks have their turn again after `resume`.
    """

    def __init__(self, switches: SwitchStore) -> None:
        self._switches = switches

    def pause(self, table: TableIdentifier | None = None) -> int:
        """Pause one table, or all: also those that appear before all are resumed. Return how many tables changed.

        Raises NotFoundError when the table is unknown.
        """
        return self._switches.pause(table, True)

    def resume(self, table: TableIdentifier | None = None) -> int:
        """Resume one table, or all. Return how many tables changed. Raises NotFoundError when the table is unknown."""
        return self._switches.pause(table, False)
