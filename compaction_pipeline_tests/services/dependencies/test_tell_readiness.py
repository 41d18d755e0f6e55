"""What is awaited is told once for each change, and again until somebody took it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timezone
from pathlib import Path
from threading import Barrier
from typing import Any

import pytest

from compaction_pipeline.core.dependencies.ports import AwaitedAnswer
from compaction_pipeline.core.dependencies.readiness import Readiness
from compaction_pipeline.core.dependencies.ready_time import Question, SpecField, Window, question
from compaction_pipeline.core.errors import StorageUnavailable
from compaction_pipeline.core.stores import Stores
from compaction_pipeline.core.tables.table import CatalogEntry, TableIdentifier
from compaction_pipeline.services.dependencies.read_readiness import ReadReadiness
from compaction_pipeline.services.dependencies.tell_readiness import TellReadiness
from compaction_pipeline_tests.services.dependencies.written_table import TABLE, ManyTables, WrittenTable
from compaction_pipeline_tests.state import sqlite_stores

NEW_YEAR = "ts_day=2026-01-01"
DAY = Window(datetime(2026, 1, 1, tzinfo=timezone.utc), datetime(2026, 1, 2, tzinfo=timezone.utc))


class Told:
    """A receiver that may be down, and what it took: ids, what, and whether it is ready."""

    def __init__(self, tell: TellReadiness) -> None:
        self.taken: list[tuple[str, str, bool]] = []
        self.tried: list[str] = []
        self.is_down = False
        self._tell = tell

    def send(self, change: str, answer: Readiness) -> None:
        self.tried.append(change)
        if self.is_down:
            raise StorageUnavailable("down")
        self.taken.append((change, answer.what, answer.ready))

    def look(self) -> list[tuple[str, bool]]:
        before = len(self.taken)
        self._tell.tell(self.send)
        return [(what, ready) for _, what, ready in self.taken[before:]]


@pytest.fixture
def table() -> WrittenTable:
    return WrittenTable(datetime(2026, 1, 2, 1, tzinfo=timezone.utc))


@pytest.fixture
def stores(tmp_path: Path) -> Stores:
    stores = sqlite_stores(tmp_path)
    stores.catalogs.add(CatalogEntry(TABLE.catalog, {}))
    return stores


@pytest.fixture
def tell(stores: Stores, table: WrittenTable) -> TellReadiness:
    return TellReadiness(ReadReadiness(stores.catalogs, table, stores.dependencies, table.clock), stores.dependencies, table.clock)


def test_each_change_is_told_once(tell: TellReadiness, table: WrittenTable) -> None:
    first = table.mark("2026-01-01T12:00:00+00:00")
    told = Told(tell)
    assert [one.ready for one in tell.await_answers(TABLE, question([NEW_YEAR], None, None))] == [False]
    tell.await_answers(TABLE, Question(window=DAY))
    assert told.look() == []
    table.mark("2026-01-02T00:00:00+00:00")
    assert sorted(told.look()) == [("2026-01-01T00:00Z/2026-01-02T00:00Z", True), (NEW_YEAR, True)]
    assert told.look() == []
    table.head = first
    assert sorted(told.look()) == [("2026-01-01T00:00Z/2026-01-02T00:00Z", False), (NEW_YEAR, False)]
    table.mark("2026-01-02T00:30:00+00:00")
    assert len(told.look()) == 2
    assert len({change for change, _, _ in told.taken}) == 6


def test_a_receiver_that_is_down_is_told_again_under_the_same_id(tell: TellReadiness, table: WrittenTable) -> None:
    table.mark("2026-01-02T00:00:00+00:00")
    told = Told(tell)
    tell.await_answers(TABLE, question([NEW_YEAR], None, None))
    told.is_down = True
    assert (told.look(), told.look()) == ([], [])
    told.is_down = False
    assert told.look() == [(NEW_YEAR, True)]
    assert (len(told.tried), len(set(told.tried))) == (3, 1)


def test_what_was_taken_back_and_is_ready_again_while_nobody_could_be_told_is_told_anew(tell: TellReadiness, table: WrittenTable) -> None:
    first = table.mark("2026-01-01T00:00:00+00:00")
    told = Told(tell)
    tell.await_answers(TABLE, question([NEW_YEAR], None, None))
    table.mark("2026-01-02T00:00:00+00:00")
    assert told.look() == [(NEW_YEAR, True)]
    told.is_down = True
    table.head = first
    assert told.look() == []
    table.pass_time(minutes=1)
    table.mark("2026-01-02T00:00:00+00:00")
    assert told.look() == []
    told.is_down = False
    assert (told.look(), told.look()) == ([(NEW_YEAR, True)], [])
    assert len({change for change, _, _ in told.taken}) == 2


def test_who_awaits_what_was_told_already_gets_it_under_the_same_id(tell: TellReadiness, table: WrittenTable) -> None:
    table.mark("2026-01-02T00:00:00+00:00")
    told = Told(tell)
    for _ in range(2):
        tell.await_answers(TABLE, question([NEW_YEAR], None, None))
        assert (told.look(), told.look()) == ([(NEW_YEAR, True)], [])
    assert len({change for change, _, _ in told.taken}) == 1


def test_who_awaits_what_was_just_taken_back_keeps_nobody_from_being_told(tell: TellReadiness, table: WrittenTable) -> None:
    first = table.mark("2026-01-01T00:00:00+00:00")
    table.mark("2026-01-02T00:00:00+00:00")
    told = Told(tell)
    tell.await_answers(TABLE, question([NEW_YEAR], None, None))
    assert told.look() == [(NEW_YEAR, True)]
    table.head = first
    tell.await_answers(TABLE, question([NEW_YEAR], None, None))
    assert (told.look(), told.look()) == ([(NEW_YEAR, False)], [])


def test_a_receiver_that_is_down_ends_a_look_and_the_next_one_goes_on_behind(tell: TellReadiness, table: WrittenTable) -> None:
    table.mark("2026-01-31T00:00:00+00:00")
    names = [f"ts_day=2026-01-{day:02}" for day in range(1, 13)]
    tell.await_answers(TABLE, question(names, None, None))
    told = Told(tell)
    told.is_down = True
    told.look()
    told.look()
    assert [change.split("/")[1] for change in told.tried] == names[:10]
    told.is_down = False
    assert [what for what, _ in told.look()] == [*names[10:], *names[:10]]


def test_a_server_that_ends_sends_nothing_more(tell: TellReadiness, table: WrittenTable) -> None:
    table.mark("2026-01-31T00:00:00+00:00")
    tell.await_answers(TABLE, question([NEW_YEAR, "ts_day=2026-01-02"], None, None))
    taken: list[str] = []
    tell.tell(lambda _, answer: taken.append(answer.what), lambda: bool(taken))
    assert taken == [NEW_YEAR]


def test_after_seven_days_nobody_is_told(tell: TellReadiness, table: WrittenTable) -> None:
    table.commit()
    told = Told(tell)
    tell.await_answers(TABLE, question([NEW_YEAR], None, None))
    table.pass_time(days=7, seconds=1)
    table.mark("2026-01-02T00:00:00+00:00")
    assert told.look() == []


def test_a_table_that_was_made_anew_is_another_one(tell: TellReadiness, table: WrittenTable) -> None:
    table.commit()
    told = Told(tell)
    tell.await_answers(TABLE, question([NEW_YEAR], None, None))
    table.uuid = "uuid-2"
    table.mark("2026-01-02T00:00:00+00:00")
    assert told.look() == []


def test_a_value_with_signs_of_paths_is_told_and_keeps_nobody_else_from_it(tell: TellReadiness, table: WrittenTable) -> None:
    table.specs = {0: (SpecField("ts_day", "day", 1, "timestamptz"), SpecField("region", "identity", 2, "string"))}
    table.commit()
    told = Told(tell)
    names = [NEW_YEAR, *(f"{NEW_YEAR}/region={value}" for value in ("a%2Fb", "50%2525", "x%3Dy", "%252F"))]
    assert [one.what for one in tell.await_answers(TABLE, question(names, None, None))] == names
    table.mark("2026-01-02T00:00:00+00:00")
    assert sorted(told.look()) == sorted((name, True) for name in names)


def test_what_means_nothing_any_more_keeps_nobody_else_waiting(
    tell: TellReadiness, table: WrittenTable, caplog: pytest.LogCaptureFixture
) -> None:
    table.specs = {0: (SpecField("ts_day", "day", 1, "timestamptz"), SpecField("region", "identity", 2, "string"))}
    table.commit()
    tell.await_answers(TABLE, question([f"{NEW_YEAR}/region=eu", NEW_YEAR], None, None))
    tell.await_answers(TABLE, Question(window=DAY))
    table.specs = {1: (SpecField("ts_day", "day", 1, "timestamptz"),)}
    table.mark("2026-01-02T00:00:00+00:00")
    assert sorted(Told(tell).look()) == [(str(DAY), True), (NEW_YEAR, True)]
    assert f"nobody is told whether {NEW_YEAR}/region=eu is ready" in caplog.text


def test_a_change_that_the_receiver_refuses_does_not_hold_up_the_others(tell: TellReadiness, table: WrittenTable) -> None:
    table.mark("2026-01-03T00:00:00+00:00")
    tell.await_answers(TABLE, question([NEW_YEAR, "ts_day=2026-01-02"], None, None))
    taken: list[str] = []

    def refuse_the_first(change: str, answer: Readiness) -> None:
        if answer.what == NEW_YEAR:
            raise StorageUnavailable("HTTP 500")
        taken.append(answer.what)

    tell.tell(refuse_the_first)
    tell.tell(refuse_the_first)
    assert taken == ["ts_day=2026-01-02"]
    assert Told(tell).look() == [(NEW_YEAR, True)]


def test_what_becomes_ready_again_after_its_rule_changed_is_told_under_another_id(tell: TellReadiness, table: WrittenTable) -> None:
    table.mark("2026-01-02T00:00:00+00:00")
    told = Told(tell)
    tell.await_answers(TABLE, question([NEW_YEAR], None, None))
    assert told.look() == [(NEW_YEAR, True)]
    table.properties["compaction.ready-when"] = "flag:done"
    table.pass_time(seconds=10)
    assert told.look() == [(NEW_YEAR, False)]
    table.commit({"done": NEW_YEAR})
    table.pass_time(seconds=10)
    assert told.look() == [(NEW_YEAR, True)]
    assert len({change for change, _, _ in told.taken}) == 3


def test_what_stays_ready_when_its_rule_changes_is_not_told_again(tell: TellReadiness, table: WrittenTable) -> None:
    table.mark("2026-01-02T00:00:00+00:00", d2026_01_01=1)
    told = Told(tell)
    tell.await_answers(TABLE, question([NEW_YEAR], None, None))
    assert told.look() == [(NEW_YEAR, True)]
    table.pass_time(minutes=1)
    table.properties["compaction.ready-when"] = "exists"
    assert told.look() == []


def test_what_was_told_is_taken_back_though_it_is_awaited_again_before_the_next_look(tell: TellReadiness, table: WrittenTable) -> None:
    first = table.mark("2026-01-01T00:00:00+00:00")
    table.mark("2026-01-02T00:00:00+00:00")
    told = Told(tell)
    tell.await_answers(TABLE, question([NEW_YEAR], None, None))
    assert told.look() == [(NEW_YEAR, True)]
    for _ in range(2):
        assert [one.ready for one in tell.await_answers(TABLE, question([NEW_YEAR], None, None))] == [True]
    table.head = first
    assert (told.look(), told.look()) == ([(NEW_YEAR, False)], [])


def test_what_was_taken_back_once_and_stays_ready_when_its_rule_changes_is_not_told_again(tell: TellReadiness, table: WrittenTable) -> None:
    first = table.mark("2026-01-01T00:00:00+00:00")
    told = Told(tell)
    tell.await_answers(TABLE, question([NEW_YEAR], None, None))
    for _ in range(2):
        table.head = first
        told.look()
        table.mark("2026-01-02T00:00:00+00:00", d2026_01_01=1)
        assert told.look() == [(NEW_YEAR, True)]
        table.pass_time(minutes=1)
    table.properties["compaction.ready-when"] = "exists"
    assert told.look() == []
    tell.await_answers(TABLE, question([NEW_YEAR], None, None))
    assert told.look() == [(NEW_YEAR, True)]
    assert len({change for change, _, _ in told.taken}) == 3


def test_each_taking_back_has_an_id_of_its_own_though_the_rule_changes_to_and_fro(tell: TellReadiness, table: WrittenTable) -> None:
    first = table.mark("2026-01-01T00:00:00+00:00")
    told = Told(tell)
    tell.await_answers(TABLE, question([NEW_YEAR], None, None))
    for _ in range(2):
        table.mark("2026-01-02T00:00:00+00:00", d2026_01_01=1)
        assert told.look() == [(NEW_YEAR, True)]
        table.pass_time(minutes=1)
        for rule in ("exists", "watermark"):
            table.properties["compaction.ready-when"] = rule
            assert told.look() == []
        table.head = first
        assert told.look() == [(NEW_YEAR, False)]
        table.pass_time(minutes=1)
    assert len({change for change, _, _ in told.taken}) == 4


def test_a_table_that_has_not_moved_is_not_loaded_again(tell: TellReadiness, table: WrittenTable) -> None:
    table.mark("2026-01-02T00:00:00+00:00")
    told = Told(tell)
    tell.await_answers(TABLE, question([NEW_YEAR, "ts_day=2026-01-02"], None, None))
    assert told.look() == [(NEW_YEAR, True)]
    table.loads.clear()
    assert (told.look(), told.look()) == ([], [])
    assert table.loads == []
    for change in (
        lambda: table.namespace.update({"compaction.ready-when": "reported"}),
        lambda: table.namespace.clear(),
        lambda: table.properties.update({"owner": "me"}),
        lambda: table.mark("2026-01-02T01:00:00+00:00"),
        lambda: tell.await_answers(TABLE, question(["ts_day=2026-01-03"], None, None)),
        lambda: table.pass_time(minutes=10),
    ):
        change()
        table.loads.clear()
        told.look()
        assert len(table.loads) == 1, "somebody may be told something"
        told.look()
        assert len(table.loads) == 1


def test_what_changes_as_time_passes_is_asked_again(tell: TellReadiness, table: WrittenTable) -> None:
    table.properties["compaction.ready-when"] = "quiet:5min"
    table.commit(d2026_01_01=1)
    told = Told(tell)
    tell.await_answers(TABLE, question([NEW_YEAR], None, None))
    assert told.look() == []
    for _ in range(5):
        table.pass_time(seconds=59)
        assert told.look() == []
    table.pass_time(seconds=5)
    assert told.look() == [(NEW_YEAR, True)]


def test_a_rule_that_the_catalog_changes_is_heeded(tell: TellReadiness, table: WrittenTable, stores: Stores) -> None:
    table.commit({"done": NEW_YEAR})
    told = Told(tell)
    tell.await_answers(TABLE, question([NEW_YEAR], None, None))
    assert told.look() == []
    stores.catalogs.replace(CatalogEntry(TABLE.catalog, {"table.compaction.ready-when": "flag:done"}))
    assert told.look() == [(NEW_YEAR, True)]


def test_a_report_for_which_there_was_no_turn_is_heeded_by_the_next_look(tell: TellReadiness, table: WrittenTable, stores: Stores) -> None:
    table.properties["compaction.ready-when"] = "reported"
    table.commit()
    told = Told(tell)
    tell.await_answers(TABLE, question([NEW_YEAR], None, None))
    assert told.look() == []
    ReadReadiness(stores.catalogs, table, stores.dependencies, table.clock).report(TABLE, NEW_YEAR)
    tell.tell_reported(told.send, lambda: True)
    assert told.look() == [(NEW_YEAR, True)]


def test_what_the_receiver_did_not_take_is_sent_again_though_the_table_has_not_moved(tell: TellReadiness, table: WrittenTable) -> None:
    table.mark("2026-01-31T00:00:00+00:00")
    tell.await_answers(TABLE, question([NEW_YEAR, "ts_day=2026-01-02"], None, None))
    told = Told(tell)
    told.is_down = True
    tell.tell_reported(told.send)
    told.is_down = False
    tell.tell(told.send, lambda: bool(told.taken))
    assert [what for _, what, _ in told.taken] == [NEW_YEAR]
    assert told.look() == [("ts_day=2026-01-02", True)]


def test_a_report_lets_its_table_alone_be_looked_at(tell: TellReadiness, table: WrittenTable, stores: Stores) -> None:
    table.commit()
    told = Told(tell)
    tell.await_answers(TABLE, question([NEW_YEAR], None, None))
    assert told.look() == []
    assert tell.tell_reported(told.send) == {TABLE}, "what was awaited just now is looked at"
    table.mark("2026-01-02T00:00:00+00:00")
    assert tell.tell_reported(told.send) == frozenset()
    stores.dependencies.note_reported(TABLE, table.now)
    assert tell.tell_reported(told.send) == {TABLE}
    assert [(what, ready) for _, what, ready in told.taken] == [(NEW_YEAR, True)]
    assert (tell.tell_reported(told.send), told.look()) == (frozenset(), [])


def test_each_report_of_readiness_lets_its_table_be_looked_at(tell: TellReadiness, table: WrittenTable, stores: Stores) -> None:
    readiness = ReadReadiness(stores.catalogs, table, stores.dependencies, table.clock)
    table.properties["compaction.ready-when"] = "reported"
    snapshot_id = table.commit()
    told = Told(tell)
    tell.await_answers(TABLE, question([NEW_YEAR], None, None))
    told.look()
    tell.tell_reported(told.send)
    for report in (
        lambda: readiness.report(TABLE, NEW_YEAR),
        lambda: readiness.withdraw(TABLE, NEW_YEAR),
        lambda: readiness.report_watermark(TABLE, snapshot_id, table.now),
    ):
        report()
        assert tell.tell_reported(told.send) == {TABLE}
    assert [ready for _, _, ready in told.taken] == [True, False]


def test_a_look_at_all_tables_gives_way_to_what_is_reported_meanwhile(tmp_path: Path, table: WrittenTable) -> None:
    """The first tables take two seconds, and the last one is reported in that time."""
    tables, tell, stores = many_tables(tmp_path, table, 30)
    taken: list[str] = []

    def send(change: str, answer: Readiness) -> None:
        taken.append(answer.table.name)
        if answer.table.name == "t00":
            table.pass_time(seconds=2)
            stores.dependencies.note_reported(tables["t29"].table, table.now)

    tell.tell(send)
    assert sorted(taken) == sorted(tables), "each once"
    assert taken.index("t29") == 20


def test_tables_are_looked_at_together_and_none_after_five_failures(tmp_path: Path, table: WrittenTable) -> None:
    _, tell, _ = many_tables(tmp_path, table, 20)
    tried: list[str] = []
    together = Barrier(4, timeout=60)

    def refuse(change: str, answer: Readiness) -> None:
        tried.append(answer.table.name)
        if len(tried) <= 4:
            together.wait()
        raise StorageUnavailable("HTTP 500")

    tell.tell(refuse)
    # Those that were under way at the fifth failure go on.
    assert 5 <= len(tried) <= 8


def many_tables(folder: Path, table: WrittenTable, count: int) -> tuple[Mapping[str, WrittenTable], TellReadiness, Stores]:
    """Tables of which a day became ready that somebody awaits, who was told nothing yet."""
    stores = sqlite_stores(folder)
    names = [f"t{number:02}" for number in range(count)]
    tables = {name: WrittenTable(table.now, TableIdentifier("lake", ("shop",), name), name) for name in names}
    stores.catalogs.add(CatalogEntry(TABLE.catalog, {}))
    reader = ManyTables(tables, table.clock)
    tell = TellReadiness(ReadReadiness(stores.catalogs, reader, stores.dependencies, table.clock), stores.dependencies, table.clock)
    for one in tables.values():
        one.commit()
        tell.await_answers(one.table, question([NEW_YEAR], None, None))
        one.mark("2026-01-02T00:00:00+00:00")
    tell.tell_reported(lambda change, answer: None, lambda: True)
    return tables, tell, stores


def test_no_manifest_is_read_to_tell_what_is_ready(tell: TellReadiness, table: WrittenTable) -> None:
    table.mark("2026-01-02T00:00:00+00:00", d2026_01_01=1)
    told = Told(tell)
    tell.await_answers(TABLE, question([NEW_YEAR, "ts_day=2026-01-02"], None, None))
    assert told.look() == [(NEW_YEAR, True)]
    table.readings.clear()
    table.mark("2026-01-03T00:00:00+00:00", d2026_01_01=1)
    assert told.look() == [("ts_day=2026-01-02", True)]
    assert table.readings == []


def test_a_table_that_is_gone_is_logged_when_that_changes(
    tell: TellReadiness, table: WrittenTable, caplog: pytest.LogCaptureFixture
) -> None:
    table.commit()
    tell.await_answers(TABLE, question([NEW_YEAR], None, None))
    told = Told(tell)
    for _ in range(2):
        for gone in (True, True, False, False):
            table.is_gone = gone
            table.pass_time(minutes=11)
            assert told.look() == []
    assert caplog.text.count("nobody is told what is ready: there is no such table") == 2


def test_a_report_that_may_be_taken_is_not_lost_when_the_database_fails_then(table: WrittenTable, stores: Stores) -> None:
    class Memory:
        """The store, whose answer about reports is cut off as long as it fails."""

        fails = False

        def __getattr__(self, name: str) -> Any:
            return getattr(stores.dependencies, name)

        def take_reported(self, now: datetime) -> Sequence[AwaitedAnswer]:
            taken = stores.dependencies.take_reported(now)
            if self.fails:
                raise StorageUnavailable("cut off")
            return taken

    memory: Any = Memory()
    readiness = ReadReadiness(stores.catalogs, table, memory, table.clock)
    tell = TellReadiness(readiness, memory, table.clock)
    table.properties["compaction.ready-when"] = "reported"
    table.commit()
    told = Told(tell)
    tell.await_answers(TABLE, question([NEW_YEAR], None, None))
    tell.tell_reported(told.send)
    readiness.report(TABLE, NEW_YEAR)
    memory.fails = True
    with pytest.raises(StorageUnavailable):
        tell.tell_reported(told.send)
    memory.fails = False
    assert told.look() == [(NEW_YEAR, True)]


def test_a_server_that_tells_again_after_another_one_did_looks_at_all(tell: TellReadiness, table: WrittenTable, stores: Stores) -> None:
    readiness = ReadReadiness(stores.catalogs, table, stores.dependencies, table.clock)
    table.properties["compaction.ready-when"] = "reported"
    table.commit()
    first, second = Told(tell), Told(TellReadiness(readiness, stores.dependencies, table.clock))
    tell.await_answers(TABLE, question([NEW_YEAR], None, None))
    assert first.look() == []
    readiness.report(TABLE, NEW_YEAR)
    second.is_down = True
    assert second.look() == []
    stores.dependencies.take_reported(table.now)
    table.pass_time(minutes=1)
    assert first.look() == [(NEW_YEAR, True)]


def test_a_watermark_that_nobody_can_read_keeps_nobody_waiting_under_another_rule(tell: TellReadiness, table: WrittenTable) -> None:
    table.properties["compaction.ready-when"] = "flag:done"
    table.commit({"done": NEW_YEAR, "watermark": "soon"})
    told = Told(tell)
    tell.await_answers(TABLE, question([NEW_YEAR], None, None))
    assert told.look() == [(NEW_YEAR, True)]
