"""The model test of expiry: whatever writers, people, compactions and expiries do to a table, everything that can be reached exists.

A plain dictionary knows the rows of every snapshot. After each step every file that any snapshot of the newest metadata needs must exist,
and in the end every snapshot that is left must have its rows. What a registered consumer has not read yet must be there until its
registration ends. At the very end, when everything that may go is old, no other file is left.
Hypothesis draws sequences of steps, STEPS in all (default 300). The seed is COMPACTION_SEED, or else random, and is always printed.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from random import Random, SystemRandom
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, note, seed, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test
from pyiceberg.table import Table

from compaction_pipeline.core.errors import CompactionError
from compaction_pipeline.core.upkeep.ports.snapshots import Removal, RemovalState
from compaction_pipeline_tests.iceberg.reached import files_on_disk, reached
from compaction_pipeline_tests.reference_reader import reference_rows
from compaction_pipeline_tests.services.house import House

STEPS_PER_TABLE = 40
_HOUR = timedelta(hours=1).total_seconds()
_STEPS = ("before-removal", "after-removal", "files-judged", "content-deleted", "statistics-deleted", "manifests-deleted", "lists-deleted")
KINDS = (
    *("append",) * 4,
    *("delete",) * 2,
    *("compact",) * 3,
    "tag",
    "branch",
    "append_to_branch",
    "drop_ref",
    "roll_back",
    "stage",
    "pass_time",
    "pass_time",
    *("consume",) * 3,
    "end_consumer",
    *("expire",) * 4,
    "expire_and_die",
    "lose_the_answer",
    "lose_the_request",
    "tag_in_a_race",
    "append_while_files_go",
    "clean_up",
)


class _Killed(BaseException):
    pass


class Machine(RuleBasedStateMachine):
    """The history of one table."""

    done: Counter[str]
    shrinks = True

    @initialize(number=st.integers(0, 2**32 - 1))
    def create(self, number: int) -> None:
        self.count, self.names, self.ids = 0, 0, 0
        self.home = Path(tempfile.mkdtemp(prefix="expiry-"))
        self.house = self.built()
        self.table = self.house.fragmented("t", 3, history__expire__max_snapshot_age_ms=str(int(6 * _HOUR * 1000)))
        self.rows: dict[int, list[tuple[Any, ...]]] = {}
        self.unread: dict[str, tuple[datetime, set[int]]] = {}
        self.remember()

    @rule(number=st.integers(0, 2**32 - 1))
    def step(self, number: int) -> None:
        self.count += 1
        rng = Random(f"{self.count}/{number}")
        kind = rng.choice(KINDS)
        note(f"step({number}) is {kind}")
        self.note_unread()
        getattr(self, kind)(rng)
        self.remember()
        assert sorted(reached(self.table.table) - self.files()) == [], f"after {kind}"
        self.check_unread(kind)
        self.done[kind] += 1

    # ---- writers and people ----------------------------------------------------------------------------------------------

    def append(self, rng: Random) -> None:
        count = rng.randint(1, 3)
        self.table.ids(*range(self.ids, self.ids + count))
        self.ids += count

    def delete(self, rng: Random) -> None:
        self.table.delete_ids(*rng.sample(range(self.ids + 1), min(2, self.ids + 1)))

    def compact(self, rng: Random) -> None:
        self.house.services.compact_tables.compact(self.table.identifier)

    def tag(self, rng: Random) -> None:
        self.names += 1
        self.reloaded().manage_snapshots().create_tag(self.any_snapshot(rng), f"tag{self.names}").commit()

    def branch(self, rng: Random) -> None:
        self.names += 1
        self.reloaded().manage_snapshots().create_branch(self.any_snapshot(rng), f"branch{self.names}").commit()

    def append_to_branch(self, rng: Random) -> None:
        branches = sorted(name for name in self.reloaded().metadata.refs if name.startswith("branch"))
        if branches:
            self.ids += 1
            row = self.table.data_file([{"id": self.ids, "name": "b"}])
            self.reloaded().add_files([row.path], branch=rng.choice(branches), check_duplicate_files=False)

    def drop_ref(self, rng: Random) -> None:
        refs = self.reloaded().metadata.refs
        name = rng.choice(sorted(refs))
        if name.startswith("tag"):
            self.reloaded().manage_snapshots().remove_tag(name).commit()
        elif name.startswith("branch"):
            self.reloaded().manage_snapshots().remove_branch(name).commit()

    def roll_back(self, rng: Random) -> None:
        table = self.reloaded()
        table.manage_snapshots().set_current_snapshot(snapshot_id=self.any_snapshot(rng)).commit()

    def stage(self, rng: Random) -> None:
        """Append to a branch that is dropped at once: a snapshot on no ref is left."""
        head = self.reloaded().metadata.refs["main"].snapshot_id
        self.reloaded().manage_snapshots().create_branch(head, "staged").commit()
        self.ids += 1
        row = self.table.data_file([{"id": self.ids, "name": "s"}])
        self.reloaded().add_files([row.path], branch="staged", check_duplicate_files=False)
        self.reloaded().manage_snapshots().remove_branch("staged").commit()

    def pass_time(self, rng: Random) -> None:
        self.house.pass_time(rng.choice((0.3, 0.9, 2, 7, 30)) * _HOUR)

    # ---- consumers ---------------------------------------------------------------------------------------------------------

    def consume(self, rng: Random) -> None:
        """A consumer registers, or reads on, or goes back."""
        name, days = rng.choice("abc"), rng.choice((0.1, 0.5, 2))
        registered = self.house.services.keep_consumers.set(self.table.identifier, name, self.any_snapshot(rng), days)
        self.unread[name] = registered.until, set()
        self.note_unread()

    def end_consumer(self, rng: Random) -> None:
        for name in sorted(self.unread)[:1]:
            self.house.services.keep_consumers.remove(self.table.identifier, name)
            del self.unread[name]

    def note_unread(self) -> None:
        """Note for each consumer the snapshots that lead from its own to the head of any branch."""
        metadata = self.reloaded().metadata
        parents = {one.snapshot_id: one.parent_snapshot_id for one in metadata.snapshots}
        heads = [ref.snapshot_id for ref in metadata.refs.values() if ref.snapshot_ref_type == "branch"]
        for one in self.house.services.keep_consumers.consumers():
            if one.name not in self.unread:
                continue
            unread = {one.snapshot_id}
            for head in heads:
                walked, current = set[int](), head
                while current in parents and current != one.snapshot_id and current not in walked:
                    walked.add(current)
                    current = parents[current]  # type: ignore[assignment]
                unread |= walked if current == one.snapshot_id else set()
            self.unread[one.name] = one.until, unread

    def check_unread(self, kind: str) -> None:
        left = {one.snapshot_id for one in self.table.table.metadata.snapshots}
        for name, (until, unread) in list(self.unread.items()):
            if until < self.house.now:
                # It ended. A person may end it again, and its row is there for a month.
                continue
            assert unread <= left, f"consumer {name} has not read {sorted(unread - left)}, which went with {kind}"

    # ---- upkeep ------------------------------------------------------------------------------------------------------------

    def expire(self, rng: Random) -> None:
        self.house.pass_time(rng.choice((0, 0, 1, 7)) * _HOUR)
        self.house.services.expire_snapshots.expire(self.table.identifier)

    def expire_and_die(self, rng: Random) -> None:
        last = rng.choice(_STEPS)

        def kill(reached: str) -> None:
            if reached == last:
                raise _Killed

        self.house.pass_time(rng.choice((0, 2, 8)) * _HOUR)
        self.with_steps(kill)
        try:
            self.house.services.expire_snapshots.expire(self.table.identifier)
        except _Killed:
            pass
        finally:
            self.with_steps(lambda reached: None)

    def lose_the_answer(self, rng: Random) -> None:
        real = self.stores.remove
        self.expire_with(lambda *given: [real(*given), Removal(RemovalState.UNKNOWN, "the answer got lost")][1])

    def lose_the_request(self, rng: Random) -> None:
        self.expire_with(lambda *given: Removal(RemovalState.UNKNOWN, "the request got lost"))

    def tag_in_a_race(self, rng: Random) -> None:
        real = self.stores.remove

        def tag_first(*given: Any) -> Removal:
            self.tag(rng)
            return real(*given)  # type: ignore[no-any-return]

        self.expire_with(tag_first)

    def append_while_files_go(self, rng: Random) -> None:
        self.house.pass_time(2 * _HOUR)
        self.with_steps(lambda reached: self.append(rng) if reached in ("files-judged", "content-deleted") else None)
        try:
            self.expire(rng)
        finally:
            self.with_steps(lambda reached: None)

    def clean_up(self, rng: Random) -> None:
        self.house.services.maintain_tables.maintain()

    # ---- where the table is ------------------------------------------------------------------------------------------------

    def built(self) -> House:
        """The program, and a lake without tables."""
        return House(self.home)

    def files(self) -> set[str]:
        """The files of the table that are there, without the metadata.json files."""
        return files_on_disk(self.table.table)

    def needed(self) -> set[str]:
        """The files that may be there in the end."""
        return reached(self.table.table)

    # ---- what the steps need -----------------------------------------------------------------------------------------------

    @property
    def stores(self) -> Any:
        return self.house.services._snapshot_stores

    def expire_with(self, remove: Callable[..., Removal]) -> None:
        self.house.pass_time(7 * _HOUR)
        self.stores.remove = remove
        try:
            self.house.services.expire_snapshots.expire(self.table.identifier)
        finally:
            del self.stores.remove

    def with_steps(self, on_step: Callable[[str], None]) -> None:
        self.stores._on_step = on_step

    def reloaded(self) -> Table:
        self.table.table.refresh()
        return self.table.table

    def any_snapshot(self, rng: Random) -> int:
        return rng.choice(self.reloaded().metadata.snapshots).snapshot_id

    def remember(self) -> None:
        """Note the rows of the snapshots that are new. They never change."""
        for snapshot in self.reloaded().metadata.snapshots:
            if snapshot.snapshot_id not in self.rows:
                self.rows[snapshot.snapshot_id] = self.rows_of(snapshot.snapshot_id)

    def rows_of(self, snapshot_id: int) -> list[tuple[Any, ...]]:
        return sorted(tuple(sorted(row.items())) for row in reference_rows(self.table.table, snapshot_id))

    def teardown(self) -> None:
        if not hasattr(self, "table"):
            return
        try:
            self.check_rows()
            self.house.pass_time(40 * 24 * _HOUR)
            for _ in range(4):
                try:
                    self.house.services.expire_snapshots.expire(self.table.identifier)
                except CompactionError as error:
                    raise AssertionError(f"the last expiry failed: {error}") from error
                self.house.pass_time(26 * _HOUR)
            self.house.services.maintain_tables.maintain()
            self.check_rows()
            left = self.files() - self.needed()
            records = [f"{one.status.value} {one.summary}" for one in self.house.services.expire_snapshots.records(None, 99)]
            assert left == set(), f"nothing needs these, and they are there: {sorted(left)}; {records}"
        finally:
            self.house.services.close()
            shutil.rmtree(self.home, ignore_errors=True)

    def check_rows(self) -> None:
        for snapshot in self.reloaded().metadata.snapshots:
            assert self.rows_of(snapshot.snapshot_id) == self.rows[snapshot.snapshot_id], f"the rows of snapshot {snapshot.snapshot_id}"


@pytest.mark.scenario
@pytest.mark.timeout(0)
def test_whatever_happens_to_a_table_expiry_deletes_nothing_that_can_be_reached_and_leaves_nothing_else() -> None:
    assert {"expire", "compact", "append", "consume"} <= run_model(Machine, steps=300).keys()


def run_model(of: type[Machine], steps: int) -> Counter[str]:
    """Draw sequences of steps, STEPS or else `steps` in all. Returns how often each kind of step was done."""
    steps = int(os.environ.get("STEPS", str(steps)))
    number = int(os.environ.get("COMPACTION_SEED", SystemRandom().randrange(2**32)))
    sys.stdout.write(f"\nexpiry model: COMPACTION_SEED={number} STEPS={steps}\n")
    done: Counter[str] = Counter()
    machine = type("Drawn", (of,), {"done": done})
    drawn = settings(
        max_examples=max(1, steps // STEPS_PER_TABLE),
        stateful_step_count=STEPS_PER_TABLE,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        phases=(Phase.generate, Phase.shrink) if of.shrinks and steps <= 1000 else (Phase.generate,),
        print_blob=True,
    )
    run_state_machine_as_test(seed(number)(machine), settings=drawn)
    sys.stdout.write(f"expiry model: {dict(sorted(done.items()))}\n")
    return done
