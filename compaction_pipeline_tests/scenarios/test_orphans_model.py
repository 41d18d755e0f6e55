"""The model test of orphan files: whatever happens beside looks and deletions, what anybody needs exists, and in the end only that.

The steps of the model of expiry go on here, and more follow: writers that write files and commit them days later or never, compactions that
die or get no answer, other tables that import files or lie in the location, clocks that are an hour off, and looks and deletions of orphan
files that die anywhere. After each step everything exists that a snapshot, a living writer, an open task, an expiry under way or another
table needs. STEPS and COMPACTION_SEED are as in the model of expiry.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from random import Random, SystemRandom
from typing import Any
from unittest.mock import patch
from urllib.parse import urlsplit
from uuid import UUID

import pytest
from hypothesis import HealthCheck, Phase, note, seed, settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, rule, run_state_machine_as_test
from pyiceberg.exceptions import CommitFailedException, CommitStateUnknownException
from pyiceberg.io import FileIO

from compaction_pipeline.core.errors import CompactionError
from compaction_pipeline.core.tables.data_file import OutputFile
from compaction_pipeline.core.tables.table import TableIdentifier
from compaction_pipeline.core.upkeep.orphan_rules import ListedFile
from compaction_pipeline.core.upkeep.record import ENDED, RemovedSnapshot, UpkeepRecord, UpkeepStatus, files_due_at
from compaction_pipeline.demo.row_delta import row_delta
from compaction_pipeline.iceberg.upkeep import look_at_files
from compaction_pipeline.services.upkeep import clean_orphans
from compaction_pipeline_tests.iceberg.lake import LakeTable
from compaction_pipeline_tests.iceberg.reached import avro_records, files_on_disk, reached
from compaction_pipeline_tests.scenarios.test_expiry_model import KINDS as OF_EXPIRY
from compaction_pipeline_tests.scenarios.test_expiry_model import Machine as ExpiryMachine
from compaction_pipeline_tests.services.house import House

STEPS_PER_TABLE = 60
_HOUR = timedelta(hours=1).total_seconds()
_SAFE = timedelta(days=3, hours=21)
"""A file is first seen to be an orphan when it is three days old, by a clock that is an hour off, and deleted a day later."""
_DIES_AT = ("before-swap", "after-swap", "after-manifest", "record-opened", "merged", "committed-in-table")
KINDS = (
    *OF_EXPIRY,
    *("write",) * 6,
    *("commit_written",) * 2,
    "commit_late",
    *("kill_writer",) * 4,
    *("lose_the_race",) * 4,
    "compact_and_die",
    "compact_without_answer",
    *("pass_days",) * 7,
    *("look",) * 2,
    *("clean",) * 8,
    *("clean_and_die",) * 3,
    *("clean_beside_writers",) * 4,
    "look_by_a_wrong_clock",
    "import_stray",
    "make_inner",
    *("drop_other",) * 4,
)


class _Killed(BaseException):
    pass


class Machine(ExpiryMachine):
    """The history of one table, and of what lies and happens beside it."""

    deleted: Counter[str]

    @initialize(number=st.integers(0, 2**32 - 1))
    def create(self, number: int) -> None:
        self.count, self.names, self.ids = 0, 0, 0
        self.home = Path(tempfile.mkdtemp(prefix="orphans-"))
        self.house = House(self.home)
        self.reached_step: Callable[[str], None] = lambda step: None
        self.house.services.on_step = lambda step: self.reached_step(step)
        self.listed, look_at_files.listed_files = look_at_files.listed_files, self.aged
        self.batch, clean_orphans._BATCH = clean_orphans._BATCH, 3
        self.born: dict[str, datetime] = {}
        self.written: list[OutputFile] = []
        self.others: dict[str, LakeTable] = {}
        self.unread: dict[str, tuple[datetime, set[int]]] = {}
        self.promised: dict[str, dict[int, set[str]]] = {}
        self.table = self.house.fragmented(
            "t",
            3,
            history__expire__max_snapshot_age_ms=str(int(6 * _HOUR * 1000)),
            write__metadata__previous_versions_max=str(Random(number).choice((1, 3, 100))),
        )
        names = Random(number)
        self.table._names = (f"00000-0-{UUID(int=names.getrandbits(128), version=4)}-00001" for _ in iter(int, 1))
        self.rows: dict[int, list[tuple[Any, ...]]] = {}
        self.remember()

    def aged(self, io: FileIO, location: str) -> Iterator[ListedFile]:
        """The listing, with the times at which files were written by the clock of the house."""
        for file in self.listed(io, location):
            yield replace(file, modified_at=self.born.get(urlsplit(file.path).path, self.house.now))

    @rule(number=st.integers(0, 2**32 - 1))
    def step(self, number: int) -> None:
        self.count += 1
        rng = Random(f"{self.count}/{number}")
        kind = rng.choice(KINDS)
        note(f"step({number}) is {kind}")
        self.note_unread()
        getattr(self, kind)(rng)
        self.reached_step = lambda step: None
        self.remember()
        for path in self.table_files():
            self.born.setdefault(path, self.house.now)
        missing = sorted(path for path in self.needed() if not Path(path).exists())
        assert missing == [], f"after {kind}: {[self.why(path) for path in missing]}"
        self.check_unread(kind)
        self.done[kind] += 1

    # ---- what must exist ---------------------------------------------------------------------------------------------------

    def needed(self) -> set[str]:
        found = reached(self.table.table)
        for other in self.others.values():
            found |= reached(other.table)
        found |= {_local(file.path) for file in self.written if self.age(file) < _SAFE}
        for task in self.house.services.stores.tasks.tasks(self.table.identifier):
            if not task.is_final and task.result is not None:
                found |= {_local(output.path) for output in task.result.outputs}
        for record in self.house.services.stores.upkeep.records():
            found |= self.kept_by(record)
        return found

    def kept_by(self, record: UpkeepRecord) -> set[str]:
        """What the removed snapshots of an expiry named when its record was first seen, as long as its files must wait.

        A snapshot whose files another record may delete, or has deleted, waits for KEPT alone.
        """
        if record.record_id not in self.promised:
            named = {one.snapshot_id: {path for path in self.named_by(one) if Path(path).exists()} for one in record.removed}
            self.promised[record.record_id] = named
        if not self.waits(record):
            return set()
        others = [other for other in self.house.services.stores.upkeep.records() if other.record_id != record.record_id]
        gone = {one.snapshot_id for other in others if self.may_delete(other) for one in other.removed}
        promised = self.promised[record.record_id]
        return set().union(*(promised[one] for one in promised if record.status is UpkeepStatus.KEPT or one not in gone))

    def waits(self, record: UpkeepRecord) -> bool:
        return record.status not in ENDED and not self.may_delete(record)

    def may_delete(self, record: UpkeepRecord) -> bool:
        due = files_due_at(record, timedelta(hours=1))
        return record.status is UpkeepStatus.DONE or (due is not None and due <= self.house.now)

    def named_by(self, one: RemovedSnapshot) -> Iterator[str]:
        if one.manifest_list is None or not Path(_local(one.manifest_list)).exists():
            return
        yield _local(one.manifest_list)
        for manifest in avro_records(self.table.table, one.manifest_list):
            yield _local(manifest["manifest_path"])
            if Path(_local(manifest["manifest_path"])).exists():
                entries = avro_records(self.table.table, manifest["manifest_path"])
                yield from (_local(entry["data_file"]["file_path"]) for entry in entries if entry["status"] != 2)

    def why(self, path: str) -> tuple[str, list[str]]:
        """Who deleted a file."""
        deletions = self.house.services.clean_orphans.deletions(None, 999)
        return path, [one.summary for one in deletions if path in {_local(file.path) for file in one.files}]

    def table_files(self) -> set[str]:
        return {str(path) for path in Path(_local(self.table.table.location())).rglob("*") if path.is_file()}

    def age(self, file: OutputFile) -> timedelta:
        return self.house.now - self.born.get(_local(file.path), self.house.now)

    # ---- writers -----------------------------------------------------------------------------------------------------------

    def write(self, rng: Random) -> None:
        """A writer writes a file and commits it later, or never."""
        self.ids += 1
        self.written.append(self.table.data_file([{"id": self.ids, "name": "w"}]))

    def commit_written(self, rng: Random) -> None:
        """A living writer commits."""
        self.commit([file for file in self.written if self.age(file) < _SAFE][:1])

    def commit_late(self, rng: Random) -> None:
        """A writer commits that stood still for longer than writers may. Its file may be gone, and then it notices."""
        self.commit([file for file in self.written if Path(_local(file.path)).exists()][:1])

    def commit(self, files: list[OutputFile]) -> None:
        for file in files:
            self.written.remove(file)
            self.reloaded()
            row_delta(self.table.table, [file])

    def kill_writer(self, rng: Random) -> None:
        self.written = self.written[1:]

    def lose_the_race(self, rng: Random) -> None:
        """A writer has written everything, and its commit is refused. It dies before it deletes anything."""
        catalog = type(self.table.lake.catalog)
        refused = CommitFailedException("another writer was faster")
        self.reloaded()
        self.ids += 1
        with patch.object(catalog, "commit_table", side_effect=refused), pytest.raises(CommitFailedException):
            self.table.insert({"id": self.ids, "name": "lost"})

    def compact_and_die(self, rng: Random) -> None:
        last = rng.choice(_DIES_AT)
        self.reached_step = _killing(last)
        try:
            self.house.services.compact_tables.compact(self.table.identifier)
        except _Killed:
            self.house.pass_time(_HOUR)

    def compact_without_answer(self, rng: Random) -> None:
        catalog = type(self.house.services._catalogs.catalog("lake"))
        real, lands = catalog.commit_table, rng.random() < 0.5

        def lost(*given: Any, **named: Any) -> Any:
            if lands:
                real(*given, **named)
            raise CommitStateUnknownException("the answer got lost")

        with patch.object(catalog, "commit_table", lost), contextlib.suppress(CompactionError):
            self.house.services.compact_tables.compact(self.table.identifier)

    def compact(self, rng: Random) -> None:
        try:
            self.house.services.compact_tables.compact(self.table.identifier)
        except CompactionError:
            # An earlier commit may still land.
            self.house.pass_time(_HOUR)

    def pass_days(self, rng: Random) -> None:
        self.house.pass_time(rng.choice((20, 24, 24, 25, 49, 80)) * _HOUR)

    # ---- orphan files ------------------------------------------------------------------------------------------------------

    def look(self, rng: Random) -> None:
        self.house.services.clean_orphans.look(self.table.identifier)

    def clean(self, rng: Random) -> None:
        self.house.pass_time(rng.choice((0, 24, 24)) * _HOUR)
        verb = rng.choice((self.house.services.clean_orphans.clean, self.accepting, self.accepting))
        cleaned = verb(self.table.identifier)
        self.deleted["files"] += sum(len(one.deleted) for one in cleaned.deletions)
        self.deleted["refused" if cleaned.refusals else "judged"] += 1

    def accepting(self, table: TableIdentifier) -> Any:
        return self.house.services.clean_orphans.delete(table, accept_share=1.0)

    def clean_and_die(self, rng: Random) -> None:
        self.reached_step = _killing(rng.choice(("files-listed", "orphans-deleted", "orphans-deleted")), rng.randint(1, 3))
        try:
            self.clean(rng)
        except _Killed:
            self.deleted["killed"] += 1
            self.house.pass_time(_HOUR)

    def clean_beside_writers(self, rng: Random) -> None:
        """Writers of all kinds work while files are listed and deleted."""
        acts = (self.append, self.write, self.commit_written, self.commit_late, self.commit_late, self.lose_the_race, self.tag)

        def act(step: str) -> None:
            if step in ("files-listed", "orphans-deleted"):
                rng.choice(acts)(rng)

        self.reached_step = act
        self.clean(rng)

    def look_by_a_wrong_clock(self, rng: Random) -> None:
        wrong = rng.choice((-1, 1)) * _HOUR
        self.house.pass_time(wrong)
        self.look(rng)
        self.house.pass_time(-wrong)

    # ---- other tables --------------------------------------------------------------------------------------------------------

    def import_stray(self, rng: Random) -> None:
        """A table elsewhere takes a file that no snapshot of this table names.

        It is none of a snapshot that an expiry has removed: expiry knows only of imports that the index has, as its contract says.
        """
        under_way = self.house.services.stores.upkeep.records(under_way=True)
        promised = [paths for record in under_way for paths in self.promised.get(record.record_id, {}).values()]
        named = reached(self.table.table).union(*promised)
        paths = [file for file in self.table_files() - named if file.endswith("-00001.parquet")]
        if paths:
            self.names += 1
            self.others[f"imp{self.names}"] = other = self.table.lake.table(f"imp{self.names}")
            other.table.add_files([f"file://{rng.choice(sorted(paths))}"], check_duplicate_files=False)
            self.written = [one for one in self.written if _local(one.path) not in reached(other.table)]
            if rng.random() < 0.5:
                # Its newest snapshot does not name the file any more, and an older one does.
                other.table.refresh()
                other.table.delete("id >= 0")

    def make_inner(self, rng: Random) -> None:
        self.names += 1
        name = f"inner{self.names}"
        location = f"{self.table.table.location()}/{name}"
        metadata_path = f"{self.table.table.location()}-of-{name}"
        schema, catalog = self.table.table.schema(), self.table.lake.catalog
        made = catalog.create_table(("db", name), schema, location=location, properties={"write.metadata.path": metadata_path})
        self.others[name] = other = LakeTable(self.table.lake, replace(self.table.identifier, name=name), made)
        other.ids(1, 2)

    def drop_other(self, rng: Random) -> None:
        """A table beside it is dropped, and a person says so."""
        if self.others:
            name = rng.choice(sorted(self.others))
            other = self.others.pop(name)
            if rng.random() < 0.5:
                # It is known before it goes.
                self.house.services.explore_catalogs.explore()
                self.house.services.one_table.refresh(other.identifier)
            self.table.lake.catalog.drop_table(("db", name))
            shutil.rmtree(_local(other.table.location()), ignore_errors=True)
            self.house.services.other_places.forget_gone(self.table.identifier)

    # ---- the end -------------------------------------------------------------------------------------------------------------

    def teardown(self) -> None:
        if not hasattr(self, "table"):
            return
        try:
            self.check_rows()
            while self.others:
                self.drop_other(Random(0))
            for _ in range(6):
                self.compact(Random(0))
                self.remember()
                self.house.pass_time(26 * _HOUR)
                self.house.services.maintain_tables.maintain()
                self.house.services.expire_snapshots.expire(self.table.identifier)
            # The ids of ended tasks and records are kept for a month.
            self.house.pass_time(40 * 24 * _HOUR)
            for _ in range(3):
                self.house.services.maintain_tables.maintain()
                self.house.services.expire_snapshots.expire(self.table.identifier)
                self.accepting(self.table.identifier)
                self.house.pass_time(25 * _HOUR)
            self.check_rows()
            records = self.house.services.stores.upkeep.records()
            kept = {path for one in records if one.status is UpkeepStatus.KEPT for each in one.removed for path in self.named_by(each)}
            left = files_on_disk(self.table.table) - reached(self.table.table) - kept - self.named_by_old_metadata()
            said = self.accepting(self.table.identifier)
            assert left == set(), f"nothing needs these, and they are there: {sorted(left)}; {said.refusals} {said.problem}"
        finally:
            look_at_files.listed_files, clean_orphans._BATCH = self.listed, self.batch
            self.house.services.close()
            shutil.rmtree(self.home, ignore_errors=True)

    def named_by_old_metadata(self) -> set[str]:
        """What the metadata log leads to stays, because a reader may have loaded it, and so does metadata of commits that failed with what
        it names, because it may be a fork."""
        table, referenced = self.reloaded(), look_at_files.Referenced()
        found = {_local(path) for path in referenced.paths([table])}
        metadata = [f"file://{path}" for path in self.table_files() if path.endswith(".metadata.json")]
        listing = [ListedFile(path, 1, self.house.now) for path in metadata]
        forks = referenced.of_forks(look_at_files.ListedMetadata([table.io]), listing)
        return found.union(map(_local, metadata), map(_local, forks))


def _killing(last: str, times: int = 1) -> Callable[[str], None]:
    left = [times]

    def kill(step: str) -> None:
        if step == last:
            left[0] -= 1
            if not left[0]:
                raise _Killed

    return kill


def _local(path: str) -> str:
    return urlsplit(path).path


@pytest.mark.scenario
@pytest.mark.timeout(0)
def test_whatever_happens_only_files_that_nobody_needs_are_deleted_and_in_the_end_all_of_them() -> None:
    steps = int(os.environ.get("STEPS", "300"))
    number = int(os.environ.get("COMPACTION_SEED", SystemRandom().randrange(2**32)))
    sys.stdout.write(f"\norphans model: COMPACTION_SEED={number} STEPS={steps}\n")
    done, deleted = Counter[str](), Counter[str]()
    machine = type("Drawn", (Machine,), {"done": done, "deleted": deleted})
    drawn = settings(
        max_examples=max(1, steps // STEPS_PER_TABLE),
        stateful_step_count=STEPS_PER_TABLE,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        phases=(Phase.generate,),
        print_blob=True,
    )
    run_state_machine_as_test(seed(number)(machine), settings=drawn)
    sys.stdout.write(f"orphans model: {dict(sorted(done.items()))}\n{dict(deleted)}\n")
    assert {"clean", "look", "write"} <= done.keys()
    assert deleted["files"]
