"""How the commits of a table went."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from compaction_pipeline.core.commit.backoff import retry_at
from compaction_pipeline.core.ids import RecordId


@dataclass(frozen=True, slots=True)
class TableCommits:
    """How the newest commits of a table went. Only `services/commit/commit_tables.py` writes it.

    `last_record_id` and `last_committed_at` are those of the newest commit that landed. `problem` says why the last `failures` commits
    failed; it is None after a commit that did not fail. No tick commits the table before `retry_at`.
    """

    last_record_id: RecordId | None = None
    last_committed_at: datetime | None = None
    problem: str | None = None
    failures: int = 0
    retry_at: datetime | None = None

    def after_failure(self, problem: str, now: datetime) -> TableCommits:
        """Return the value after one more commit has failed. After each failure ticks leave the table alone for longer."""
        failures = self.failures + 1
        return TableCommits(self.last_record_id, self.last_committed_at, problem, failures, retry_at(failures, now))
