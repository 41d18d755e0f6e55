"""Loans that are refused for low use, the words that let them pass, and what names a refused loan later."""

from __future__ import annotations

import json
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest

from compaction_pipeline.core.capacity.low_use import Use
from compaction_pipeline.core.capacity.low_use_share import UseHours
from compaction_pipeline.core.capacity.team import Limits, Team
from compaction_pipeline.core.errors import ConfigError, NotFoundError
from compaction_pipeline.core.queue.group import ResourceGroup
from compaction_pipeline.core.stores import Stores
from compaction_pipeline.core.tables.table import CatalogEntry
from compaction_pipeline.services.capacity.manage_teams import KnownTargets, ManageTeams
from compaction_pipeline.services.capacity.read_use import OptimizerUse
from compaction_pipeline_tests.builders import NOW


class Uses:
    """An idle optimizer of `ant`, one that is used well, one that nobody can judge yet, and an idle one of everybody."""

    def uses(self) -> list[OptimizerUse]:
        idle = Use(0, ("1 of 1 slot idle for 30 minutes on average",))
        return [
            OptimizerUse("idle", "of-ant", 1, idle),
            OptimizerUse("good", "of-ant", 1, Use(100)),
            OptimizerUse("new", "of-ant", 1, None),
            OptimizerUse("common", "default", 1, idle),
        ]


@pytest.fixture
def manage(stores: Stores) -> ManageTeams:
    ids = iter(f"loan{number}" for number in range(9))
    uses: Any = Uses()
    known = KnownTargets(stores.tables, stores.catalogs, stores.groups)
    made = ManageTeams(stores.teams, known, uses, lambda: datetime.now(timezone.utc), lambda: next(ids))
    for name in ("ant", "bee"):
        made.set(Team(name, (), Limits(slots=4)), "root")
    stores.groups.add(ResourceGroup("of-ant", properties={"team": "ant"}))
    return made


def test_a_loan_is_refused_for_low_use_and_the_refusal_is_kept(manage: ManageTeams) -> None:
    with pytest.raises(ConfigError, match=r"1 of its 2 optimizers .*idle: 1 of 1 slot idle .*the refused loan is loan0"):
        manage.lend("bee", "ant", 1, "ann", Limits(slots=2))
    assert manage.loans() == ()
    refused = next(iter(manage.changes(1, "ant")))
    assert refused.what == "loan refused: loan0"
    assert "1 of its 2 optimizers" in (refused.before or "")
    with pytest.raises(NotFoundError, match="no loan 'loan7' was refused to team ant"):
        manage.allow("ant", 1, "a backfill", "root", "loan7")
    assert manage.allow("ant", 1, "a backfill", "root", "loan0").refused_loan == "loan0"
    exempt = manage.standing("ant").exempt
    assert exempt is not None
    assert exempt.refused_loan == "loan0"


def test_a_wish_that_nobody_could_grant_is_stored_nowhere(manage: ManageTeams) -> None:
    changes = manage.changes(10, "ant")
    for borrower, amount, excuses, says in (
        ("ant", Limits(slots=10**4), {}, "in all, so it cannot lend 10000"),
        ("ant", Limits(gb_hours=1.0), {}, "no limit of GB-hours a day"),
        ("cow", Limits(slots=1), {}, "team 'cow' does not exist"),
        ("ant", Limits(slots=1), {"idel": "a slip"}, "'idel' is no optimizer of a group of team ant"),
    ):
        with pytest.raises((ConfigError, NotFoundError), match=says):
            manage.lend("bee", borrower, 1, "ann", amount, excuses)
    assert (manage.loans(), manage.changes(10, "ant")) == ((), changes)


def test_the_lender_reads_why_and_a_team_of_common_optimizers_is_asked_nothing(manage: ManageTeams) -> None:
    loan = manage.lend("bee", "ant", 1, "ann", Limits(slots=2), {"idle": " its jobs come at night "})
    assert dict(loan.excuses) == {"idle": "its jobs come at night"}
    assert manage.loans() == (loan,)
    assert json.loads(next(iter(manage.changes(1, "bee"))).after or "")["excuses"] == {"idle": "its jobs come at night"}
    assert manage.lend("ant", "bee", 1, "bob", Limits(slots=1)).excuses == {}


