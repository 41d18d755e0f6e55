"""The client of writers, against a real server and against servers that fail. It never ends the writer's own work unasked."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from compaction_pipeline.core.access.body_bounds import COMMIT_REPORT, marks_in
from compaction_pipeline.core.access.token import Role
from compaction_pipeline.core.tables import commit_report
from compaction_pipeline.reports import Answer, CommitReporter, ReportError
from compaction_pipeline.reports.client import MOST_BYTES, MOST_PARTITIONS
from compaction_pipeline_tests.optimizer.serving import serving
from compaction_pipeline_tests.services.house import House

Reply = tuple[int, dict[str, str], bytes]
ACCEPTED = json.dumps({"accepted": True, "why": "so"}).encode()


@contextmanager
def answering(replies: list[Reply]) -> Iterator[tuple[str, list[bytes]]]:
    """A server that gives these replies, the last one again and again. Yields its URL and the bodies that it got."""
    got: list[bytes] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            got.append(self.rfile.read(int(self.headers["Content-Length"])))
            status, headers, body = replies[min(len(got), len(replies)) - 1]
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *arguments: object) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", got
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def noted(pauses: list[float]) -> Callable[[float], None]:
    return pauses.append


@pytest.fixture
def house(tmp_path: Path) -> Iterator[House]:
    made = House(tmp_path)
    yield made
    made.services.close()


def test_a_commit_is_reported_to_a_real_server(house: House) -> None:
    table, services = house.fragmented(name="a.b", files=2), house.services
    head = table.head()
    assert head.snapshot_id is not None
    with serving(house) as port:
        reporter = CommitReporter(f"http://127.0.0.1:{port}/", services.keep_tokens.issue(Role.WRITER, "w").text)
        answer = reporter.report_commit(str(table.identifier), head.snapshot_id, head.sequence_number, {"": 2})
        assert answer is not None
        assert answer.accepted
        [reported] = services.stores.reports.reported()
        assert (reported.table, reported.snapshot_id, reported.added) == (table.identifier, head.snapshot_id, {"": 2})
        services.refresh_files.refresh(table.identifier)
        again = reporter.report_commit(str(table.identifier), head.snapshot_id)
        assert again is not None
        assert not again.accepted


def test_a_refused_report_is_a_warning_and_is_not_tried_again(house: House, caplog: pytest.LogCaptureFixture) -> None:
    pauses: list[float] = []
    with serving(house) as port:
        reporter = CommitReporter(f"http://127.0.0.1:{port}", "wrong.token", sleep=noted(pauses))
        with caplog.at_level(logging.WARNING, logger="compaction_pipeline.reports"):
            assert reporter.report_commit("lake.db.t", 1) is None
        assert "401" in caplog.text
        assert "wrong.token" not in caplog.text
        with pytest.raises(ReportError, match="401"):
            reporter.report_commit("lake.db.t", 1, must_arrive=True)
    assert pauses == []


def test_a_server_that_is_busy_is_asked_again_after_the_time_that_it_names() -> None:
    pauses: list[float] = []
    busy: list[Reply] = [(429, {"Retry-After": "3"}, b"{}"), (503, {"Retry-After": "3600"}, b""), (200, {}, ACCEPTED)]
    with answering(busy) as (url, got):
        assert CommitReporter(url, "t", sleep=noted(pauses)).report_commit("lake.db.t", 5, 7, {"day=1": 2}) == Answer(True, "so")
    assert pauses == [3, 10]
    assert len(set(got)) == 1
    assert json.loads(got[0]) == {"snapshot_id": 5, "sequence_number": 7, "added": [{"partition": "day=1", "files": 2}]}


def test_a_report_is_cut_to_what_the_server_takes() -> None:
    assert (COMMIT_REPORT.most_bytes, commit_report.MOST_PARTITIONS) == (MOST_BYTES, MOST_PARTITIONS)
    added = {f"name={'ü' * 300}{number:04}": number for number in range(1_100)}
    with answering([(200, {}, ACCEPTED)]) as (url, got):
        assert CommitReporter(url, "t").report_commit("lake.db.t", 1, 0, added) == Answer(True, "so")
    [sent] = got
    assert MOST_BYTES * 0.8 < len(sent) <= MOST_BYTES
    assert marks_in(sent) <= COMMIT_REPORT.most_marks
    kept = [one["files"] for one in json.loads(sent)["added"]]
    assert kept == list(range(1_099, 1_099 - len(kept), -1))


def test_a_server_that_never_answers_ends_after_a_few_tries() -> None:
    pauses: list[float] = []
    reporter = CommitReporter("http://127.0.0.1:1", "t", tries=3, sleep=noted(pauses))
    assert reporter.report_commit("lake.db.t", 1) is None
    assert len(pauses) == 2
    with pytest.raises(ReportError, match="did not answer"):
        reporter.report_commit("lake.db.t", 1, must_arrive=True)


@pytest.mark.parametrize("body", [b"<html>", b"[]", b"{}", b""])
def test_an_answer_of_something_else_does_not_end_the_writer(body: bytes) -> None:
    with answering([(200, {}, body)]) as (url, _):
        assert CommitReporter(url, "t").report_commit("lake.db.t", 1) is None
        with pytest.raises(ReportError):
            CommitReporter(url, "t").report_commit("lake.db.t", 1, must_arrive=True)


def test_a_wrong_url_or_token_does_not_end_the_writer() -> None:
    for url, token in (("nonsense", "t"), ("http://127.0.0.1:1", "a\nb"), ("http://[", "t")):
        assert CommitReporter(url, token, tries=1).report_commit("lake.db.t", 1) is None


def test_no_redirect_is_followed_with_the_token() -> None:
    with answering([(200, {}, ACCEPTED)]) as (other, got), answering([(307, {"Location": other}, b"")]) as (url, _):
        assert CommitReporter(url, "t").report_commit("lake.db.t", 1) is None
    assert got == []


def test_the_client_needs_requests_alone() -> None:
    code = "import sys, compaction_pipeline.reports; print(sorted(name for name in sys.modules if '.' not in name))"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert "'requests'" in loaded
    others = ("dagster", "fastapi", "pyarrow", "pydantic", "pyiceberg", "pyspark", "sqlalchemy")
    assert [name for name in others if f"'{name}'" in loaded] == []


@pytest.mark.parametrize("token", [None, "", "  \n", "12.secret\n13.secret", "a secret", "12.sécret"])
def test_a_token_that_is_no_token_is_not_sent_and_not_shown(token: Any, caplog: pytest.LogCaptureFixture) -> None:
    reporter = CommitReporter("http://127.0.0.1:1", token)
    assert reporter.report_commit("lake.db.t", 1) is None
    with pytest.raises(ReportError, match="must be one word"):
        reporter.report_commit("lake.db.t", 1, must_arrive=True)
    assert "must be one word" in caplog.text
    assert "cret" not in caplog.text
