"""Sinks that merge their own small files: readers see the same rows, whatever else happens to the files meanwhile."""

from __future__ import annotations

import os
import pickle
import random
import signal
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table.snapshots import Operation

from compaction_pipeline.core.errors import CommitStateUnknown, ConfigError, RacesLost, StorageUnavailable, TableRefused
from compaction_pipeline.core.fragmentation.verdict import PlanReasonCode
from compaction_pipeline.core.planning.plan import PlanRequest
from compaction_pipeline.core.tables.data_file import FileContent, LiveFile
from compaction_pipeline.core.tables.keyed.changes import Batch
from compaction_pipeline.core.tables.keyed.file_names import change_file
from compaction_pipeline.core.tables.keyed.small_files import HELD_UNTIL_KEY, SmallFiles, held_until
from compaction_pipeline.core.tables.properties import resolve_properties
from compaction_pipeline.core.work.kinds import CompactionType
from compaction_pipeline.core.work.merge_input import MergeInput
from compaction_pipeline.core.work.result import MergeResult
from compaction_pipeline.core.work.work import RewriteChanges
from compaction_pipeline.iceberg.keyed.stores import load_stores
from compaction_pipeline.iceberg.rewrite_files import SnapshotChange, Transaction
from compaction_pipeline.keyed import MergingSink
from compaction_pipeline.keyed.append import append_rows
from compaction_pipeline.keyed.merging_sink import _live
from compaction_pipeline.keyed.sink_merges import SinkMerges
from compaction_pipeline.merging.kernel import merge_task
from compaction_pipeline.merging.process import MergeProcess
from compaction_pipeline_tests.keyed.acting_catalog import Commit
from compaction_pipeline_tests.keyed.program import FULL, MAJOR, MINOR, TABLE, Program, change_files, files_of_change_store
from compaction_pipeline_tests.keyed.written import Keyed, row, table_of
from compaction_pipeline_tests.reference_reader import Row

_NOW = datetime(2026, 11, 23, tzinfo=timezone.utc)
_LONG = timedelta(hours=1)
_PAUSE = 0.2
"""Seconds between two batches of a stream that waits for a merge. Without a pause, commits may lose against batches on a busy machine, and
the stream writes, and the test reads, hundreds of batches that show nothing more."""


@pytest.fixture
def keyed(tmp_path: Path) -> Keyed:
    return Keyed(tmp_path, delta_rewrite=True, upsert=True)


def files_of(keyed: Keyed) -> int:
    return len(keyed.stores()[1].inspect.data_files())


def put(sink: MergingSink, rows: dict[int, Row], batch: int, *ids: int) -> None:
    rows.update({number: row(number, f"v{batch}") for number in ids})
    sink.write_changes(table_of([("INSERT", rows[number]) for number in ids]), batch=batch)


# ---- by name


def test_each_batch_is_there_at_once_and_its_files_are_merged_at_the_end(keyed: Keyed) -> None:
    rows: dict[int, Row] = {}
    with keyed.table.merging_sink("s", interval=_LONG) as sink:
        for batch in range(5):
            put(sink, rows, batch, *range(batch, batch + 8))
            keyed.check(rows.values())
        before = files_of(keyed)
        assert sink.figures.merged_files == 0
    keyed.check(rows.values())
    assert files_of(keyed) == sink.figures.written_files <= 8
    assert (sink.figures.merged_files, sink.figures.left_files, sink.figures.problem) == (before, 0, None)


def test_files_are_merged_when_the_interval_ends(keyed: Keyed) -> None:
    rows: dict[int, Row] = {}
    with keyed.table.merging_sink("s", interval=timedelta(seconds=1)) as sink:
        until, batch = time.monotonic() + 300, 0
        while not sink.figures.merged_files:
            # Two batches of one interval are merged. On a slow machine that may take several intervals.
            assert time.monotonic() < until, "nothing was merged within 300 s"
            put(sink, rows, batch, 1, 2, batch)
            batch += 1
            time.sleep(_PAUSE)
        keyed.check(rows.values())
    keyed.check(rows.values())


