"""The port says what the state database remembers of teams. Each change keeps the rules of loans, and is written down with who made it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Protocol

from compaction_pipeline.core.capacity.limits import Standing
from compaction_pipeline.core.capacity.loan import Loan
from compaction_pipeline.core.capacity.team import Team, TeamChange, Whitelisted


class TeamStore(Protocol):
    """The teams. `unassigned` is there from the beginning, and stays. `who` is the person or system that makes a change."""

    def teams(self) -> Sequence[Team]:
        """Return all teams, sorted by name."""

    def standings(self) -> Mapping[str, Standing]:
        """Return how each team stands now, by name. GB-hours of today are at most 5 s old."""

    def mapping(self) -> Mapping[str, str]:
        """Return the teams that administrators gave to tables and catalogs, by the name of the table or catalog."""

    def loans(self) -> Sequence[Loan]:
        """Return the loans that have not ended, those that nobody approved yet included, the newest first."""

    def changes(self, most: int, team: str | None = None) -> Sequence[TeamChange]:
        """Return the newest changes, at most `most`, of one team or of all."""

    def put(self, team: Team, who: str, now: datetime) -> bool:
        """Make a team, or replace the one of its name. Return whether anything changed.

        Raises ConfigError when it has lent more than its new limits.
        """

    def remove(self, name: str, who: str, now: datetime) -> None:
        """Remove a team. Raises NotFoundError, and ConfigError while it has loans, open ones included, or mappings, or a group names it."""

    def ask(self, loan: Loan) -> None:
        """Store a loan that a team asks for. Raises NotFoundError when one of its teams does not exist."""

    def refuse(self, loan: Loan, why: str) -> None:
        """Write down that a loan was refused, and why. An entry of the whitelist may name it."""

    def approve(self, loan_id: str, consent: str, who: str, now: datetime) -> Loan:
        """Let a loan begin now, and return it. Raises NotFoundError, and ConfigError as `core.capacity.loan.check_approval` does."""

    def end(self, loan_id: str, who: str, now: datetime) -> Loan:
        """End a loan early, and return it. Raises NotFoundError."""

    def allow(self, entry: Whitelisted) -> None:
        """Let a team work without its limits until a time. Raises NotFoundError, also when no such loan was refused as it names."""

    def map(self, target: str, team: str | None, who: str, now: datetime) -> bool:
        """Give a table or catalog to a team, or with None take the mapping away. Return whether anything changed. Raises NotFoundError."""

    def note_held(self) -> None:
        """Keep since when each team may begin nothing more, for people to see."""
