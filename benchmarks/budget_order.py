"""Reports what a team's GB-hours buy on the demo's tables, with the order by benefit and without it.

    python benchmarks/budget_order.py                       # 90 commits to each table, a budget of 0.3 of what all work costs
    python benchmarks/budget_order.py --batches 40 --share 0.5
    python benchmarks/budget_order.py --batches 15 --heavier 200   # commits to `devices` have so many times more rows

The same backlog is written and worked off again and again, each time by another policy, until the budget of the team is used up: `off`
plans as if nobody could predict a cost, so what is the most urgent goes first; `on` is what ticks do, with the line of the budget in each
table; `ranked` carries out the list of `plan --budget` from its top. `all` has no budget. It prints the files and deletes that a reader of
all tables no longer opens, the deletes applied, and the GB-hours of the ledger. One slot merges in this process, and a first backlog is
compacted before, which the costs are predicted from. The policies run in turns, `--rounds` times; the figures are medians.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import astuple, dataclass, replace
from datetime import datetime, timedelta, timezone
from functools import partial
from pathlib import Path
from statistics import median
from unittest import mock

from measure import load_average, positive
from opened_services import OpenedServices, opened

from compaction_pipeline.core.capacity.costs import CostKey
from compaction_pipeline.core.capacity.team import Limits, Team
from compaction_pipeline.core.planning.plan import PlanRequest
from compaction_pipeline.core.queue.drain import Drain, Takes
from compaction_pipeline.core.queue.task import TaskStatus
from compaction_pipeline.core.tables.deletes.applies import DeleteIndex
from compaction_pipeline.core.tables.table import TableIdentifier
from compaction_pipeline.core.tables.team_name import UNASSIGNED
from compaction_pipeline.demo.options import CATALOG, DemoOptions
from compaction_pipeline.demo.tables import DEVICES, NAMESPACE, TABLES
from compaction_pipeline.demo.warehouse import catalog_entry, make_tables
from compaction_pipeline.demo.writers import Writer
from compaction_pipeline.services.planning.payers import Payers
from compaction_pipeline.settings import Settings

RUN_MEMORY = 2 * 10**9
IDS = tuple(TableIdentifier(CATALOG, (NAMESPACE,), name) for name in TABLES)
TICK = timedelta(seconds=60)


@dataclass(frozen=True)
class Bought:
    """What a policy did: what readers open less, the deletes that were applied, the tasks, and their GB-hours."""

    opened_less: float
    deletes: float
    tasks: float
    gb_hours: float


class Demo:
    """The demo's plain tables in a folder of their own, with a backlog, after a smaller one was compacted."""

    def __init__(self, folder: Path, batches: int, heavier: int = 1) -> None:
        options = DemoOptions(folder)
        options.make_folders()
        make_tables(options)
        settings = Settings(home=folder / "home", merge_engine="in-process", run_memory=RUN_MEMORY, task_slots=1)
        self.services = opened(settings)
        self.services.explore_catalogs.register(catalog_entry(options))
        devices = replace(DEVICES, changes_per_commit=heavier * DEVICES.changes_per_commit)
        writers = [Writer(options, table, seed) for seed, table in enumerate({**TABLES, DEVICES.name: devices}.values())]
        for _ in range(2):
            self._write(writers, 15)
            for table in IDS:
                self.services.compact_tables.compact(table, PlanRequest(force=True))
        # A process remembers for a minute that nobody could predict a cost. This one starts again, and knows the attempts.
        self.services.close()
        self.services = opened(settings)
        self._write(writers, batches)
        for writer in writers:
            writer.close()

    def _write(self, writers: Sequence[Writer], batches: int) -> None:
        for writer in writers:
            for _ in range(batches):
                writer.commit_batch(datetime.now(timezone.utc))
        self.refresh()

    def refresh(self) -> None:
        for table in IDS:
            self.services.one_table.refresh(table)

    def spent(self) -> float:
        return sum(one.gb_hours or 0.0 for one in self.services.read_costs.costs(CostKey.TABLE, 2).costs)

    def opened(self) -> int:
        """How many files a reader of all tables opens: each data file, and for each the delete files that apply to it."""
        self.refresh()
        return sum(self._opened_of(table) for table in IDS)

    def _opened_of(self, table: TableIdentifier) -> int:
        files = self.services.stores.files.files(table)
        loaded = self.services.stores.tables.state(table).index.loaded
        assert loaded is not None
        deletes = DeleteIndex([file for file in files if not file.is_data], loaded.layout.unpartitioned_spec_ids)
        data = [file for file in files if file.is_data]
        return len(data) + sum(sum(1 for _ in deletes.of(file)) for file in data)


