"""How the commits of a table went."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True)
class TableCommits:
    """How the newest commits of a table went. Only `services/commit/commit_tables.py` writes it.

    `landed` counts the commits that landed, the newest of them at `last_committed_at`. The count never falls. It may be
    too high, because a commit that is settled twice may count twice; this only makes the table be read once more. `problem` says why the
    last `failures` commits failed; it is None after a commit that did not fail. No tick commits the table before `retry_at`.
    """

    landed: int = 0
    last_committed_at: datetime | None = None
    problem: str | None = None
    failures: int = 0
    retry_at: datetime | None = None
