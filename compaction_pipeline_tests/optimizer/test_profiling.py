"""A flame graph of a running process by py-spy, and what is said where there can be none."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from compaction_pipeline.core.errors import ConfigError
from compaction_pipeline.optimizer.profiling import profiled

PATIENCE_SECONDS = 60


def busy_until(done: Path) -> None:
    until = time.monotonic() + PATIENCE_SECONDS
    while not done.exists():
        assert time.monotonic() < until, "the worker did not end"


def said_by(script: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> list[str]:
    """What the log says when this shell script stands in for py-spy. Nothing else may be left of it."""
    program = tmp_path / "py-spy"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    with profiled(tmp_path / "profile.svg", str(tmp_path)):
        for thread in threading.enumerate():
            if thread.name == "profiler":
                thread.join(PATIENCE_SECONDS)
    assert not (tmp_path / "profile.svg").exists()
    return [record.message for record in caplog.records if record.levelno >= logging.WARNING]


def test_the_graph_names_what_this_process_and_its_workers_do(tmp_path: Path) -> None:
    look = subprocess.run(
        [Path(sys.executable).parent / "py-spy", "dump", "--pid", str(os.getpid())], capture_output=True, text=True, check=False
    )
    if look.returncode:
        pytest.skip(f"py-spy may not look here: {look.stderr.splitlines()[0]}")
    file, done = tmp_path / "profile.svg", tmp_path / "done"
    # The graph of each process has a part of its own. The worker ends when it was busy for long enough to be seen.
    worker = tmp_path / "worker.py"
    worker.write_text(
        "import pathlib, sys, time\n\ndef work():\n    until = time.monotonic() + 3\n    while time.monotonic() < until:\n        pass\n\n"
        "work()\npathlib.Path(sys.argv[1]).touch()\n"
    )
    with profiled(file), subprocess.Popen([sys.executable, worker, done]):
        busy_until(done)
    drawn = file.read_text()
    assert "busy_until" in drawn
    assert "work (" in drawn


def test_whoever_may_not_look_gets_one_line_and_the_block_runs(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    script = "echo 'Permission Denied: Try running again with elevated permissions' >&2; exit 1"
    [line] = said_by(script, tmp_path, caplog)
    assert line.startswith("no profile is written: py-spy said 'Permission Denied: Try running again")
    assert "give the container CAP_SYS_PTRACE" in line


def test_macos_without_root_is_told_the_same(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    [line] = said_by("echo 'This program requires root on OSX.' >&2; exit 1", tmp_path, caplog)
    assert "run as root" in line


def test_a_profiler_that_fails_and_says_much_is_quoted_with_its_first_words(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    script = "echo 'Error: no such process' >&2; i=0; while [ $i -lt 20000 ]; do echo 'a line of a stack' >&2; i=$((i+1)); done; exit 3"
    [line] = said_by(script, tmp_path, caplog)
    assert line == "no profile is written: py-spy said 'Error: no such process'; the optimizer goes on without"


def test_an_absent_profiler_is_said_in_one_line(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with profiled(tmp_path / "profile.svg", str(tmp_path)):
        pass
    [record] = caplog.records
    assert record.message == "no profile is written: py-spy is not installed; pip install 'compaction-pipeline[profile]' brings it"
    assert not (tmp_path / "profile.svg").exists()


def test_a_file_that_cannot_be_written_is_said_before_anything_runs(tmp_path: Path) -> None:
    with (
        pytest.raises(ConfigError, match=r"--profile is .*profile.svg, which cannot be written"),
        profiled(tmp_path / "no" / "profile.svg"),
    ):
        raise AssertionError("the block runs")
