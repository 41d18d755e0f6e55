"""The TeamStore: teams, their loans, the whitelist, the mapping of tables, and the audit of all changes.

A change of what bounds a team locks the team's row, as claims of its tasks do. So no claim sees a half of it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from pydantic import TypeAdapter
from sqlalchemy import Connection, Engine, delete, func, insert, select, update

from compaction_pipeline.core.capacity.limits import Standing
from compaction_pipeline.core.capacity.loan import Loan, check_approval, check_change, ended, moment_of_move
from compaction_pipeline.core.capacity.team import Team, TeamChange, Whitelisted, unknown_team
from compaction_pipeline.core.errors import ConfigError, NotFoundError
from compaction_pipeline.core.queue.group import TEAM
from compaction_pipeline.core.queue.task import TaskStatus
from compaction_pipeline.core.tables.team_name import UNASSIGNED
from compaction_pipeline.storage import schema
from compaction_pipeline.storage.engine import lock, reading, upsert, writing
from compaction_pipeline.storage.sql_store import SqlStore
from compaction_pipeline.storage.team_rooms import Reckoning, groups_of_teams, has_limits, read_standings, team_of

_team, _loan, _mapping, _change = schema.team.c, schema.team_loan.c, schema.team_mapping.c, schema.team_change.c
_task = schema.task.c
_REFUSED = "loan refused:"
_JSON: Mapping[type, TypeAdapter[Any]] = {kind: TypeAdapter(kind) for kind in (Team, Loan, Whitelisted, str)}


class SqlTeamStore(SqlStore):
    """Teams in the state database."""

    def __init__(self, engine: Engine, reckoning: Reckoning) -> None:
        super().__init__(engine)
        self._reckoning = reckoning

    def teams(self) -> Sequence[Team]:
        # Databases sort texts differently, so Python sorts here.
        return tuple(sorted(map(team_of, self._rows(select(schema.team))), key=lambda team: team.name))

    def standings(self) -> Mapping[str, Standing]:
        with reading(self._engine) as connection:
            found = read_standings(connection, self._reckoning, self._reckoning.clock())
        return {name: found[name] for name in sorted(found)}

    def mapping(self) -> Mapping[str, str]:
        return {row.target: row.team for row in self._rows(select(schema.team_mapping).order_by(_mapping.target))}

    def loans(self) -> Sequence[Loan]:
        now = self._reckoning.clock()
        rows = self._rows(select(schema.team_loan).where(_loan.until > now).order_by(_loan.asked_at.desc(), _loan.loan_id))
        return tuple(loan for loan in (Loan(**row._mapping) for row in rows) if loan.end > now)

    def changes(self, most: int, team: str | None = None) -> Sequence[TeamChange]:
        query = select(schema.team_change).order_by(_change.change_id.desc()).limit(most)
        rows = self._rows(query if team is None else query.where(_change.team == team))
        return tuple(TeamChange(row.at, row.who, row.team, row.what, row.before, row.after) for row in rows)

    def put(self, team: Team, who: str, now: datetime) -> bool:
        with writing(self._engine) as connection:
            before = _locked(connection, [team.name]).get(team.name)
            if before == team:
                return False
            if before is not None:
                check_change(before, team, _loans(connection), now)
            limits = team.limits
            values = {
                "owners": team.owners,
                "slots": limits.slots,
                "memory_bytes": limits.memory_bytes,
                "gb_hours": limits.gb_hours,
            }
            row = upsert(connection, schema.team).values(name=team.name, **values)
            connection.execute(row.on_conflict_do_update(index_elements=["name"], set_=values))
            _write_down(connection, TeamChange(now, who, team.name, "limits and owners", _json(before), _json(team)))
        return True

    def remove(self, name: str, who: str, now: datetime) -> None:
        if name == UNASSIGNED:
            raise ConfigError(f"the team {UNASSIGNED!r} cannot be deleted: tables that name no team are charged to it")
        with writing(self._engine) as connection:
            before = _known(_locked(connection, [name]), name)
            check_change(before, None, _open_loans(connection, now), now)
            mapped = connection.execute(select(_mapping.target).where(_mapping.team == name).order_by(_mapping.target)).scalars().all()
            if mapped:
                shown = ", ".join(mapped[:5]) + ", …" * (len(mapped) > 5)
                raise ConfigError(f"team {name} cannot be deleted while something is mapped to it ({shown}); map that to another one")
            groups = sorted(group for group, team in groups_of_teams(connection).items() if team == name)
            if groups:
                raise ConfigError(
                    f"team {name} cannot be deleted while groups name it ({', '.join(groups[:5])}): give them another team, or none with "
                    f"`compaction-pipeline group change {groups[0]} -p {TEAM}=`"
                )
            connection.execute(delete(schema.team_whitelist).where(schema.team_whitelist.c.team == name))
            connection.execute(delete(schema.team).where(_team.name == name))
            _write_down(connection, TeamChange(now, who, name, "deleted", _json(before), None))

    def ask(self, loan: Loan) -> None:
        with writing(self._engine) as connection:
            teams = _locked(connection, [loan.lender, loan.borrower])
            for name in (loan.lender, loan.borrower):
                _known(teams, name)
            connection.execute(insert(schema.team_loan).values(_values(loan)))
            for name in (loan.lender, loan.borrower):
                _write_down(connection, TeamChange(loan.asked_at, loan.asked_by, name, "loan asked for", None, _json(loan)))

    def refuse(self, loan: Loan, why: str) -> None:
        with writing(self._engine) as connection:
            for name in (loan.lender, loan.borrower):
                _write_down(
                    connection, TeamChange(loan.asked_at, loan.asked_by, name, f"{_REFUSED} {loan.loan_id}", _json(why), _json(loan))
                )

    def approve(self, loan_id: str, consent: str, who: str, now: datetime) -> Loan:
        with writing(self._engine) as connection:
            asked = _loan_of(connection, loan_id)
            teams = _locked(connection, [asked.lender, asked.borrower])
            before = _loan_of(connection, loan_id)
            loans = _loans(connection)
            now = _moment_of_move(connection, before.lender, loans, now)
            lender, borrower = _known(teams, before.lender), _known(teams, before.borrower)
            # What was used until just now counts here, not what was added up a few seconds ago.
            fresh = replace(self._reckoning, _used=None)
            used = fresh.used_today(connection, now).get(before.lender, 0.0) if before.gb_hours else 0.0
            check_approval(before, lender, borrower, loans, used, now)
            after = replace(before, consent=consent, approved_by=who, began_at=now)
            return self._changed(connection, before, after, "loan approved", who, now)

    def end(self, loan_id: str, who: str, now: datetime) -> Loan:
        with writing(self._engine) as connection:
            asked = _loan_of(connection, loan_id)
            _locked(connection, [asked.lender, asked.borrower])
            before = _loan_of(connection, loan_id)
            now = _moment_of_move(connection, before.borrower, _loans(connection), now)
            return before if before.end <= now else self._changed(connection, before, ended(before, now), "loan ended", who, now)

    def allow(self, entry: Whitelisted) -> None:
        with writing(self._engine) as connection:
            _known(_locked(connection, [entry.team]), entry.team)
            if entry.refused_loan and not _was_refused(connection, entry):
                raise NotFoundError(
                    f"no loan {entry.refused_loan[:100]!r} was refused to team {entry.team}; `team changes` shows those that were"
                )
            connection.execute(
                insert(schema.team_whitelist).values(
                    team=entry.team,
                    at=entry.at,
                    until=entry.until,
                    reason=entry.reason,
                    allowed_by=entry.allowed_by,
                    refused_loan=entry.refused_loan,
                )
            )
            _write_down(connection, TeamChange(entry.at, entry.allowed_by, entry.team, "whitelisted", None, _json(entry)))

    def map(self, target: str, team: str | None, who: str, now: datetime) -> bool:
        with writing(self._engine) as connection:
            lock(connection, "teams")
            before = connection.execute(select(_mapping.team).where(_mapping.target == target)).scalar()
            if before == team:
                return False
            if team is None:
                connection.execute(delete(schema.team_mapping).where(_mapping.target == target))
            else:
                _known(_locked(connection, [team]), team)
                row = upsert(connection, schema.team_mapping).values(target=target, team=team)
                connection.execute(row.on_conflict_do_update(index_elements=["target"], set_={"team": team}))
            of = team or before or UNASSIGNED
            _write_down(connection, TeamChange(now, who, of, f"mapping of {target}", _json(before), _json(team)))
        return True

    def note_held(self) -> None:
        now = self._reckoning.clock()
        with reading(self._engine) as connection:
            limited = has_limits(connection)
            noted = connection.execute(select(func.count()).select_from(schema.team).where(_team.held_since.is_not(None))).scalar_one()
            found = read_standings(connection, self._reckoning, now) if limited or noted else {}
        changed = {name: now if one.is_held else None for name, one in found.items() if one.is_held != (one.held_since is not None)}
        if changed:
            with writing(self._engine) as connection:
                # A claim locks teams in the order that the database gives to names. Python may sort them differently.
                names = select(_team.name).where(_team.name.in_(sorted(changed))).order_by(_team.name)
                connection.execute(names.with_for_update(key_share=True))
                for name, since in changed.items():
                    connection.execute(update(schema.team).where(_team.name == name).values(held_since=since))

    def _changed(self, connection: Connection, before: Loan, after: Loan, what: str, who: str, now: datetime) -> Loan:
        connection.execute(update(schema.team_loan).where(_loan.loan_id == after.loan_id).values(_values(after)))
        for name in (after.lender, after.borrower):
            _write_down(connection, TeamChange(now, who, name, what, _json(before), _json(after)))
        return after


def insert_team_without_limits(connection: Connection, name: str) -> None:
    """Insert a team whose name is free, and which has no limits and no owners."""
    connection.execute(insert(schema.team).values(name=name, owners=()))


def _locked(connection: Connection, names: Sequence[str]) -> dict[str, Team]:
    """These teams as they are now. Nobody changes teams, and no claim counts on these, before this transaction ends."""
    lock(connection, "teams")
    rows = connection.execute(select(schema.team).where(_team.name.in_(names)).order_by(_team.name).with_for_update())
    return {row.name: team_of(row) for row in rows}


def _known(teams: Mapping[str, Team], name: str) -> Team:
    if name not in teams:
        raise unknown_team(name)
    return teams[name]


def _loans(connection: Connection) -> list[Loan]:
    return [Loan(**row._mapping) for row in connection.execute(select(schema.team_loan).where(_loan.began_at.is_not(None)))]


def _was_refused(connection: Connection, entry: Whitelisted) -> bool:
    wanted = (_change.team == entry.team, _change.what == f"{_REFUSED} {entry.refused_loan}")
    return connection.execute(select(_change.change_id).where(*wanted)).first() is not None


def _open_loans(connection: Connection, now: datetime) -> list[Loan]:
    """The loans that have not ended, those that nobody approved yet included."""
    return [Loan(**row._mapping) for row in connection.execute(select(schema.team_loan).where(_loan.until > now))]


def _loan_of(connection: Connection, loan_id: str) -> Loan:
    row = connection.execute(select(schema.team_loan).where(_loan.loan_id == loan_id)).first()
    if row is None:
        raise NotFoundError(f"loan {loan_id[:100]!r} does not exist; `compaction-pipeline team list` shows those that do")
    return Loan(**row._mapping)


def _moment_of_move(connection: Connection, giver: str, loans: Sequence[Loan], now: datetime) -> datetime:
    """The time to which slots move. It is after all other moves, and not before the begin of any attempt of the team that gives them.

    Such an attempt may have been claimed while this transaction waited for its locks. It would count as begun after the move.
    """
    running = (_task.team == giver, _task.status == TaskStatus.EXECUTING)
    query = select(_task.started_at).where(*running).order_by(_task.started_at.desc()).limit(1)
    newest: datetime | None = connection.execute(query).scalar()
    return moment_of_move(loans, now if newest is None else max(now, newest))


def _values(loan: Loan) -> dict[str, object]:
    return {column.name: getattr(loan, column.name) for column in schema.team_loan.columns}


def _json(value: object) -> str | None:
    return None if value is None else _JSON[type(value)].dump_json(value).decode()


def _write_down(connection: Connection, change: TeamChange) -> None:
    connection.execute(
        insert(schema.team_change).values(
            at=change.at, who=change.who, team=change.team, what=change.what, before=change.before, after=change.after
        )
    )