def test_a_team_with_a_loan_that_nobody_approved_is_not_deleted(manage: ManageTeams) -> None:
    loan = manage.lend("ant", "bee", 1, "bob", Limits(slots=1))
    with pytest.raises(ConfigError, match=r"team bee cannot be deleted while it has loans, or loans .* wait for approval .*end loan0"):
        manage.delete("bee", "root")
    manage.end(loan.loan_id, "root")
    manage.delete("bee", "root")


def test_a_name_that_nothing_has_is_told(manage: ManageTeams, stores: Stores) -> None:
    stores.catalogs.add(CatalogEntry("lake", {}))
    assert manage.unknown_targets(["lake"]) is None
    assert "no table or catalog laek, lake.shop.order is known" in (manage.unknown_targets(["laek", "lake", "lake.shop.order"]) or "")


def test_looks_at_optimizers_add_up_to_hours(stores: Stores) -> None:
    """Only time between two looks counts, and at most five minutes of it."""
    at = NOW.replace(minute=58, second=0, microsecond=0)
    for passed, low in ((0, ["a", "b"]), (1, ["a"]), (4, []), (30, ["b"])):
        stores.costs.note_use({"a": "heavy", "b": "heavy", "c": "light"}, low, at + timedelta(minutes=passed))
    assert {one.group: (round(one.hours * 60), round(one.low_hours * 60)) for one in stores.costs.use_hours(at)} == {
        "heavy": (2 * (1 + 3 + 5), 1 + 5),
        "light": (1 + 3 + 5, 0),
    }
    assert stores.costs.use_hours(at + timedelta(hours=1)) == (UseHours("heavy", 16 / 60, 5 / 60), UseHours("light", 8 / 60, 0.0))
    stores.costs.expire((at + timedelta(days=1)).date(), at.date())
    assert stores.costs.use_hours(at) == ()


def test_a_unique_beginning_of_a_loans_id_is_enough(manage: ManageTeams, stores: Stores) -> None:
    for borrower in ("cat", "dog"):
        manage.set(Team(borrower, (), Limits(slots=1)), "root")
        manage.lend("bee", borrower, 1, "ann", Limits(slots=1))
    with pytest.raises(ConfigError, match=r"'loan' is the beginning of 2 loans \(loan[01], loan[01]\); give more of the id"):
        manage.approve("loan", "Bob", "root")
    with pytest.raises(NotFoundError, match="loan '' does not exist"):
        manage.end("", "root")
    with pytest.raises(NotFoundError, match="loan 'lo1' does not exist"):
        manage.end("lo1", "root")
    for short in ("l", "loa"):
        with pytest.raises(NotFoundError, match=f"loan '{short}' does not exist, and a beginning of an id must have at least 4 characters"):
            manage.end(short, "root")
    assert manage.end("loan0", "root").loan_id == "loan0"
    with pytest.raises(NotFoundError, match="must have at least 4 characters; give more of the id"):
        manage.approve("lo", "Bob", "root")
    assert manage.approve("loan", "Bob", "root").loan_id == "loan1"


def test_a_mapping_is_stored_under_the_name_that_a_table_has(manage: ManageTeams) -> None:
    assert manage.map(" lake.`shop`.events ", "ant", "root")
    assert manage.mapping() == {"lake.shop.events": "ant"}
    assert manage.map("lake.shop.`events`", None, "root")
    for name in ("lake.shop.\0", "not a name", "lake..events", "lake.`shop.events"):
        with pytest.raises(ConfigError):
            manage.map(name, "ant", "root")
        with pytest.raises(ConfigError):
            manage.map(name, None, "root")
    assert manage.mapping() == {}


def test_a_mapping_of_an_earlier_release_is_taken_away_as_it_is_written(stores: Stores, manage: ManageTeams) -> None:
    stores.teams.map("lake.`shop`.events", "ant", "root", NOW)
    assert manage.map("lake.`shop`.events", None, "root")
    assert manage.mapping() == {}