def test_batches_that_came_during_a_merge_are_taken_together(keyed: Keyed) -> None:
    sink = keyed.table.merging_sink("s", interval=_LONG)
    for number in range(3):
        sink._committed.put(([LiveFile(f"1-I-0-0-0-{number}-1.parquet", FileContent.DATA, 0, (), 1, 1, number)], _NOW))
    assert sink._take(0)
    assert len(sink._small) == 3
    assert sink._take(0)
    sink._committed.put(([LiveFile("1-I-0-0-0-9-1.parquet", FileContent.DATA, 0, (), 1, 1, 9)], _NOW))
    sink._committed.put(None)
    assert not sink._take(0)
    assert len(sink._small) == 4


@pytest.mark.parametrize("patience", [60.0, 0.01])
def test_a_commit_waits_for_the_batch_that_is_being_written_but_not_long(patience: float, keyed: Keyed) -> None:
    seen, written, merged = list[int](), list[str](), threading.Event()
    rows: dict[int, Row] = {}
    with keyed.table.merging_sink("s", interval=timedelta(seconds=1)) as sink:
        sink._patience_seconds = patience
        merge = sink._merges.merge_tasks

        def merge_and_tell(*arguments: Any) -> Any:
            results = merge(*arguments)
            merged.set()
            return results

        def act(name: str, commit: Commit) -> None:
            if threading.current_thread() is threading.main_thread():
                written.append(name)
                if len(written) == 3:
                    # The interval ends while this batch is written.
                    assert merged.wait(300)
                    until = time.monotonic() + (1 if patience > 1 else 60)
                    while time.monotonic() < until and not sink.figures.merged_files:
                        time.sleep(0.02)
                    seen.append(sink.figures.merged_files)
            commit()

        sink._merges.merge_tasks = merge_and_tell
        keyed.catalog.act = act
        for batch in range(3):
            put(sink, rows, batch, 1, 2)
        # The end of the block ends the wait, too.
    assert [count > 0 for count in seen] == [patience < 1]
    assert sink.figures.merged_files > 0
    keyed.check(rows.values())


def test_a_process_of_merges_that_is_killed_leaves_the_small_files_and_the_next_merge_has_a_new_one(
    keyed: Keyed, caplog: pytest.LogCaptureFixture
) -> None:
    rows: dict[int, Row] = {}
    with keyed.table.merging_sink("s", interval=timedelta(seconds=1)) as sink:
        merge, killed = sink._merges.merge_tasks, []

        def merge_under_fire(*arguments: Any) -> Any:
            if not killed:
                sink._process.merge((), *arguments[1:])
                killed.append(stopped_process(sink._process))
                threading.Timer(0.2, os.kill, (killed[0], signal.SIGKILL)).start()
            return merge(*arguments)

        sink._merges.merge_tasks = merge_under_fire
        until, batch = time.monotonic() + 300, 0
        while not sink.figures.merged_files:
            assert time.monotonic() < until, "nothing was merged within 300 s"
            put(sink, rows, batch, 1, 2, batch)
            batch += 1
            time.sleep(_PAUSE)
        assert sink.figures.left_files > 0
        assert "the process that merges ended, or did not start: exit code -9" in caplog.text
        keyed.check(rows.values())
    keyed.check(rows.values())


def stopped_process(process: MergeProcess) -> int:
    """Stop the process, so that it answers nothing until it is killed."""
    assert process._running is not None
    os.kill(process._running.process.pid, signal.SIGSTOP)
    return process._running.process.pid


def test_a_node_with_enough_bytes_does_not_wait(keyed: Keyed) -> None:
    with keyed.stores()[0].transaction() as transaction:
        transaction.set_properties({"self-optimizing.target-size": "10000", "self-optimizing.fragment-ratio": "2"})
    rows: dict[int, Row] = {}
    with keyed.table.merging_sink("s", interval=_LONG) as sink:
        batch = 0
        while not sink.figures.merged_files and batch < 60:
            put(sink, rows, batch, *range(8))
            batch += 1
            time.sleep(0.05)
        assert sink.figures.merged_files > 0
        keyed.check(rows.values())
    keyed.check(rows.values())


def test_large_files_are_left_alone(keyed: Keyed) -> None:
    with keyed.stores()[0].transaction() as transaction:
        transaction.set_properties({"self-optimizing.target-size": "1000", "self-optimizing.fragment-ratio": "2"})
    rows: dict[int, Row] = {}
    with keyed.table.merging_sink("s", interval=_LONG) as sink:
        for batch in range(3):
            put(sink, rows, batch, 1, 2)
        before = files_of(keyed)
    assert (sink.figures.merged_files, files_of(keyed)) == (0, before)


