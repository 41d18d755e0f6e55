"""Tags of a run: on how many tables it works, and one for each of the first tables, by which Dagster's list of runs can be filtered.

The name of the table stands in the key of its tag. A filter asks for one key and one value, so numbered keys would hide runs of a table.
"""

from __future__ import annotations

from urllib.parse import quote

import dagster as dg

from compaction_pipeline.core.tables.table import TableIdentifier

TABLES = "compaction/tables"
MOST_TABLES = 10
"""So many tables get a tag of their own. Each tag is a row of Dagster's database, and all of them stand on the page of the run."""

_TABLE = "compaction.table/"
_YES = "true"


class RunTags:
    """Tags one run while it comes to new tables."""

    def __init__(self, instance: dg.DagsterInstance, run_id: str) -> None:
        self._instance = instance
        self._run_id = run_id
        self._tables: set[TableIdentifier] = set()

    def works_on(self, table: TableIdentifier) -> None:
        """Tag the run with this table, unless it has the tag or too many others."""
        if table not in self._tables:
            self._tables.add(table)
            if len(self._tables) <= MOST_TABLES:
                self._instance.add_run_tags(self._run_id, {TABLES: str(len(self._tables)), _TABLE + str(table): _YES})

    def close(self) -> None:
        """Write the number of all tables."""
        self._instance.add_run_tags(self._run_id, {TABLES: str(len(self._tables))})


def runs_page(table: TableIdentifier) -> str:
    """The address of the list of runs that worked on this table."""
    return f"/runs?q%5B%5D={quote(f'tag:{_TABLE}{table}={_YES}', safe='')}"
