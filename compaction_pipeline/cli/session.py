"""What a command works with: the services and the output. The end of the command closes everything that it opened."""

from __future__ import annotations

from types import TracebackType

import typer

from compaction_pipeline.cli.output import Invocation
from compaction_pipeline.core.errors import CompactionError
from compaction_pipeline.core.tables.table import TableIdentifier

_OPTIONS = {"spark_master": "--master"}
"""The options of commands that take the place of a setting."""
TABLE_HELP = "catalog.namespace.table. Put a level that holds a dot in backticks."


class Session:
    """A context manager. It opens nothing by itself; a database, a catalog or a JVM is opened when a command needs it."""

    def __init__(self, context: typer.Context, **settings: object) -> None:
        """`settings` are given by options of the command, and win over the environment."""
        # pydantic takes a third of a second to import, and the help of a command needs neither settings nor services.
        from compaction_pipeline.bootstrap import Services
        from compaction_pipeline.settings import load_settings

        given: Invocation = context.obj
        self.output = given.output
        self.services = (given.open_services or Services)(load_settings(settings, _OPTIONS))

    def __enter__(self) -> Session:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.services.close()

    def refresh(self, table: TableIdentifier, *, strict: bool = False) -> None:
        """Bring the index of one table's files up to date, and warn of what is wrong with the table.

        With `strict` it raises an error instead of a warning, and says nothing of other problems: the command's own answer names them.
        """
        with self.output.progress() as progress:
            progress.add_task(f"reading {table}", total=None)
            refreshed = self.services.one_table.refresh(table)
        if strict:
            if refreshed.error is not None:
                raise refreshed.error
            return
        if refreshed.problem is not None:
            self._warn(table, refreshed.problem)

    def refresh_all(self, catalog: str | None) -> dict[TableIdentifier, CompactionError]:
        """Do the same for every table, or for those of one catalog. Return the tables that could not be read, with the error."""
        failed = {}
        tables = self.services.read_tables.names(catalog)
        with self.output.progress() as progress:
            bar = progress.add_task("reading tables", total=len(tables))
            for table in tables:
                error = self._refresh_gently(table)
                if error is not None:
                    failed[table] = error
                progress.advance(bar)
        return failed

    def _refresh_gently(self, table: TableIdentifier) -> CompactionError | None:
        try:
            refreshed = self.services.one_table.refresh(table)
        except CompactionError as error:
            self._warn(table, str(error))
            return error
        if refreshed.problem is not None:
            self._warn(table, refreshed.problem)
        return refreshed.error

    def _warn(self, table: TableIdentifier, problem: str) -> None:
        """Say what is wrong with a table. Most problems name the table themselves."""
        self.output.say(f"warning: {problem}" if str(table) in problem else f"warning: {table}: {problem}")