def test_a_batch_that_is_repeated_lands_once_and_is_merged_once(keyed: Keyed) -> None:
    rows: dict[int, Row] = {}
    with keyed.table.merging_sink("s", interval=_LONG) as sink:
        for batch in (0, 1, 1, 0, 2):
            put(sink, rows, batch, 1, 2, 3)
    rows = {number: row(number, "v2") for number in (1, 2, 3)}
    keyed.check(rows.values())
    assert sink.figures.left_files == 0


def test_two_drivers_of_one_query_write_each_batch_once(keyed: Keyed) -> None:
    rows: dict[int, Row] = {}
    with keyed.table.merging_sink("s", interval=_LONG) as one, keyed.table.merging_sink("s", interval=_LONG) as other:
        for batch in range(4):
            put(one if batch % 2 else other, rows, batch, *range(6))
            put(other if batch % 2 else one, rows, batch, *range(6))
    keyed.check(rows.values())
    assert one.figures.left_files + other.figures.left_files == 0


def test_a_sink_that_fails_ends_at_once_and_leaves_its_small_files(keyed: Keyed) -> None:
    rows: dict[int, Row] = {}

    def fail() -> None:
        with keyed.table.merging_sink("s", interval=_LONG) as sink:
            put(sink, rows, 0, 1, 2)
            put(sink, rows, 1, 1, 2)
            raise RuntimeError("the stream failed")

    with pytest.raises(RuntimeError, match="the stream failed"):
        fail()
    summaries = [each.summary for each in keyed.stores()[1].metadata.snapshots]
    assert [each.operation.value for each in summaries if each is not None] == ["append", "append"]
    keyed.check(rows.values())


def test_what_cannot_be_a_merging_sink_is_told(tmp_path: Path, keyed: Keyed) -> None:
    plain = Keyed(tmp_path / "plain")
    with pytest.raises(ConfigError, match="was not created with delta_rewrite=True"):
        plain.table.merging_sink("s")
    for interval in (timedelta(0), "10m"):
        with pytest.raises(ConfigError, match="but must be a timedelta of at least one second"):
            keyed.table.merging_sink("s", interval=interval)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=r"memory_bytes is 1 but must be at least 67108864 \(64 MiB\)"):
        keyed.table.merging_sink("s", memory_bytes=1)
    with pytest.raises(ConfigError, match="sink_id is 'a b'"):
        keyed.table.merging_sink("a b")
    sink = keyed.table.merging_sink("s")
    with pytest.raises(ConfigError, match="the merging sink is not open"):
        sink.write_changes(table_of([("INSERT", row(1))]), batch=0)
    with pytest.raises(ConfigError, match="Spark Connect runs foreachBatch in the server"):
        pickle.dumps(sink)


@pytest.mark.parametrize(
    ("error", "stay"),
    [
        (RacesLost("others were faster"), False),
        (TableRefused("made anew"), False),
        (StorageUnavailable("no catalog"), True),
        (CommitStateUnknown("no answer"), True),
        (MemoryError(), True),
    ],
)
def test_a_merge_that_cannot_be_committed_leaves_the_small_files(keyed: Keyed, error: Exception, stay: bool) -> None:
    def fail() -> None:
        keyed.catalog.before_load = None
        raise error

    def before_the_commit() -> None:
        keyed.catalog.before_load = fail

    rows: dict[int, Row] = {}
    folder = Path(keyed.stores()[1].location().removeprefix("file://"))
    with keyed.table.merging_sink("s", interval=_LONG) as sink:
        sink._merges.pause = before_the_commit
        put(sink, rows, 0, 1, 2, 3)
        put(sink, rows, 1, 1, 2, 3)
        before = set(folder.rglob("*.parquet"))
    assert keyed.catalog.before_load is None
    keyed.check(rows.values())
    assert (sink.figures.merged_files, sink.figures.left_files) == (0, len(before))
    assert str(error) in (sink.figures.problem or "")
    # A commit without an answer may have landed, so its files stay.
    assert (set(folder.rglob("*.parquet")) > before) is stay


