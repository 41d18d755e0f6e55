"""`team`: who pays for compaction, and how much each team may use. The operating system's user is written down with each change."""

from __future__ import annotations

import getpass
import os
from pathlib import Path

import typer

from compaction_pipeline.cli.app import GLOBAL_HELP, command_group
from compaction_pipeline.cli.session import Session
from compaction_pipeline.core.capacity.team import MOST_MEMORY, Limits, Team
from compaction_pipeline.core.errors import ConfigError
from compaction_pipeline.core.insight.plain import plain
from compaction_pipeline.core.insight.team_value import team_value
from compaction_pipeline.core.words import time_text

teams = typer.Typer(
    no_args_is_help=True,
    help=(
        "See what teams use, limit them, lend limits and map tables to teams. A table names its team in 'compaction.team'."
        "\n\nExamples:\n\n  compaction-pipeline team list"
    ),
    epilog=GLOBAL_HELP,
)
commands = command_group()
commands.add_typer(teams, name="team")

_NAME = typer.Argument(help="The name of the team.")
_LOAN = typer.Argument(
    help="The id of the loan, as `team list` shows it, or 4 or more characters of its beginning if no other id begins so."
)
_DAYS = typer.Option(1.0, "--days", help="It ends by itself after so many days.")
_MOST_CHANGES = 20


def _reasons(texts: list[str]) -> dict[str, str]:
    """The reasons by the ids of optimizers. Raises ConfigError."""
    for text in texts:
        if "=" not in text or not all(part.strip() for part in text.split("=", 1)):
            raise ConfigError(f"--why is {text[:100]!r} but must be OPTIMIZER=REASON, e.g. --why 'optimizer-3f2a9c=its jobs come at night'")
    return {name.strip(): reason for name, reason in (text.split("=", 1) for text in texts)}


