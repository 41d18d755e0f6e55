"""Shows, makes, changes and deletes teams, and their loans, mappings and entries of the whitelist."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path

from compaction_pipeline.core.capacity.limits import Standing
from compaction_pipeline.core.capacity.loan import LONGEST_LOAN, Loan, asked, check_possible
from compaction_pipeline.core.capacity.low_use_share import OwnOptimizer, check_excuses, check_low_use
from compaction_pipeline.core.capacity.ports import TeamStore
from compaction_pipeline.core.capacity.team import LONGEST_TEXT, Limits, Team, TeamChange, Whitelisted, checked, lifted, unknown_team
from compaction_pipeline.core.capacity.team_file import target_of, team_file_of
from compaction_pipeline.core.errors import ConfigError, NotFoundError
from compaction_pipeline.core.insight.ports import TableReader
from compaction_pipeline.core.leases.ports import Clock
from compaction_pipeline.core.queue.ports.groups import GroupStore
from compaction_pipeline.core.tables.ports.catalogs import CatalogStore
from compaction_pipeline.services.capacity.read_use import ReadUse
from compaction_pipeline.services.yaml_file import yaml_value

_MOST_FILE_BYTES = 2**20
MOST_DAYS = 366
"""A team may be whitelisted for so many days. Loans are shorter (`core.capacity.loan`)."""
_LEAST_OF_ID = 4
"""A beginning of a loan's id has so many characters, so that no single letter ends a loan."""


@dataclass(frozen=True, slots=True)
class KnownTargets:
    """What may belong to a team: tables, catalogs and groups."""

    tables: TableReader
    catalogs: CatalogStore
    groups: GroupStore


@dataclass(frozen=True, slots=True)
class SetTeam:
    """What setting a team did: whether anything changed, and in words the limits and owners that the team had and no longer has."""

    changed: bool
    lifts: tuple[str, ...] = ()


