"""Routes of teams: what they use and may use, who lends what to whom, and who changed it. An asset system may set teams by PUT."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Path, Query
from pydantic import BaseModel, ConfigDict, Field

from compaction_pipeline.api.bodies import Bodies, body_of
from compaction_pipeline.api.openapi import plain_answer
from compaction_pipeline.api.problems import ANSWERS
from compaction_pipeline.api.security import Guard
from compaction_pipeline.core.access import body_bounds
from compaction_pipeline.core.access.token import Role, Token
from compaction_pipeline.core.capacity.loan import Loan
from compaction_pipeline.core.capacity.team import (
    LONGEST_TEXT,
    MOST_GB_HOURS,
    MOST_MEMORY,
    MOST_OWNERS,
    MOST_SLOTS,
    Limits,
    Team,
    TeamChange,
    Whitelisted,
)
from compaction_pipeline.core.insight.plain import plain
from compaction_pipeline.core.insight.team_value import team_value
from compaction_pipeline.services.capacity.manage_teams import MOST_DAYS, ManageTeams

_Name = Annotated[str, Path(max_length=100)]
_Target = Annotated[str, Path(max_length=1_000)]
_Text = Annotated[str, Field(min_length=1, max_length=LONGEST_TEXT)]
_Days = Annotated[float, Field(gt=0, le=MOST_DAYS)]


class TeamBody(BaseModel):
    """What a team may use: slots and bytes of memory at a time, GB-hours in a UTC day. What is not there is without limit."""

    model_config = ConfigDict(extra="forbid")

    owners: list[_Text] = Field(default=[], max_length=MOST_OWNERS)
    slots: int | None = Field(default=None, ge=0, le=MOST_SLOTS)
    memory_bytes: int | None = Field(default=None, ge=0, le=MOST_MEMORY)
    gb_hours: float | None = Field(default=None, ge=0, le=MOST_GB_HOURS)


class MappingBody(BaseModel):
    """The team that a table or a catalog belongs to."""

    model_config = ConfigDict(extra="forbid")

    team: _Text


class LoanBody(BaseModel):
    """Slots at a time or GB-hours of each day that one team asks of another one, and for how many days.

    `excuses` say of optimizers of the borrower that are of low use why they cannot be used better, by their ids.
    """

    model_config = ConfigDict(extra="forbid")

    lender: _Text
    borrower: _Text
    slots: int = Field(default=0, ge=0, le=MOST_SLOTS)
    gb_hours: float = Field(default=0.0, ge=0, le=MOST_GB_HOURS)
    days: _Days = 1.0
    excuses: dict[Annotated[str, Field(min_length=1, max_length=200)], _Text] = Field(default={}, max_length=1_000)


class ConsentBody(BaseModel):
    """The name of the person who consents for the team that lends."""

    model_config = ConfigDict(extra="forbid")

    consent: _Text


class WhitelistBody(BaseModel):
    """For how many days a team may work without its limits, and why. `refused_loan` is the id of a loan that was refused to it."""

    model_config = ConfigDict(extra="forbid")

    reason: _Text
    refused_loan: str = Field(default="", max_length=100)
    days: _Days = 1.0


class LimitsAnswer(BaseModel):
    """Limits, or what is used of them. null means without limit."""

    slots: int | None
    memory_bytes: int | None
    gb_hours: float | None


class TeamAnswer(BaseModel):
    """A team. `allowed` counts loans in. `held` says why it may begin nothing more, and is there only then. `lifts` are the limits and
    owners that a PUT took from it, in words, and is there only then."""

    team: str
    owners: list[str]
    limits: LimitsAnswer
    allowed: LimitsAnswer
    used: LimitsAnswer
    held: str = ""
    whitelisted_until: str = ""
    lifts: list[str] = []


class MappingAnswer(BaseModel):
    """What a table or catalog is mapped to. `warning` says that nobody knows such a table or catalog, and is there only then."""

    target: str
    team: str
    warning: str = ""


def team_routes(teams: ManageTeams, guard: Guard, bodies: Bodies) -> APIRouter:
    """The routes below `/api/v1` about teams. Each change is written down with the id of the token."""
    routes = APIRouter(tags=["teams"], responses=ANSWERS)
    needs_admin = guard.needs()
    reader, admin = [Depends(guard.needs(Role.READER))], [Depends(needs_admin)]
    team_from = bodies.of(TeamBody, needs_admin, body_bounds.OTHER)

    @routes.get("/teams", dependencies=reader, response_model=list[TeamAnswer], response_model_exclude_unset=True)
    def all_teams() -> list[Any]:
        """All teams, by name, with what they use and may use now."""
        return [plain(team_value(one)) for one in teams.standings()]

    @routes.get("/teams/{name}", dependencies=reader, response_model=TeamAnswer, response_model_exclude_unset=True)
    def one_team(name: _Name) -> Any:
        """One team."""
        return plain(team_value(teams.standing(name)))

    @routes.put(
        "/teams/{name}", dependencies=admin, openapi_extra=body_of(TeamBody), response_model=TeamAnswer, response_model_exclude_unset=True
    )
    def put(name: _Name, body: TeamBody = Depends(team_from), token: Token = Depends(needs_admin)) -> Any:
        """Make a team, or replace its limits and owners. Sent again, it changes nothing."""
        done = teams.set(Team(name, tuple(body.owners), Limits(body.slots, body.memory_bytes, body.gb_hours)), _who(token))
        return plain(team_value(teams.standing(name), done.lifts))

    @routes.delete("/teams/{name}", status_code=204, dependencies=admin)
    def delete(name: _Name, token: Token = Depends(needs_admin)) -> None:
        """Delete a team that has no loans and no mapping, and that no group names."""
        teams.delete(name, _who(token))

    @routes.get("/team-changes", dependencies=reader, response_model=None, responses=plain_answer(list[TeamChange]))
    def changes(team: Annotated[str | None, Query(max_length=100)] = None, limit: Annotated[int, Query(ge=1, le=1_000)] = 20) -> list[Any]:
        """Who changed what of teams, the newest change first."""
        return [plain(one) for one in teams.changes(limit, team)]

    routes.include_router(_mapping(teams, guard, bodies))
    routes.include_router(_exceptions(teams, guard, bodies))
    return routes


def _mapping(teams: ManageTeams, guard: Guard, bodies: Bodies) -> APIRouter:
    """Routes of the tables and catalogs that administrators gave to teams."""
    routes = APIRouter()
    needs_admin = guard.needs()
    reader, admin = [Depends(guard.needs(Role.READER))], [Depends(needs_admin)]
    mapping_from = bodies.of(MappingBody, needs_admin, body_bounds.OTHER)

    @routes.get("/team-mapping", dependencies=reader)
    def mapping() -> dict[str, str]:
        """The teams of the tables and catalogs that administrators gave to teams, by the names of these."""
        return dict(teams.mapping())

    @routes.put(
        "/team-mapping/{target}",
        dependencies=admin,
        openapi_extra=body_of(MappingBody),
        response_model=MappingAnswer,
        response_model_exclude_unset=True,
    )
    def put(target: _Target, body: MappingBody = Depends(mapping_from), token: Token = Depends(needs_admin)) -> Any:
        """Give a table, or all tables of a catalog, to a team. This wins over 'compaction.team'. Sent again, it changes nothing."""
        teams.map(target, body.team, _who(token))
        warning = teams.unknown_targets([target])
        return {"target": target, "team": body.team, **({"warning": warning} if warning else {})}

    @routes.delete("/team-mapping/{target}", status_code=204, dependencies=admin)
    def delete(target: _Target, token: Token = Depends(needs_admin)) -> None:
        """Take a mapping away. Then properties count again."""
        teams.map(target, None, _who(token))

    return routes


def _exceptions(teams: ManageTeams, guard: Guard, bodies: Bodies) -> APIRouter:
    """Routes of loans and of the whitelist."""
    routes = APIRouter()
    needs_admin = guard.needs()
    reader, admin = [Depends(guard.needs(Role.READER))], [Depends(needs_admin)]
    loan_from = bodies.of(LoanBody, needs_admin, body_bounds.OTHER)
    consent_from = bodies.of(ConsentBody, needs_admin, body_bounds.OTHER)
    whitelist_from = bodies.of(WhitelistBody, needs_admin, body_bounds.OTHER)

    @routes.get("/loans", dependencies=reader, response_model=None, responses=plain_answer(list[Loan]))
    def loans() -> list[Any]:
        """The loans that have not ended, those that nobody approved yet included."""
        return [plain(one) for one in teams.loans()]

    @routes.post("/loans", dependencies=admin, openapi_extra=body_of(LoanBody), response_model=None, responses=plain_answer(Loan))
    def lend(body: LoanBody = Depends(loan_from), token: Token = Depends(needs_admin)) -> Any:
        """Ask a team for a loan. It counts once approved, and is refused while too many optimizers of the borrower are of low use."""
        amount = Limits(slots=body.slots, gb_hours=body.gb_hours)
        return plain(teams.lend(body.lender, body.borrower, body.days, _who(token), amount, body.excuses))

    @routes.post(
        "/loans/{loan_id}/approve",
        dependencies=admin,
        openapi_extra=body_of(ConsentBody),
        response_model=None,
        responses=plain_answer(Loan),
    )
    def approve(loan_id: _Name, body: ConsentBody = Depends(consent_from), token: Token = Depends(needs_admin)) -> Any:
        """Let a loan begin now. The name of who consents for the lender is kept."""
        return plain(teams.approve(loan_id, body.consent, _who(token)))

    @routes.delete("/loans/{loan_id}", dependencies=admin, response_model=None, responses=plain_answer(Loan))
    def end(loan_id: _Name, token: Token = Depends(needs_admin)) -> Any:
        """End a loan early: slots at once, GB-hours at the next 00:00 UTC."""
        return plain(teams.end(loan_id, _who(token)))

    @routes.post(
        "/teams/{name}/whitelist",
        dependencies=admin,
        openapi_extra=body_of(WhitelistBody),
        response_model=None,
        responses=plain_answer(Whitelisted),
    )
    def whitelist(name: _Name, body: WhitelistBody = Depends(whitelist_from), token: Token = Depends(needs_admin)) -> Any:
        """Let a team work without its limits for a while."""
        return plain(teams.allow(name, body.days, body.reason, _who(token), body.refused_loan))

    return routes


def _who(token: Token) -> str:
    return f"token {token.token_id} ({token.name})"
