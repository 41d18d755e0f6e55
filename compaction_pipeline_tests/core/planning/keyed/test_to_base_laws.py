"""The laws of plans that merge changes into the base store, on random tables: a plan changes no row that a reader finds.

The same holds when further transactions land after the plan, before or after its commit. Only a late transaction, one that was given up and
lands after all, is seen in another way afterwards: merged deletes do not reach its inserts, and its deletes do not reach rows that
are in the base store by then. No row is ever lost.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from compaction_pipeline.core.planning.keyed.to_base import PartitionPlan, plan_to_base
from compaction_pipeline_tests.core.planning.keyed.simulation import PARTITIONS, Node, SimRow, SimTable
from compaction_pipeline_tests.core.planning.keyed.writers import KEYS, Writers, check_plan, check_view, options


def commit(random: Random, table: SimTable, plans: Iterable[PartitionPlan]) -> None:
    """Commit the plans of some partitions, unless another plan was committed to the partition since."""
    for plan in plans:
        if plan.tasks and plan.above == table.above.get(plan.partition) and random.random() < 0.9:
            table.commit(plan.tasks, random.choice([0, 3]))


@given(st.randoms(use_true_random=False))
def test_a_plan_changes_no_row_that_a_reader_finds(random: Random) -> None:
    writers = Writers(random)
    table = writers.table
    for _ in range(random.randint(1, 4)):
        for _ in range(random.randint(1, 6)):
            random.choice([writers.append, writers.append, writers.begin, writers.land, writers.give_up, writers.land_late,
                           writers.add_to_base, writers.merge_changes])()  # fmt: skip
        chosen = options(random, writers.open)
        plans = plan_to_base(table.files(), chosen)
        for plan in plans:
            check_plan(table, plan, chosen)
        # A twin of the table is never compacted. Transactions land after the plan, before its commit and after it.
        twin = table.copied()
        late = writers.land_late() if random.random() < 0.3 else []
        twin.changes.update({file.live.path: file for file in late})
        for commits in (False, True):
            if commits:
                commit(random, table, plans)
                check_view(table, twin, late)
            for _ in range(random.randint(0, 3)):
                for file in random.choice([writers.append, writers.land])():
                    twin.changes[file.live.path] = file
                check_view(table, twin, late)
        late += writers.land_late()
        twin.changes.update({file.live.path: file for file in late})
        check_view(table, twin, late)


@given(st.randoms(use_true_random=False))
def test_a_plan_of_a_table_that_breaks_all_rules_changes_no_row(random: Random) -> None:
    """Sequence numbers, transactions, names of base files and optimized sequences have nothing to do with each other here."""
    table = _wild_table(random)
    open_transactions = sorted(random.sample(range(1, 40), random.randint(0, 2)))
    chosen = options(random, open_transactions)
    plans = plan_to_base(table.files(), chosen)
    for plan in plans:
        check_plan(table, plan, chosen)
    twin = table.copied()
    commit(random, table, plans)
    assert table.view() == twin.view()
    # What lands later has a higher sequence number, and is of a new transaction or of one that was open.
    for _ in range(random.randint(0, 3)):
        table.head += 1
        transaction = random.choice([*open_transactions, table.head])
        for kind in ("I", "ED"):
            rows = _wild_rows(random, table, [transaction], (0, 0))
            file = table.new_file(random.choice(PARTITIONS), (0, 0), kind, transaction, rows, table.head)
            twin.changes[file.live.path] = file
        assert table.view() == twin.view()


def _wild_rows(random: Random, table: SimTable, transactions: Sequence[int], node: Node) -> list[SimRow]:
    keys = [key for key in range(KEYS) if key & node[0] == node[1]]
    return [
        SimRow(random.choice(keys), random.choice(transactions), random.randrange(4), table.next_number())
        for _ in range(random.randint(1, 4))
    ]


def _wild_table(random: Random) -> SimTable:
    table = SimTable(head=40)
    top = random.choice([6, 15, 39])
    for partition in PARTITIONS:
        if random.random() < 0.6:
            table.above[partition] = random.randint(0, top)
    for _ in range(random.randint(1, 10)):
        mask = random.choice([0, 1, 3, 7])
        node, partition, kind = (mask, random.randint(0, mask)), random.choice(PARTITIONS), random.choice(["B", "I", "ED", "ED"])
        sequence = random.randint(1, top)
        transaction = random.choice([sequence, random.randint(1, top)])
        # A file of another program has inserts of all nodes, and its sequence number is its transaction.
        foreign = kind == "I" and node == (0, 0) and transaction == sequence and random.random() < 0.5
        by_row = kind != "B" and not foreign and random.random() < 0.3
        rows = _wild_rows(random, table, range(1, top + 1) if by_row else [transaction], node)
        size, records = random.choice([3, 15, 30, 90]), random.choice([1, 60]) if kind == "B" else 1
        table.new_file(
            partition, node, kind, transaction, rows, sequence, size=size, records_a_row=records, by_row=by_row,
            named=-1 if foreign else None,
        )  # fmt: skip
    return table