@pytest.mark.parametrize("lost", [CommitFailedException("409: the head has moved"), ConnectionError("no answer")])
@pytest.mark.parametrize("is_away", [False, True])
def test_a_commit_that_landed_without_an_answer_keeps_its_files(keyed: Keyed, lost: Exception, is_away: bool) -> None:
    """The first request lands, and its answer gets lost. The client sends it again, and loses. Then the catalog may be away."""
    armed, away = threading.Event(), threading.Event()

    def act(name: str, commit: Commit) -> None:
        commit()
        if armed.is_set():
            armed.clear()
            if is_away:
                away.set()
            raise lost

    def before_load() -> None:
        if away.is_set():
            away.clear()
            raise ConnectionError("the catalog is away")

    keyed.catalog.act, keyed.catalog.before_load = act, before_load
    rows: dict[int, Row] = {}
    with keyed.table.merging_sink("s", interval=_LONG) as sink:
        for batch in range(3):
            put(sink, rows, batch, *range(6))
        armed.set()
    assert not armed.is_set()
    keyed.check(rows.values())
    if is_away:
        assert "the table cannot be read now; it may still land" in (sink.figures.problem or "")
    else:
        assert (sink.figures.merged_files > 0, sink.figures.problem) == (True, None)


# ---- with the service


@pytest.fixture
def program(tmp_path: Path) -> Program:
    return Program(tmp_path, delta_rewrite=True, upsert=True)


def merge_here(tasks: Sequence[MergeInput[RewriteChanges]], file_io: Mapping[str, str], held: Mapping[str, bytes]) -> list[MergeResult]:
    assert not held, "files on a local disk are not handed over"
    return [merge_task(task, file_io) for task in tasks]


class Driver:
    """A sink whose merges happen when the test says so, and which may be killed at any moment."""

    def __init__(self, keyed: Keyed, sink_id: str = "s", summary: Mapping[str, str] | None = None) -> None:
        """`summary` is what the snapshots say of the time until which the sink holds its files; None for an hour."""
        self.keyed, self.sink_id, self.batch = keyed, sink_id, 0
        self.summary = summary
        self.revive()

    def revive(self) -> None:
        """A new process of the same sink. It knows nothing of the files that the former one has committed."""
        properties = resolve_properties(self.keyed.stores()[0].properties, {})
        self.small = SmallFiles(_LONG, properties.fragment_size_bytes, properties.target_size_bytes)
        self.merges = SinkMerges(
            lambda: load_stores(self.keyed.catalog, ("db", "t")), properties, 64 * 1024 * 1024, merge_here, lambda: None
        )

    def write(self, rows: list[tuple[str, Row]]) -> None:
        stores = load_stores(self.keyed.catalog, ("db", "t"))
        summary = self.summary or held_until(datetime.now(timezone.utc) + _LONG)
        appended = append_rows(stores, table_of(rows), None, Batch(self.sink_id, self.batch), summary)
        self.batch += 1
        if appended is not None:
            self.small.add([_live(file, appended) for file in appended.files], _NOW)

    def merge(self) -> None:
        nodes = self.small.due(_NOW, ends=True)
        if nodes:
            self.merges.merge(nodes, {})


def filled(program: Program, sink_id: str = "s", summary: Mapping[str, str] | None = None) -> Driver:
    driver = Driver(program.keyed, sink_id, summary)
    for number in range(4):
        rows = [row(each, f"v{number}") for each in range(8)]
        program.rows.update({each["id"]: each for each in rows})
        driver.write([("INSERT", each) for each in rows])
    return driver


def test_plans_leave_the_files_of_a_sink_alone_until_it_should_have_merged_them(program: Program) -> None:
    filled(program)
    planned = program.services.compact_tables.compact(TABLE, MINOR)
    assert (planned.records, planned.plan.reason.code) == ((), PlanReasonCode.NO_GAIN)
    assert "held by other tasks or by a sink" in planned.plan.reason.text
    # A MAJOR never waits for a sink.
    assert program.services.compact_tables.compact(TABLE, MAJOR).records
    program.check()
    driver = filled(program, "another")
    program.pass_time(4000)
    assert program.services.compact_tables.compact(TABLE, MINOR).records
    program.check()
    driver.merge()
    assert driver.merges.figures.merged_files == 0
    program.check()