def _user() -> str:
    """The user of the operating system. In a container its number may have no name."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return f"uid {os.getuid()}"


@teams.command("list", epilog=GLOBAL_HELP)
def list_(context: typer.Context) -> None:
    """List what each team uses and may use now, the loans that have not ended, and the mapping.

    Examples:

      compaction-pipeline team list --json
    """
    from compaction_pipeline.cli.render_teams import loans_table, mapping_table, teams_table

    with Session(context) as session:
        manage = session.services.manage_teams
        found, loans, mapping = manage.standings(), manage.loans(), manage.mapping()
        value = {"teams": [team_value(one) for one in found], "loans": plain(loans), "mapping": dict(mapping)}
        more = [loans_table(loans)] * bool(loans) + [mapping_table(mapping)] * bool(mapping)
        session.output.answer(value, teams_table(found), *more)


@teams.command("set", epilog=GLOBAL_HELP)
def set_(
    context: typer.Context,
    name: str = _NAME,
    slots: int | None = typer.Option(None, "--slots", min=0, help="How many tasks the team may run at a time."),
    memory_gb: float | None = typer.Option(None, "--memory-gb", min=0, help="How many GB its tasks may reserve at a time."),
    gb_hours: float | None = typer.Option(None, "--gb-hours", min=0, help="How many GB-hours it may use in a UTC day."),
    owners: list[str] = typer.Option([], "--owner", help="A person or address behind the team. Repeat the option for each."),
) -> None:
    """Make a team, or replace the limits and owners of the one with this name. A limit that is not given is no limit.

    The answer names the limits and owners that the team had before, and no longer has.

    Examples:

      compaction-pipeline team set shop --slots 8 --gb-hours 200 --owner shop@example.com
    """
    with Session(context) as session:
        if memory_gb is not None and not 0 <= memory_gb <= MOST_MEMORY / 10**9:
            raise ConfigError(f"'--memory-gb' is {memory_gb} but must be from 0 to {MOST_MEMORY / 10**9:,.0f}; leave it out for no limit")
        limits = Limits(slots, None if memory_gb is None else round(memory_gb * 10**9), gb_hours)
        done = session.services.manage_teams.set(Team(name, tuple(owners), limits), _user())
        standing = session.services.manage_teams.standing(name)
        said = f"team {name} {'is set' if done.changed else 'was so already'}"
        session.output.answer(team_value(standing, done.lifts), f"{said}; this lifts {', '.join(done.lifts)}" if done.lifts else said)


@teams.command(epilog=GLOBAL_HELP)
def apply(context: typer.Context, file: Path = typer.Argument(help="A YAML file: names of teams, and below each what it may use.")) -> None:
    """Set the teams of a file, and map their tables. Teams that the file does not name stay as they are.

    Below a name stand `slots`, `memory-gb`, `gb-hours`, `owners` and `tables`, the tables and catalogs that belong to the team. Each may be
    left out.

    Examples:

      compaction-pipeline team apply teams.yaml
    """
    with Session(context) as session:
        manage = session.services.manage_teams
        changed = manage.apply(file, _user())
        said = f"changed: {', '.join(changed)}" if changed else "all of it was so already"
        lifts = {name: list(words) for name, words in changed.items() if words}
        said += "".join(f"; for team {name} this lifts {', '.join(words)}" for name, words in lifts.items())
        warning = manage.unknown_targets(set(changed) - {one.team.name for one in manage.standings()})
        value = {"changed": list(changed), **({"lifts": lifts} if lifts else {})}
        session.output.answer(value, f"{said}; {warning}" if warning else said)


@teams.command(epilog=GLOBAL_HELP)
def delete(context: typer.Context, name: str = _NAME) -> None:
    """Delete a team that has no loans and no mapping, and that no group names. Tables that name it are charged to `unassigned` then.

    Examples:

      compaction-pipeline team delete shop
    """
    with Session(context) as session:
        session.services.manage_teams.delete(name, _user())
        session.output.answer({"team": name, "deleted": True}, f"team {name} is deleted")


@teams.command(epilog=GLOBAL_HELP)
def lend(
    context: typer.Context,
    lender: str = typer.Argument(help="The team that shall lend a part of its limit."),
    borrower: str = typer.Argument(help="The team that asks for it."),
    slots: int = typer.Option(0, "--slots", min=0, help="So many slots at a time."),
    gb_hours: float = typer.Option(0.0, "--gb-hours", min=0, help="So many GB-hours of each day. Such a loan ends at 00:00 UTC."),
    days: float = _DAYS,
    why: list[str] = typer.Option(
        [], "--why", metavar="OPTIMIZER=REASON", help="Why an optimizer of low use cannot be used better. Repeat the option for each."
    ),
) -> None:
    """Ask a team to lend a part of its limit. The loan counts once `team approve` was run for it.

    It is refused while more than a tenth of the borrower's own optimizers are of low use, unless you say why of each. The lender sees that.

    Examples:

      compaction-pipeline team lend lake shop --slots 4 --days 2
    """
    with Session(context) as session:
        excuses = _reasons(why)
        amount = Limits(slots=slots, gb_hours=gb_hours)
        loan = session.services.manage_teams.lend(lender, borrower, days, _user(), amount, excuses)
        text = f"loan {loan.loan_id}: {loan.in_words} until {time_text(loan.end)}; it waits for `team approve {loan.loan_id}`"
        session.output.answer(plain(loan), text)


@teams.command(epilog=GLOBAL_HELP)
def approve(
    context: typer.Context,
    loan: str = _LOAN,
    consent: str = typer.Option(..., "--consent", help="The name of the person who consents for the team that lends."),
) -> None:
    """Let a loan begin now.

    Examples:

      compaction-pipeline team approve 3f2a9c --consent "Bob of lake"
    """
    with Session(context) as session:
        begun = session.services.manage_teams.approve(loan, consent, _user())
        session.output.answer(plain(begun), f"loan {begun.loan_id} has begun: {begun.in_words} until {time_text(begun.end)}")


@teams.command(epilog=GLOBAL_HELP)
def end(context: typer.Context, loan: str = _LOAN) -> None:
    """End a loan early: slots at once, GB-hours at the next 00:00 UTC.

    Examples:

      compaction-pipeline team end 3f2a9c
    """
    with Session(context) as session:
        ended = session.services.manage_teams.end(loan, _user())
        session.output.answer(plain(ended), f"loan {ended.loan_id} ends at {time_text(ended.end)}")


@teams.command(epilog=GLOBAL_HELP)
def whitelist(
    context: typer.Context,
    name: str = _NAME,
    reason: str = typer.Option(..., "--reason", help="Why the team may work without its limits."),
    days: float = _DAYS,
    refused_loan: str = typer.Option("", "--refused-loan", help="The id of a loan that was refused to the team before."),
) -> None:
    """Let a team work without its limits for a while.

    Examples:

      compaction-pipeline team whitelist shop --days 0.5 --reason "the backfill of order 4711"
    """
    with Session(context) as session:
        entry = session.services.manage_teams.allow(name, days, reason, _user(), refused_loan)
        session.output.answer(plain(entry), f"team {name} has no limits until {time_text(entry.until)}")


@teams.command("map", epilog=GLOBAL_HELP)
def map_(
    context: typer.Context,
    name: str = _NAME,
    target: str = typer.Argument(help="A table (catalog.namespace.table) or a catalog."),
    remove: bool = typer.Option(False, "--remove", help="Take the mapping away instead. Then properties count again."),
) -> None:
    """Give a table, or all tables of a catalog, to a team. This wins over 'compaction.team', and a table's mapping over its catalog's.

    Examples:

      compaction-pipeline team map shop lake.shop.orders
    """
    with Session(context) as session:
        manage = session.services.manage_teams
        owner = manage.mapping().get(target.strip())
        if remove and owner not in (None, name):
            raise ConfigError(f"{target} is mapped to team {owner}, not to {name}: `team map {owner} {target} --remove` takes that away")
        manage.map(target, None if remove else name, _user())
        said = f"{target} is mapped to no team" if remove else f"{target} is mapped to team {name}"
        warning = None if remove else manage.unknown_targets([target])
        said += f"; {warning}" if warning else ""
        session.output.answer({"target": target, "team": None if remove else name}, said)


@teams.command(epilog=GLOBAL_HELP)
def changes(
    context: typer.Context,
    name: str | None = typer.Argument(None, help="The name of the team. Without it, every team."),
    most: int = typer.Option(_MOST_CHANGES, "--limit", min=1, max=1_000, help="So many changes at most, the newest first."),
) -> None:
    """Show who changed what of teams, when, and what was before and after.

    Examples:

      compaction-pipeline team changes shop
    """
    from compaction_pipeline.cli.render_teams import changes_table

    with Session(context) as session:
        found = session.services.manage_teams.changes(most, name)
        session.output.answer(plain(found), changes_table(found) if found else "nothing has changed")
