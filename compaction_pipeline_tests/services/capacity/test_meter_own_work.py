"""What planning, commits and ticks have used: nothing is counted twice, nothing is lost while the ledger is away, and teams are charged."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from typing import Any, cast
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compaction_pipeline.core.capacity.costs import CostKey
from compaction_pipeline.core.capacity.own_work import OwnKind, OwnSum, OwnWork, own_work_of
from compaction_pipeline.core.capacity.team import Team
from compaction_pipeline.core.errors import ConfigError, StorageUnavailable
from compaction_pipeline.core.leases.names import commit_lease, plan_lease, refresh_lease
from compaction_pipeline.core.leases.ports import Renew
from compaction_pipeline.core.stores import Stores
from compaction_pipeline.core.tables.table import CatalogEntry
from compaction_pipeline.services.capacity.meter_own_work import WRITTEN_EVERY, MeterOwnWork
from compaction_pipeline.services.held_lease import Leases
from compaction_pipeline_tests.builders import NOW, TABLE

TICK = "tick"
DAY = NOW.date()


@dataclass
class Machine:
    """Its clocks go on only when somebody works: a second of work uses half a second of CPU."""

    seconds: float = 0.0
    written: list[Sequence[OwnWork]] = field(default_factory=list)
    is_away: bool = False

    def work(self, seconds: float) -> None:
        self.seconds += seconds

    def spent(self) -> tuple[float, float]:
        return self.seconds, self.seconds / 2

    def now(self) -> datetime:
        return NOW + timedelta(seconds=self.seconds)

    def add_own(self, work: Sequence[OwnWork]) -> None:
        if self.is_away:
            raise StorageUnavailable("away")
        self.written.append(work)

    def meter(self, stores: Any) -> MeterOwnWork:
        ledger: Any = self
        return MeterOwnWork(ledger, stores.teams, stores.catalogs, stores.tables, self.now, self.spent)

    def sums(self) -> dict[tuple[OwnKind, str], tuple[int, float, float]]:
        return {(one.kind, one.table): (one.times, one.seconds, one.cpu_seconds) for work in self.written for one in work}


@pytest.mark.parametrize(
    ("lease", "kind"),
    [(plan_lease(TABLE), (OwnKind.PLAN, str(TABLE))), (commit_lease(TABLE), (OwnKind.COMMIT, str(TABLE))), (TICK, (OwnKind.TICK, ""))],
)
def test_a_lease_says_whose_work_it_is(lease: str, kind: tuple[OwnKind, str]) -> None:
    assert own_work_of(lease) == kind
    assert own_work_of(refresh_lease(TABLE)) is None


def test_work_inside_other_work_is_counted_once(stores: Stores) -> None:
    machine = Machine()
    meter = machine.meter(stores)
    with meter.measured(TICK):
        machine.work(1)
        with meter.measured(TICK), meter.measured(plan_lease(TABLE)):
            machine.work(2)
            with meter.measured(refresh_lease(TABLE)):
                machine.work(3)
        with meter.measured(commit_lease(TABLE)):
            machine.work(4)
    with suppress(KeyError), meter.measured(TICK):
        machine.work(5)
        raise KeyError
    assert machine.written == []
    meter.write()
    name = str(TABLE)
    assert machine.sums() == {
        (OwnKind.TICK, ""): (2, 6.0, 3.0),
        (OwnKind.PLAN, name): (1, 5.0, 2.5),
        (OwnKind.COMMIT, name): (1, 4.0, 2.0),
    }
    meter.write()
    assert len(machine.written) == 1


_trees: st.SearchStrategy[Any] = st.recursive(
    st.floats(0, 10), lambda inner: st.tuples(st.sampled_from([TICK, "plan:a.b", "commit:a.b", "upkeep:a.b"]), st.lists(inner, max_size=4))
)


@given(st.lists(_trees, max_size=5))
def test_all_of_it_together_is_the_time_in_which_something_was_measured(trees: list[Any]) -> None:
    machine, unused = Machine(), cast(Any, None)
    meter = MeterOwnWork(unused, unused, unused, unused, lambda: NOW, machine.spent)
    whole = 0.0

    def do(tree: Any, inside: bool) -> None:
        nonlocal whole
        if isinstance(tree, float):
            machine.work(tree)
            whole += tree if inside else 0.0
            return
        with meter.measured(tree[0]):
            for each in tree[1]:
                do(each, inside or own_work_of(tree[0]) is not None)

    for tree in trees:
        do(tree, inside=False)
    assert sum(one.seconds for one in meter._sums.values()) == pytest.approx(whole)
    assert sum(one.cpu_seconds for one in meter._sums.values()) == pytest.approx(whole / 2)


def test_it_is_written_once_a_minute_and_kept_while_the_ledger_is_away(stores: Stores) -> None:
    machine = Machine()
    meter = machine.meter(stores)

    def tick(seconds: float) -> None:
        with meter.measured(TICK):
            machine.work(seconds)

    for _ in range(6):
        tick(WRITTEN_EVERY.total_seconds() / 5)
    assert machine.sums() == {(OwnKind.TICK, ""): (6, 72.0, 36.0)}
    machine.is_away = True
    tick(100)
    machine.is_away = False
    tick(100)
    assert machine.sums() == {(OwnKind.TICK, ""): (2, 200.0, 100.0)}


def test_a_tables_team_pays_and_the_ledger_sums_days(stores: Stores) -> None:
    stores.catalogs.add(CatalogEntry("lake", {"table.compaction.team": "ant"}))
    stores.teams.put(Team("ant"), "root", NOW)
    machine = Machine()
    meter = MeterOwnWork(stores.costs, stores.teams, stores.catalogs, stores.tables, machine.now, machine.spent)

    def work(lease: str, seconds: float) -> None:
        with meter.measured(lease):
            machine.work(seconds)

    for lease in (plan_lease(TABLE), commit_lease("sea.db.gone"), TICK, TICK):
        work(lease, 2)
    known = stores.catalogs.entry

    def entry(name: str) -> CatalogEntry:
        if name == "sea":
            raise ConfigError("the secrets of catalog sea cannot be read")
        return known(name)

    with mock.patch.object(stores.catalogs, "entry", entry):
        meter.write()
    work(plan_lease(TABLE), 4)
    meter.write()

    def own(by: CostKey) -> Sequence[OwnSum]:
        return stores.costs.own(by, DAY, DAY)

    assert own(CostKey.TYPE) == [
        OwnSum("plan", OwnKind.PLAN, 2, 6.0, 3.0),
        OwnSum("tick", OwnKind.TICK, 2, 4.0, 2.0),
        OwnSum("commit", OwnKind.COMMIT, 1, 2.0, 1.0),
    ]
    assert [(one.key, one.seconds) for one in own(CostKey.TABLE)] == [(str(TABLE), 6.0), ("", 4.0), ("sea.db.gone", 2.0)]
    assert [(one.key, one.kind.value) for one in own(CostKey.DAY)] == [(DAY.isoformat(), kind) for kind in ("commit", "plan", "tick")]
    assert [(one.key, one.seconds) for one in own(CostKey.TEAM)] == [("ant", 6.0), ("", 4.0), ("unassigned", 2.0)]
    assert own(CostKey.GROUP) == ()
    assert stores.costs.own(CostKey.TYPE, DAY - timedelta(days=9), DAY - timedelta(days=1)) == []
    stores.costs.expire(DAY + timedelta(days=1), date.min)
    assert own(CostKey.TYPE) == []


def test_what_is_done_under_a_lease_is_measured_and_a_lease_that_another_holds_is_not(stores: Stores) -> None:
    machine = Machine()
    meter = machine.meter(stores)

    def beats(renew: Renew) -> AbstractContextManager[None]:
        return nullcontext()

    names = iter("abcd")
    leases = Leases(stores.leases, machine.now, beats, lambda: next(names), meter.measured)
    with leases.hold(plan_lease(TABLE)) as mine, leases.hold(plan_lease(TABLE)) as other:
        machine.work(1)
        assert (mine is None, other is None) == (False, True)
    meter.write()
    assert machine.sums() == {(OwnKind.PLAN, str(TABLE)): (1, 1.0, 0.5)}