Policy = Callable[[Demo, float], None]
"""Plans and merges on a demo until so many GB-hours were spent."""


def _drain(demo: Demo, until: float, takes: Takes | None = None) -> None:
    """Merge what waits in the order of the queue, until so many GB-hours are spent in all."""

    def queues() -> Sequence[str | None]:
        return (None,) if demo.spent() < until else ()

    demo.services.work_on_queue.drain("benchmark", Drain(takes or Takes(queues=queues)))


def _by_ticks(demo: Demo, budget: float) -> None:
    until = demo.spent() + budget
    if budget < float("inf"):
        demo.services.manage_teams.set(Team(UNASSIGNED, (), Limits(gb_hours=until)), "benchmark")
    list(demo.services.sweep_tables.plan_due(IDS, TICK))
    _drain(demo, until)


def _without_order(demo: Demo, budget: float) -> None:
    with mock.patch.object(Payers, "fits", return_value={}):
        _by_ticks(demo, budget)


def _ranked(demo: Demo, budget: float) -> None:
    until = demo.spent() + budget
    for one in demo.services.rank_by_benefit.rank(budget).nodes:
        if demo.spent() >= until or not one.is_within:
            return
        request = PlanRequest(nodes=frozenset({one.due.node}))
        planned = demo.services.plan_tables.plan(one.due.table, request, unlimited=True)
        _drain(demo, until, Takes.only([task.task_id for task in planned.tasks]))


POLICIES: Mapping[str, Policy] = {"off": _without_order, "on": _by_ticks, "ranked": _ranked}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batches", type=positive, default=90, help="commits to each table before the policy plans")
    parser.add_argument("--share", type=float, default=0.3, help="the budget, as a share of what all work costs")
    parser.add_argument("--rounds", type=positive, default=3)
    parser.add_argument("--heavier", type=positive, default=1, help="how many times more rows a commit to the table `devices` has")
    arguments = parser.parse_args()
    print(f"{arguments.batches} commits to each of {len(IDS)} tables, {load_average()}", flush=True)
    whole = _median([_bought(_without_order, arguments, float("inf")) for _ in range(2)][1:])
    _print("all", whole)
    found: dict[str, list[Bought]] = {name: [] for name in POLICIES}
    for _ in range(arguments.rounds):
        for name, policy in POLICIES.items():
            found[name].append(_bought(policy, arguments, arguments.share * whole.gb_hours))
    medians = {name: _median(each) for name, each in found.items()}
    for name, each in medians.items():
        _print(name, each)
    print(load_average())
    per_hour = {name: each.opened_less / each.gb_hours for name, each in medians.items()}
    print(f"ratio {per_hour['on'] / per_hour['off']:.2f}, ranked {per_hour['ranked'] / per_hour['off']:.2f}")


def _bought(policy: Policy, arguments: argparse.Namespace, budget: float) -> Bought:
    with tempfile.TemporaryDirectory(prefix="budget-order-benchmark-") as folder:
        demo = Demo(Path(folder), arguments.batches, arguments.heavier)
        services: OpenedServices = demo.services
        before, spent = demo.opened(), demo.spent()
        policy(demo, budget)
        merged = [task for table in IDS for task in services.stores.tasks.tasks(table, (TaskStatus.PREPARED,))]
        for table in IDS:
            services.commit_tables.commit(table)
        deletes = sum(len(task.work.deletes) for task in merged)
        bought = Bought(before - demo.opened(), deletes, len(merged), demo.spent() - spent)
        services.close()
        return bought


def _median(each: Sequence[Bought]) -> Bought:
    return Bought(*map(partial(median), zip(*map(astuple, each), strict=True)))


def _print(name: str, found: Bought) -> None:
    cost = found.gb_hours * 1000
    print(
        f"{name:7} {found.opened_less:7,.0f} files opened less, {found.deletes:5,.0f} deletes applied, {found.tasks:.0f} tasks, "
        f"{cost:.3f} thousandths of a GB-hour; {found.opened_less / max(cost, 1e-6):,.0f} less for each",
        flush=True,
    )


if __name__ == "__main__":
    main()