@pytest.mark.parametrize("text", ["soon", "", "-5"])
def test_a_time_that_is_no_number_holds_nothing(program: Program, text: str) -> None:
    filled(program, summary={HELD_UNTIL_KEY: text})
    assert program.services.compact_tables.compact(TABLE, MINOR).records
    program.check()


def test_a_minor_that_took_one_file_ends_only_the_merge_of_its_node(program: Program) -> None:
    driver = filled(program)
    program.pass_time(4000)
    program.refresh()
    chosen = program.services.stores.tables.nodes(TABLE)[0].node
    program.services.compact_tables.compact(TABLE, PlanRequest((CompactionType.MINOR,), frozenset([chosen]), force=True))
    before = files_of_change_store(program)
    driver.merge()
    assert driver.merges.figures.merged_files == 3 * 8
    assert driver.merges.figures.left_files == 8
    assert "another merge took it" in (driver.merges.figures.problem or "")
    program.check()
    assert change_files(program) == 8
    # What the sink wrote for the node that was taken is gone.
    assert len(files_of_change_store(program) - before) == 6


def test_a_file_that_expired_ends_only_the_merge_of_its_node(program: Program) -> None:
    driver = filled(program)
    # Its changes are in the base store, and an upkeep takes the change files of one node out of the table.
    program.services.compact_tables.compact(TABLE, FULL)
    stores = load_stores(program.keyed.catalog, ("db", "t"))
    changes = stores.files()[1]
    node = change_file(changes[0].path, 1).node
    expired = [file for file in changes if change_file(file.path, 1).node == node]
    transaction = Transaction(stores.change)
    transaction.stage(SnapshotChange(Operation.DELETE, [], expired))
    transaction.commit()
    program.check()
    driver.merge()
    assert driver.merges.figures.merged_files == 3 * 8
    assert "no longer live" in (driver.merges.figures.problem or "")
    program.check()


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_major_cuts_the_changes_of_a_sink(program: Program, when: str) -> None:
    driver = filled(program)
    if when == "after":
        driver.merge()
    program.services.compact_tables.compact(TABLE, MAJOR)
    program.check()
    if when == "before":
        driver.merge()
    program.check()
    driver.write([("DELETE", program.rows.pop(3))])
    program.check()


def test_an_overwrite_between_hides_the_changes_of_a_sink(program: Program) -> None:
    driver = filled(program)
    program.rows = {50: row(50, "new")}
    program.keyed.table.insert_overwrite(table_of([("INSERT", row(50, "new"))]).drop_columns(["_change_type"]))
    program.check()
    driver.merge()
    program.check()
    program.services.compact_tables.compact(TABLE, FULL)
    program.check()


@given(seed=st.integers(0, 10**6))
@settings(max_examples=max(5, settings.default.max_examples // 8), deadline=None)
def test_readers_see_every_row_whatever_sinks_and_the_service_do(seed: int, tmp_path_factory: pytest.TempPathFactory) -> None:
    chance = random.Random(seed)
    program = Program(tmp_path_factory.mktemp("sinks"), delta_rewrite=True, upsert=True)
    drivers = [Driver(program.keyed, sink_id) for sink_id in ("one", "two")]
    program.services.explore_catalogs.explore()

    def write() -> None:
        driver, rows = chance.choice(drivers), []
        for number in chance.sample(range(12), chance.randrange(1, 6)):
            if number in program.rows and chance.random() < 0.3:
                rows.append(("DELETE", program.rows.pop(number)))
            else:
                program.rows[number] = row(number, f"v{chance.randrange(10**6)}")
                rows.append(("INSERT", program.rows[number]))
        driver.write(rows)

    def repeat() -> None:
        driver = chance.choice(drivers)
        if driver.batch:
            driver.batch -= 1
            driver.write([("INSERT", row(1, "must not land"))])

    acts: list[Callable[[], Any]] = [
        write, write, write, repeat,
        lambda: chance.choice(drivers).merge(),
        lambda: chance.choice(drivers).revive(),
        lambda: program.pass_time(4000),
        lambda: program.services.compact_tables.compact(TABLE, chance.choice([MINOR, MAJOR, FULL])),
        lambda: program.services.compact_tables.compact(TABLE),
    ]  # fmt: skip
    for _ in range(25):
        chance.choice(acts)()
        program.check()
