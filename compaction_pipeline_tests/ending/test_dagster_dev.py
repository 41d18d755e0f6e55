"""How a process notices that `dagster dev` ends, and what then happens to its work."""

from __future__ import annotations

import threading

import dagster as dg
import pytest

from compaction_pipeline.defs.ticks import BROKEN_OFF, abandoned_when_dagster_ends
from compaction_pipeline.ending.dagster_dev import MARK, Abandoned, abandoned_when, ends_soon, whose_end_shows_it
from compaction_pipeline.ending.process_table import ProcessEntry

# A shell (10) has started `dagster dev` (20), which has started a proxy of code servers (21), the webserver (22) and the daemon (23). The
# proxy has started a code server (30), and this a run worker (40).
_PARENTS = {10: 1, 20: 10, 21: 20, 22: 20, 23: 20, 30: 21, 40: 30, 50: 10, 60: 1}
_COMMANDS = {
    20: "python -m dagster dev",
    21: "python -m dagster code-server start",
    22: "python -m dagster_webserver --port 3000",
    23: "python -m dagster._daemon run",
    30: "python -m dagster api grpc",
    50: "python -m dagster_webserver --port 4000",
}


def _table(*ended: int) -> list[ProcessEntry]:
    return [ProcessEntry(pid, parent, pid, None, pid in ended) for pid, parent in _PARENTS.items()]


@pytest.mark.parametrize("me", [30, 40])
def test_the_webserver_and_the_daemon_of_our_own_dagster_dev_are_watched(me: int) -> None:
    assert whose_end_shows_it(me, _table(), lambda pid: _COMMANDS.get(pid, "")) == {22, 23}


def test_a_process_outside_of_dagster_dev_watches_nobody() -> None:
    assert whose_end_shows_it(60, _table(), lambda pid: _COMMANDS.get(pid, "")) == frozenset()


def test_an_ended_process_is_not_watched() -> None:
    assert whose_end_shows_it(30, _table(22), lambda pid: _COMMANDS.get(pid, "")) == {23}


def test_nothing_is_watched_outside_of_dagster_dev(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(MARK, raising=False)
    before = threading.active_count()
    assert ends_soon() is None
    assert threading.active_count() == before


def test_work_that_ends_in_time_returns_or_raises_as_usual() -> None:
    assert abandoned_when(threading.Event(), lambda: 7) == 7
    with pytest.raises(ZeroDivisionError):
        abandoned_when(threading.Event(), lambda: 1 // 0)


def test_work_that_hangs_is_abandoned_at_the_end() -> None:
    event, let_go = threading.Event(), threading.Event()

    def hang() -> bool:
        event.set()
        return let_go.wait(600)

    with pytest.raises(Abandoned):
        abandoned_when(event, hang)
    let_go.set()


def test_no_work_begins_after_the_request_to_end() -> None:
    event = threading.Event()
    event.set()
    begun: list[int] = []
    with pytest.raises(Abandoned):
        abandoned_when(event, lambda: begun.append(1))
    assert begun == []


def test_a_tick_says_that_it_was_broken_off() -> None:
    event = threading.Event()
    event.set()
    answer = abandoned_when_dagster_ends(lambda: "done", lambda: event, lambda: None)()
    assert isinstance(answer, dg.SkipReason)
    assert answer.skip_message == BROKEN_OFF