class ManageTeams:
    """The verbs of a person who decides what compaction may cost: what is there, set, apply, delete, lend, approve, end, allow and map.

    `who` makes the change. It is written down with it.
    """

    def __init__(self, teams: TeamStore, known: KnownTargets, read_use: ReadUse, clock: Clock, new_id: Callable[[], str]) -> None:
        self._teams = teams
        self._known = known
        self._read_use = read_use
        self._clock = clock
        self._new_id = new_id

    def standings(self) -> Sequence[Standing]:
        """Return how every team stands now beside its limits, by name."""
        return tuple(self._teams.standings().values())

    def standing(self, name: str) -> Standing:
        """Return how one team stands now. Raises NotFoundError."""
        found = self._teams.standings().get(name)
        if found is None:
            raise unknown_team(name)
        return found

    def mapping(self) -> Mapping[str, str]:
        """Return the teams that administrators gave to tables and catalogs, by their names."""
        return self._teams.mapping()

    def loans(self) -> Sequence[Loan]:
        """Return the loans that have not ended, asked-for ones included, the newest first."""
        return self._teams.loans()

    def changes(self, most: int, team: str | None = None) -> Sequence[TeamChange]:
        """Return who changed what, the newest change first, at most `most`. A team that was deleted still has its changes.

        Raises NotFoundError for a team that never was.
        """
        found = self._teams.changes(most, team)
        if team is not None and not found and self._team(team) is None:
            raise unknown_team(team)
        return found

    def set(self, team: Team, who: str) -> SetTeam:
        """Make a team, or replace the one of its name. Raises ConfigError."""
        before = self._team(checked(team).name)
        return SetTeam(self._teams.put(team, _named(who), self._clock()), lifted(before, team))

    def _team(self, name: str) -> Team | None:
        return next((team for team in self._teams.teams() if team.name == name), None)

    def apply(self, path: Path, who: str) -> Mapping[str, Sequence[str]]:
        """Set the teams of a YAML file, and map their tables, as `core.capacity.team_file` says. Return by the names of what changed, in
        words, the limits and owners that a team no longer has.

        The file is judged whole before anything is changed. Teams and mappings that it does not name stay. A file that was applied before
        changes nothing. Raises ConfigError, and also when a team has lent more than its new limit: what stands before it in the file is set
        then, and the corrected file can be applied again.
        """
        source = f"the file of teams is {str(path)!r}"
        found = team_file_of(yaml_value(path, source, _MOST_FILE_BYTES, "a file of teams"), f"the file {str(path)!r}")
        done = {team.name: self.set(team, who) for team in found.teams}
        changed: dict[str, Sequence[str]] = {name: one.lifts for name, one in done.items() if one.changed}
        return changed | {target: () for target, team in found.mapping.items() if self.map(target, team, who)}

    def delete(self, name: str, who: str) -> None:
        """Delete a team. Raises NotFoundError, and ConfigError while it has loans or mappings."""
        self._teams.remove(name, _named(who), self._clock())

    def lend(
        self,
        lender: str,
        borrower: str,
        days: float,
        who: str,
        amount: Limits,
        excuses: Mapping[str, str] | None = None,
    ) -> Loan:
        """Ask a team for a loan that ends so many days from now, and return it. It counts once it is approved.

        `amount` has the slots or the GB-hours. `excuses` say of optimizers of the borrower that are of low use why they cannot be used
        better, by their ids. Raises NotFoundError and ConfigError. A loan that is refused for low use is written down; one that breaks
        another rule is not.
        """
        now = self._clock()
        said = {name: _short("the reason of an optimizer", why.strip()) for name, why in (excuses or {}).items()}
        of = (lender, borrower, _in_days(now, days, LONGEST_LOAN.days), _named(who), now, amount.slots or 0, amount.gb_hours or 0.0)
        loan = asked(replace(Loan(self._new_id(), *of), excuses=said))
        check_possible(loan, self.standing(lender).team, self.standing(borrower).team)
        own = self._own(borrower)
        check_excuses(borrower, own, said)
        try:
            check_low_use(borrower, own, said)
        except ConfigError as error:
            self._teams.refuse(loan, str(error))
            raise ConfigError(f"{error}; the refused loan is {loan.loan_id}") from None
        self._teams.ask(loan)
        return loan

    def _own(self, team: str) -> Sequence[OwnOptimizer]:
        """The optimizers of the groups that name a team, as far as they can be judged."""
        groups = {group.name for group in self._known.groups.groups() if group.team == team}
        uses = [each for each in self._read_use.uses() if each.group in groups and each.use is not None] if groups else []
        return [OwnOptimizer(each.optimizer_id, "; ".join(each.use.reasons) if each.use.is_low else "") for each in uses if each.use]

    def approve(self, loan_id: str, consent: str, who: str) -> Loan:
        """Let a loan begin now. A unique beginning of its id is enough. `consent` is the name of who consents for the lender.

        Raises NotFoundError and ConfigError.
        """
        if not consent.strip():
            raise ConfigError("'consent' is empty but must name the person who consents for the team that lends")
        return self._teams.approve(self._loan_id(loan_id), _short("consent", consent.strip()), _named(who), self._clock())

    def end(self, loan_id: str, who: str) -> Loan:
        """End a loan early: slots at once, GB-hours at the next 00:00 UTC. A unique beginning of its id is enough.

        Raises NotFoundError, and ConfigError when several ids begin so.
        """
        return self._teams.end(self._loan_id(loan_id), _named(who), self._clock())

    def _loan_id(self, given: str) -> str:
        """The id of the loan whose id begins so; what is given when none does, which the store refuses."""
        found = [loan.loan_id for loan in self._teams.loans() if loan.loan_id.startswith(given)]
        if given in found:
            return given
        if len(given) < _LEAST_OF_ID:
            raise NotFoundError(
                f"loan {given!r} does not exist, and a beginning of an id must have at least {_LEAST_OF_ID} characters; give more of the id"
            )
        if not found:
            return given
        if len(found) > 1:
            raise ConfigError(f"{given[:100]!r} is the beginning of {len(found)} loans ({', '.join(found[:5])}); give more of the id")
        return found[0]

    def allow(self, team: str, days: float, reason: str, who: str, refused_loan: str = "") -> Whitelisted:
        """Let a team work without its limits for so many days, for a reason. Raises NotFoundError and ConfigError.

        `refused_loan` is the id of a loan that was refused to it before; "" when there was none.
        """
        now = self._clock()
        until = _in_days(now, days)
        if not reason.strip():
            raise ConfigError("'reason' is empty but must say why the team may work without its limits")
        entry = Whitelisted(team, until, _short("reason", reason.strip()), _named(who), now, refused_loan)
        self._teams.allow(entry)
        return entry

    def map(self, target: str, team: str | None, who: str) -> bool:
        """Give a table or a catalog to a team, or with None take the mapping away. It wins over properties.

        Return whether anything changed. Raises NotFoundError when the team does not exist, and ConfigError for a name of neither.
        """
        given = target.strip()
        if not given:
            raise ConfigError("the name of the table or catalog is empty")
        # An earlier release took any name. Such a mapping can be taken away as it is written.
        name = given if team is None and given in self._teams.mapping() else target_of(given)
        return self._teams.map(name, team, _named(who), self._clock())

    def unknown_targets(self, targets: Iterable[str]) -> str | None:
        """Say which of these names are neither a known table nor a catalog. None when all are known."""
        known = {entry.name for entry in self._known.catalogs.entries()} | {str(state.table) for state in self._known.tables.states()}
        unknown = sorted(set(map(target_of, targets)) - known)
        if not unknown:
            return None
        shown = ", ".join(unknown[:5]) + ", …" * (len(unknown) > 5)
        return f"no table or catalog {shown} is known: the mapping counts once there is one, so look for a misspelled name"


def _in_days(now: datetime, days: float, most: int = MOST_DAYS) -> datetime:
    if not 0 < days <= most:
        raise ConfigError(f"'days' is {days:g} but must be more than 0 and at most {most}")
    return now + timedelta(days=days)


def _named(who: str) -> str:
    return _short("who", who.strip()) or "unknown"


def _short(key: str, text: str) -> str:
    if len(text) > LONGEST_TEXT:
        raise ConfigError(f"'{key}' has {len(text)} characters but must have at most {LONGEST_TEXT}")
    return text
