"""A team may lend a part of its limit to another: this module decides who may lend how much, and when a loan ends.

The borrower asks, and an administrator approves with the name of the person who consents for the lender. From then on the borrower may use
more and the lender less, until the loan ends. A loan is no longer counted after its end, so nothing has to run for that.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta, timezone
from math import isfinite

from compaction_pipeline.core.capacity.team import MOST_GB_HOURS, MOST_SLOTS, Limits, Team
from compaction_pipeline.core.errors import ConfigError
from compaction_pipeline.core.words import time_text

LONGEST_LOAN = timedelta(days=30)
_INSTANT = timedelta(microseconds=1)


@dataclass(frozen=True, slots=True)
class Loan:
    """Slots at a time, or GB-hours of each day, that a team asked another one for. One of both is 0.

    It counts from `began_at`, when an administrator approved it, and as long as `now < end`. `consent` is the name of the person who
    consented for the lender. `excuses` are the borrower's words why optimizers of its own are of low use and cannot be used better, by
    their ids (`core.capacity.low_use_share`).
    """

    loan_id: str
    lender: str
    borrower: str
    until: datetime
    asked_by: str
    asked_at: datetime
    slots: int = 0
    gb_hours: float = 0.0
    consent: str = ""
    approved_by: str = ""
    began_at: datetime | None = None
    ended_at: datetime | None = None
    excuses: Mapping[str, str] = field(default_factory=dict)

    @property
    def end(self) -> datetime:
        """When the loan ends, or ended."""
        return self.until if self.ended_at is None else min(self.until, self.ended_at)

    def counts(self, now: datetime) -> bool:
        """Whether the loan changes limits now."""
        return self.began_at is not None and self.began_at <= now < self.end

    @property
    def in_words(self) -> str:
        """For example: 4 slots of team shop for team lake."""
        amount = f"{self.slots} slot{'' if self.slots == 1 else 's'}" if self.slots else f"{self.gb_hours:g} GB-hours a day"
        return f"{amount} of team {self.lender} for team {self.borrower}"


def next_midnight(moment: datetime) -> datetime:
    """Return the first 00:00 UTC that is not before this moment."""
    day = moment.astimezone(timezone.utc).replace(hour=0, minute=0, second=0, microsecond=0)
    return day if day == moment else day + timedelta(days=1)


def asked(loan: Loan) -> Loan:
    """Return a loan as it may be asked for. Raises ConfigError.

    GB-hours are those of a day, so such a loan ends at 00:00 UTC: the first one that is not before `until`.
    """
    if loan.lender == loan.borrower:
        raise ConfigError(f"team {loan.lender} cannot lend to itself; name another team as the lender")
    if loan.slots < 0 or loan.gb_hours < 0 or not isfinite(loan.gb_hours) or (loan.slots > 0) == (loan.gb_hours > 0):
        raise ConfigError("a loan is of slots or of GB-hours: give one of 'slots' and 'gb_hours', and more than 0 of it")
    for key, amount, most in (("slots", loan.slots, MOST_SLOTS), ("gb_hours", loan.gb_hours, MOST_GB_HOURS)):
        if amount > most:
            raise ConfigError(f"'{key}' of the loan is {amount:g} but must be at most {most:g}, as a limit of a team must")
    if not loan.asked_at < loan.until <= loan.asked_at + LONGEST_LOAN:
        raise ConfigError(
            f"'until' of the loan is {time_text(loan.until)} but must be later than now, and at most {LONGEST_LOAN.days} days away"
        )
    if loan.slots:
        return loan
    until = next_midnight(loan.until)
    return replace(loan, until=until if until <= loan.asked_at + LONGEST_LOAN else until - timedelta(days=1))


def lent(loans: Iterable[Loan], lender: str, now: datetime) -> Limits:
    """Return what a team has lent now."""
    counted = [loan for loan in loans if loan.lender == lender and loan.counts(now)]
    return Limits(slots=sum(loan.slots for loan in counted), gb_hours=sum(loan.gb_hours for loan in counted))


def check_possible(loan: Loan, lender: Team, borrower: Team) -> None:
    """Raise ConfigError for a loan that nobody could approve, whatever is lent and used: one of more than the lender's own limit."""
    unit, amount, own, of_borrower = _amounts(loan, lender, borrower)
    without = lender if own is None else borrower if of_borrower is None else None
    if without is not None:
        key = "slots" if loan.slots else "gb-hours"
        raise ConfigError(
            f"team {without.name} has no limit of {unit}, so there is nothing to lend: `team set {without.name} --{key} …` sets one"
        )
    if amount > (own or 0):
        raise ConfigError(f"team {lender.name} has {own:g} {unit} in all, so it cannot lend {amount:g}; ask for less, or another team")


