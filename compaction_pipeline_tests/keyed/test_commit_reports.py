"""Commits of keyed tables are reported, compared with the store that they are about, and never hold a batch back."""

from __future__ import annotations

import logging
import pickle
import threading
import time
from collections.abc import Mapping
from pathlib import Path

import pytest

from compaction_pipeline.core.tables.commit_report import CommitReport
from compaction_pipeline.core.tables.index import Complete
from compaction_pipeline.core.tables.table import TableIdentifier
from compaction_pipeline.keyed import reporting
from compaction_pipeline.keyed.reporting import Reports
from compaction_pipeline.reports import CommitReporter
from compaction_pipeline_tests.keyed.program import CHANGE_STORE, TABLE, Program
from compaction_pipeline_tests.keyed.written import BY_REGION, Keyed, row, table_of


class Noted:
    """A reporter that keeps what it was told. It fails with `error`, or waits until `answers` is set."""

    def __init__(self, error: BaseException | None = None) -> None:
        self.told: list[tuple[str, int, int, dict[str, int]]] = []
        self.answers = threading.Event()
        self.answers.set()
        self._error = error

    def report_commit(self, table: str, snapshot_id: int, sequence_number: int = 0, added: Mapping[str, int] | None = None) -> None:
        self.answers.wait(10)
        self.told.append((table, snapshot_id, sequence_number, dict(added or {})))
        if self._error is not None:
            raise self._error


def newest(keyed: Keyed) -> tuple[int, int]:
    snapshot = keyed.stores()[1].current_snapshot()
    assert snapshot is not None
    return snapshot.snapshot_id, snapshot.sequence_number or 0


def report(program: Program, table: TableIdentifier = CHANGE_STORE, number: int | None = None) -> CommitReport:
    snapshot_id, sequence_number = newest(program.keyed)
    return CommitReport(table, 42 if number is not None else snapshot_id, sequence_number if number is None else number)


@pytest.fixture
def program(tmp_path: Path) -> Program:
    return Program(tmp_path)


def with_a_base_ahead(program: Program) -> None:
    """Bring the base store's sequence number above that of the change store."""
    program.upsert(row(1, "a"))
    base = program.keyed.stores()[0]
    for _ in range(5):
        base.refresh().append(base.scan().to_arrow())
    program.refresh()


# ---- which store a report is about -----------------------------------------------------------------------------------


def test_the_index_knows_the_heads_of_both_stores(program: Program) -> None:
    program.upsert(row(1, "a"))
    program.upsert(row(2, "b"))
    state = program.refresh().index.state
    assert isinstance(state, Complete)
    assert state.change_store is not None
    assert (state.change_store.snapshot_id, state.change_store.sequence_number) == newest(program.keyed)


def test_a_report_of_the_change_store_is_compared_with_the_change_store(program: Program) -> None:
    with_a_base_ahead(program)
    take = program.services.take_reports.take
    known = take(report(program))
    assert not known.accepted
    assert known.why.startswith(f"snapshot {newest(program.keyed)[0]} of the change store was read at")
    program.upsert(row(2, "b"))
    # The base store's number is higher, and tells nothing about this commit.
    taken = take(report(program))
    assert taken.accepted
    assert taken.why == "the keyed table lake.db.t, of which lake.db.t_change_ is the change store, is looked at within seconds"
    assert [one.table for one in program.services.stores.reports.reported()] == [TABLE]
    old = take(report(program, number=1))
    assert (old.accepted, old.why) == (
        False,
        "the sequence number 1 is not above 1, that of the snapshot of the change store that was read last",
    )


def test_a_report_of_the_keyed_table_may_be_about_either_store(program: Program) -> None:
    with_a_base_ahead(program)
    take = program.services.take_reports.take
    head = program.keyed.stores()[0].current_snapshot()
    assert head is not None
    known = take(CommitReport(TABLE, head.snapshot_id, head.sequence_number or 0))
    assert not known.accepted
    assert f"snapshot {head.snapshot_id} of the base store was read" in known.why
    assert not take(report(program, TABLE)).accepted
    assert "of the change store that was read last" in take(report(program, TABLE, number=1)).why
    program.upsert(row(2, "b"))
    # Number 2 is below that of the base store, but the change store's has not been read yet.
    assert take(report(program, TABLE)).accepted


def test_a_change_store_of_any_name_is_found_by_the_property_of_its_base_store(program: Program) -> None:
    program.upsert(row(1, "a"))
    program.keyed.catalog.rename_table("db.t_change_", "db.log of t")
    with program.keyed.catalog.load_table("db.t").transaction() as transaction:
        transaction.set_properties({"mixed-format.change.identifier": "db.log of t"})
    renamed = TableIdentifier("lake", ("db",), "log of t")
    program.services.refresh_files.refresh(TABLE)
    program.services.refresh_files.refresh(renamed)
    assert "of the change store" in program.services.take_reports.take(CommitReport(renamed, 42, 1)).why
    taken = program.services.take_reports.take(CommitReport(renamed, 42, 10))
    assert taken.why.startswith("the keyed table lake.db.t, of which lake.db.log of t is the change store,")


