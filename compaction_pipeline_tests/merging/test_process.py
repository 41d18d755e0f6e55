"""The process that merges for another program: its results are those of a merge here, and it ends when the program does."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from compaction_pipeline.core.errors import MergeFailed
from compaction_pipeline.merging.process import MergeProcess
from compaction_pipeline_tests.merging.files import Table, rows_of

_PROGRAM = """
import sys, time
from compaction_pipeline.merging.process import MergeProcess
from compaction_pipeline_tests.merging.files import Table
from pathlib import Path

process = MergeProcess()
process.merge([], {})
print(process._running.process.pid, flush=True)
time.sleep(60)
"""


@pytest.fixture
def process() -> Iterator[MergeProcess]:
    process = MergeProcess()
    yield process
    process.close()


def test_tasks_are_merged_one_after_the_other_and_a_failure_is_a_result(tmp_path: Path, process: MergeProcess) -> None:
    good, bad = Table(tmp_path / "good"), Table(tmp_path / "bad")
    good.append([{"id": 1, "name": "a"}, {"id": 2, "name": "b"}])
    good.append([{"id": 3, "name": "c"}])
    good.delete_positions([(good.inputs[0].path, 0)])
    Path(bad.append([{"id": 1, "name": "a"}]).path).unlink()
    for _ in range(2):
        merged, failed = process.merge([good.task().merge_input(good.layout()), bad.task().merge_input(good.layout())], {})
        assert [row["id"] for row in rows_of(merged.outputs)] == [2, 3]
        assert failed.error is not None
        assert "in-1.parquet" in failed.error
        assert failed.outputs == ()
    assert process.close() == "exit code 0"
    assert process.close() == ""


def test_a_program_that_prints_does_not_disturb_the_answers(
    tmp_path: Path, process: MergeProcess, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "sitecustomize.py").write_text("print('good morning')")
    monkeypatch.syspath_prepend(tmp_path)
    table = Table(tmp_path)
    table.append([{"id": 1, "name": "a"}])
    assert process.merge([table.task().merge_input(table.layout())], {})[0].error is None
    assert "good morning" in capfd.readouterr().err


def test_a_process_that_died_is_told_and_the_next_merge_has_a_new_one(tmp_path: Path, process: MergeProcess) -> None:
    assert process.merge([], {}) == []
    assert process._running is not None
    first = process._running.process
    # It takes the task and does not answer it. Then it dies.
    os.kill(first.pid, signal.SIGSTOP)
    threading.Timer(0.5, os.kill, (first.pid, signal.SIGKILL)).start()
    with pytest.raises(MergeFailed, match="the process that merges ended, or did not start: exit code -9"):
        process.merge([], {})
    assert process.merge([], {}) == []
    # It may also die between two merges.
    process._running.process.kill()
    process._running.process.wait()
    assert process.merge([], {}) == []


def test_a_process_that_cannot_start_is_told(tmp_path: Path) -> None:
    with pytest.raises(MergeFailed, match=r"did not start: \[Errno 2\] No such file or directory"):
        MergeProcess(str(tmp_path / "no-python")).merge([], {})
    with pytest.raises(MergeFailed, match="did not start: exit code 1"):
        MergeProcess("/bin/false").merge([], {})


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_the_process_ends_when_the_program_does(number: int, tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen([sys.executable, "-c", _PROGRAM, tmp_path], stdout=subprocess.PIPE, env=environment) as program:
        assert program.stdout is not None
        pid = int(program.stdout.readline())
        program.send_signal(number)
    until = time.monotonic() + 30
    while _is_running(pid):
        assert time.monotonic() < until, "the process that merges is still there after 30 s"
        time.sleep(0.05)


def test_ctrl_c_leaves_the_decision_to_the_program(tmp_path: Path, process: MergeProcess) -> None:
    process.merge([], {})
    assert process._running is not None
    os.kill(process._running.process.pid, signal.SIGINT)
    pid = process._running.process.pid
    assert process.merge([], {}) == []
    assert process._running.process.pid == pid


def _is_running(pid: int) -> bool:
    """Whether the process is there. One that has ended and that nobody waits for is a zombie."""
    status = subprocess.run(["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True, check=False).stdout.strip()
    return bool(status) and not status.startswith("Z")
