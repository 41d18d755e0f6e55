"""A catalog in place of whose commits a test may act: others are faster, the answer gets lost, the process is interrupted."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pyiceberg.table import CommitTableResponse, Table
from pyiceberg.typedef import Identifier

from compaction_pipeline.iceberg.catalogs import SqlCatalog

Commit = Callable[[], None]
Act = Callable[[Commit], None]
"""What happens in place of a commit. It gets the real commit."""


class ActingCatalog(SqlCatalog):
    """A catalog on SQLite. `act` gets the last part of a table's name and the real commit; None commits. `before_load` may raise."""

    act: Callable[[str, Commit], None] | None = None
    before_load: Callable[[], None] | None = None

    def load_table(self, identifier: str | Identifier) -> Table:
        if self.before_load is not None:
            self.before_load()
        return super().load_table(identifier)

    def commit_table(self, table: Table, requirements: Any, updates: Any) -> CommitTableResponse:
        answers: list[CommitTableResponse] = []

        def commit() -> None:
            answers.append(super(ActingCatalog, self).commit_table(table, requirements, updates))

        if self.act is None:
            commit()
        else:
            self.act(table.name()[-1], commit)
        return answers[-1]

    def in_place_of_commits(self, store: str, *acts: Act) -> None:
        """Let these acts happen in place of the first commits to the table of this name, one each."""
        left = list(acts)

        def act(name: str, commit: Commit) -> None:
            if name == store and left:
                left.pop(0)(commit)
            else:
                commit()

        self.act = act
