"""`compact --json` prints the same kind of object whatever ends it, and each message on stderr is one line."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from compaction_pipeline.cli.app import last_words
from compaction_pipeline.cli.output import ANSWERED, Output
from compaction_pipeline.core.errors import ErrorCode
from compaction_pipeline_tests.cli.conftest import TABLE, Desk
from compaction_pipeline_tests.cli.records import KEYS

_RUN = "from compaction_pipeline.cli.main import run; run()"
_STANDS = "stdout does not take the answer (No space left on device): what the command did stands; give stdout another place, and run"


def whole(answer: dict[str, Any], table: str | None, code: int) -> None:
    assert set(answer) >= {*KEYS, "error", "exit_code"}
    assert (answer["table"], answer["exit_code"]) == (table, code)
    assert answer["error"]
    assert answer["error"] == answer["reason"]


@pytest.mark.parametrize(
    ("arguments", "table", "code"),
    [
        (("compact", TABLE, "--bogus"), TABLE, 2),
        (("compact", "--type", "huge", TABLE), TABLE, 2),
        (("compact", TABLE, "--snapshot-property", "x"), TABLE, 2),
        (("compact", "orders"), "orders", 2),
        (("compact",), None, 2),
        (("compact", "lake.shop.nope"), "lake.shop.nope", 2),
        (("compact", "--verbose", "--quiet", TABLE), TABLE, 2),
    ],
)
def test_bad_input_is_the_same_object(desk: Desk, arguments: tuple[str, ...], table: str | None, code: int) -> None:
    desk.add_catalog()
    whole(desk.json(*arguments, code=code), table, code)


def test_a_bad_setting_is_the_same_object(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COMPACTION_TASK_SLOTS", "abc")
    whole(desk.json("compact", TABLE, code=2), TABLE, 2)


def test_a_fault_of_ours_is_the_same_object(desk: Desk) -> None:
    desk.table(files=2)
    desk.add_catalog()

    def fail(*arguments: object, **named: object) -> None:
        raise RuntimeError("a fault")

    desk.hold("compact_tables", lambda tables: tables.instead(compact=fail))
    whole(desk.json("compact", TABLE, code=1), TABLE, 1)


def test_sigterm_before_anything_was_planned_is_the_same_object(desk: Desk) -> None:
    desk.table(files=2)
    desk.add_catalog()

    def end(*arguments: object, **named: object) -> None:
        os.kill(os.getpid(), signal.SIGTERM)

    desk.hold("refresh_files", lambda files: files.instead(refresh=end))
    answer = desk.json("compact", TABLE, code=130)
    whole(answer, TABLE, 130)
    assert answer["reason_code"] == "INTERRUPTED"


def test_sigterm_after_the_commit_reports_the_commit(desk: Desk) -> None:
    desk.table(files=12)
    desk.add_catalog()

    def end(*arguments: object, **named: object) -> None:
        os.kill(os.getpid(), signal.SIGTERM)

    desk.hold("one_table", lambda one_table: one_table.instead(look_again=end))
    answer = desk.json("compact", TABLE, code=130)
    whole(answer, TABLE, 130)
    assert (answer["committed"], answer["files_after"]) == (2, 2)


def test_a_command_that_is_cut_off_still_answers_once() -> None:
    with mock.patch.object(ANSWERED, "is_set", return_value=False):
        whole(json.loads(last_words(["compact", TABLE, "--json"])), TABLE, 130)
        assert json.loads(last_words(["--json", "status"]))["reason_code"] == "INTERRUPTED"
        assert last_words(["compact", TABLE]) == ""
    with mock.patch.object(ANSWERED, "is_set", return_value=True):
        assert last_words(["compact", TABLE, "--json"]) == ""


def test_a_message_is_one_line_however_long(capsys: pytest.CaptureFixture[str]) -> None:
    long = "word " * 300
    Output().say(f"{long}\nand more")
    Output().error(f"{long}\n  and more", 1, ErrorCode.UNEXPECTED)
    said = capsys.readouterr().err
    assert said.count("\n") == 2
    assert said.count("word word and more") == 2


def test_a_usage_error_in_a_log_is_one_line(desk: Desk) -> None:
    result = desk.type("compact", TABLE, "--bogus")
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr == "error: No such option: --bogus (see --help)\n"


def test_an_observed_catalog_is_not_told_to_compact(desk: Desk) -> None:
    desk.table(files=12)
    desk.add_catalog("--observe")
    [table] = desk.json("table", "list", "--refresh")
    assert table["health"] == "WAITING"
    assert f"the catalog is only observed, so nothing is done: `plan {TABLE}` shows what would be done" in table["reason"]
    assert "`compact`" not in json.dumps(desk.json("status"))


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("table", "list"), _STANDS),
        (("table", "list", "--json"), _STANDS),
        (("compact", TABLE, "--json"), _STANDS),
        (("--version",), _STANDS),
        (("--help",), "No space left on device"),
    ],
)
def test_an_answer_that_stdout_does_not_take_is_one_sentence(arguments: tuple[str, ...], says: str, tmp_path: Path) -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-c", _RUN, *arguments],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
            env={**os.environ, "COMPACTION_HOME": str(tmp_path)},
        )
    assert done.returncode == 1
    assert [line for line in done.stderr.splitlines() if line.startswith("error: ")] == done.stderr.splitlines()[-1:]
    assert says in done.stderr
    assert "Traceback" not in done.stderr
    assert "Exception ignored" not in done.stderr


def test_a_reader_of_stdout_that_went_away_is_no_error_to_tell(tmp_path: Path) -> None:
    reads, writes = os.pipe()
    os.close(reads)
    try:
        done = subprocess.run(
            [sys.executable, "-c", _RUN, "table", "list", "--json"],
            stdout=writes,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
            env={**os.environ, "COMPACTION_HOME": str(tmp_path)},
        )
    finally:
        os.close(writes)
    assert (done.returncode, "error" in done.stderr, "Traceback" in done.stderr) == (1, False, False)