@pytest.mark.parametrize("separator", ["_", "@", "--"])
def test_the_first_report_of_a_change_store_makes_its_base_store_known_too(program: Program, separator: str) -> None:
    program.upsert(row(1, "a"))
    name = f"t{separator}change{separator}"
    if separator != "_":
        program.keyed.catalog.rename_table("db.t_change_", ("db", name))
        with program.keyed.catalog.load_table("db.t").transaction() as transaction:
            transaction.set_properties({"mixed-format.change.identifier": f"db.{name}"})
    store = TableIdentifier("lake", ("db",), name)
    assert program.services.take_reports.take(CommitReport(store, 42, 1)).accepted
    assert {one.table for one in program.services.stores.reports.reported()} == {TABLE, store}
    program.services.refresh_files.refresh(TABLE)
    assert not program.services.take_reports.take(CommitReport(store, 42, 1)).accepted


def test_a_plain_table_with_such_a_name_is_reported_itself(program: Program) -> None:
    program.keyed.catalog.create_table(("db", "u_change_"), program.keyed.table.schema)
    program.keyed.catalog.create_table(("db", "u"), program.keyed.table.schema)
    plain, beside = (TableIdentifier("lake", ("db",), name) for name in ("u_change_", "u"))
    for table in (plain, beside):
        program.services.refresh_files.refresh(table)
    assert program.services.take_reports.take(CommitReport(plain, 42, 1)).why == "the table is looked at within seconds"
    assert [one.table for one in program.services.stores.reports.reported()] == [plain]


# ---- writers that report ---------------------------------------------------------------------------------------------


def test_a_batch_reports_its_commit(tmp_path: Path) -> None:
    keyed, reporter = Keyed(tmp_path, ("id", "region"), BY_REGION), Noted()
    keyed.write(("INSERT", row(1, "a", "e u")), ("INSERT", row(2, "b")), ("DELETE", row(2)), sink_id="s", batch=1, reporter=reporter)
    assert reporter.told == [("lake.db.t_change_", *newest(keyed), {"region=e+u": 1, "region=null": 2})]
    # A batch that was written before has no commit to report.
    assert keyed.write(("INSERT", row(1)), sink_id="s", batch=1, reporter=reporter) is None
    assert len(reporter.told) == 1


def test_a_merging_sink_reports_its_batches(tmp_path: Path) -> None:
    keyed, reporter = Keyed(tmp_path, delta_rewrite=True, upsert=True), Noted()
    with keyed.table.merging_sink("s", reporter=reporter) as sink:
        sink.write_changes(table_of([("INSERT", row(1, "a"))]), batch=1)
        assert [told[:3] for told in reporter.told] == [("lake.db.t_change_", *newest(keyed))]


def test_the_reporter_of_the_program_is_one(tmp_path: Path) -> None:
    reporter: reporting.Reporter = CommitReporter("http://127.0.0.1:9", "token", tries=1)
    # Nobody listens there. The batch lands all the same.
    assert Keyed(tmp_path).write(("INSERT", row(1)), reporter=reporter) == 1


class Heard(logging.Handler):
    """Keeps what a logger says."""

    def __init__(self) -> None:
        super().__init__()
        self.said: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.said.append(record.getMessage())


@pytest.mark.parametrize("error", [RuntimeError("no server"), SystemExit("stop")])
def test_a_report_that_fails_fails_no_batch(tmp_path: Path, error: BaseException) -> None:
    keyed, heard = Keyed(tmp_path), Heard()
    # A command line that ran before in this process may have changed what loggers pass on.
    reporting.log.addHandler(heard)
    try:
        assert keyed.write(("INSERT", row(1)), reporter=Noted(error)) == 1
    finally:
        reporting.log.removeHandler(heard)
    keyed.check([row(1)])
    said = heard.said
    assert len(said) == 1
    assert said[0].endswith(f"of table lake.db.t_change_ not reported: {error}")


def test_a_report_that_hangs_delays_one_batch_by_less_than_a_second(tmp_path: Path) -> None:
    assert reporting.PATIENCE_SECONDS < 1
    keyed, reporter = Keyed(tmp_path), Noted()
    keyed.table._reports = reports = reporting.Reports(patience_seconds=0.05)
    reporter.answers.clear()
    try:
        keyed.write(("INSERT", row(1)), reporter=reporter)
        assert reporter.told == []
        reports._patience_seconds = 60
        began = time.monotonic()
        # The next batches do not wait at all: the report before them is still under way.
        keyed.write(("INSERT", row(2)), reporter=reporter)
        keyed.write(("INSERT", row(3)), reporter=reporter)
        assert time.monotonic() - began < 20
    finally:
        reporter.answers.set()
    [thread] = [thread for thread in threading.enumerate() if thread.name == "reports of lake.db.t"] or [None]
    if thread is not None:
        thread.join(10)
    # What was committed meanwhile is reported together.
    assert [told[2:] for told in reporter.told] == [(1, {"": 1}), (3, {"": 2})]


def test_what_reports_may_be_sent_elsewhere() -> None:
    assert isinstance(pickle.loads(pickle.dumps(Reports())), Reports)