def _amounts(loan: Loan, lender: Team, borrower: Team) -> tuple[str, float, float | None, float | None]:
    """What the loan is of and how much of it, and how much of that both teams have as their own limits."""
    if loan.slots:
        return "slots", loan.slots, lender.limits.slots, borrower.limits.slots
    return "GB-hours a day", loan.gb_hours, lender.limits.gb_hours, borrower.limits.gb_hours


def check_approval(loan: Loan, lender: Team, borrower: Team, loans: Iterable[Loan], used_today: float, now: datetime) -> None:
    """Raise ConfigError when a loan may not begin now. `used_today` are the GB-hours that the lender has used today.

    Only a team's own limit counts here, so what it borrowed itself is never lent on. GB-hours that it has used today are gone, so it
    cannot lend them either. Slots that it still uses are held back from the borrower (`core.capacity.limits`).
    """
    if loan.began_at is not None:
        raise ConfigError(f"loan {loan.loan_id} was approved already by {loan.approved_by}")
    if now >= loan.end:
        raise ConfigError(f"loan {loan.loan_id} ended at {time_text(loan.end)} before anybody approved it; ask for another one")
    check_possible(loan, lender, borrower)
    unit, amount, own, _ = _amounts(loan, lender, borrower)
    already = lent(loans, lender.name, now)
    rest = (own or 0) - ((already.slots or 0) if loan.slots else (already.gb_hours or 0.0) + used_today)
    if amount > rest:
        raise ConfigError(
            f"team {lender.name} has {max(0, rest):g} {unit} to lend now, and the loan is of {amount:g}: what it has "
            "lent already, what it has borrowed, and what it has used today cannot be lent"
        )


def check_change(before: Team, after: Team | None, loans: Iterable[Loan], now: datetime) -> None:
    """Raise ConfigError when loans forbid a change of a team. `after` is None when the team is to be deleted."""
    own = [loan for loan in loans if before.name in (loan.lender, loan.borrower)]
    counted = [loan for loan in own if (now < loan.end if after is None else loan.counts(now))]
    if not counted:
        return
    listed = "; ".join(f"{loan.loan_id}: {loan.in_words} until {time_text(loan.end)}" for loan in counted[:5])
    if after is None:
        raise ConfigError(
            f"team {before.name} cannot be deleted while it has loans, or loans of it wait for approval ({listed}); end them first with "
            f"`compaction-pipeline team end {counted[0].loan_id}`"
        )
    out = lent(counted, before.name, now)
    for key, amount, limit in (("slots", out.slots, after.limits.slots), ("gb_hours", out.gb_hours, after.limits.gb_hours)):
        if amount and (limit is None or limit < amount):
            shown = "absent" if limit is None else f"{limit:g}"
            raise ConfigError(f"'{key}' of team {before.name} is {shown} but must be at least {amount:g}, which it has lent ({listed})")


def moment_of_move(loans: Iterable[Loan], earliest: datetime) -> datetime:
    """Return the first instant from `earliest` on at which slots may move, later than all moves so far.

    Moves of one instant would have no order, and then nobody could say which team owes its slots to which (`core.capacity.limits`).
    """
    of_slots = [loan for loan in loans if loan.slots and loan.began_at is not None]
    given = [at for loan in of_slots for at in (loan.began_at, loan.ended_at) if at is not None]
    moment = max([earliest, *(at + _INSTANT for at in given)])
    ends = {loan.until for loan in of_slots}
    while moment in ends:
        moment += _INSTANT
    return moment


def ended(loan: Loan, now: datetime) -> Loan:
    """Return the loan with the end that a person gave it now. What was used of lent GB-hours today stays used, so these end at midnight."""
    return replace(loan, ended_at=next_midnight(now) if loan.gb_hours and loan.began_at is not None else now)
