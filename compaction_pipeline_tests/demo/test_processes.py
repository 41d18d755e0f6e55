"""Every process that the demo started ends with the demo, however the demo is ended."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from compaction_pipeline.core.errors import ConfigError
from compaction_pipeline.demo.options import DemoOptions, child_environment
from compaction_pipeline.demo.processes import Child, Processes, Stopped, stop_on_signals
from compaction_pipeline.demo.tied import tied
from compaction_pipeline.demo.warehouse import make_tables, newest_snapshots
from compaction_pipeline.ending.process_table import ProcessEntry, family, process_table, processes_with

# This script starts a child in a process group of its own, as Spark does. Both ignore SIGTERM. It announces when both run.
_DEAF_FAMILY = """
import os, signal, sys
signal.signal(signal.SIGTERM, signal.SIG_IGN)
ready, told = os.pipe()
if os.fork() == 0:
    os.setpgid(0, 0)
    os.write(told, b"x")
else:
    os.read(ready, 1)
    open(sys.argv[1], "w").close()
signal.pause()
"""
# The child of this script survives it, as those of `dagster dev` do.
_LEAVES_A_CHILD = """
import os, signal, sys
if os.fork() == 0:
    open(sys.argv[1], "w").close()
signal.pause()
"""
_ENDS_WHEN_ASKED = "import signal, sys; open(sys.argv[1], 'w').close(); signal.pause()"


def _started(processes: Processes, script: str, folder: Path) -> Child:
    os.mkfifo(folder / "ready")
    child = processes.start("child", [sys.executable, "-c", script, str(folder / "ready")], os.environ, folder, folder / "log")
    # This waits, because a FIFO opens for reading only when the child opens it for writing.
    (folder / "ready").read_bytes()
    return child


def _running(child: Child) -> list[int]:
    return [entry.pid for entry in process_table() if not entry.ended and entry.session == child.pid]


@pytest.mark.skipif(sys.platform != "linux", reason="counts the processes of a session, which only Linux tells")
@pytest.mark.parametrize("script", [_DEAF_FAMILY, _LEAVES_A_CHILD], ids=["deaf", "leaves a child"])
def test_a_child_that_does_not_end_when_asked_is_killed_with_its_children(tmp_path: Path, script: str) -> None:
    processes = Processes()
    child = _started(processes, script, tmp_path)
    assert len(_running(child)) == 2
    processes.stop(grace_seconds=0.3, kill_seconds=300, orphans_seconds=0.2)
    assert _running(child) == []


def test_a_child_is_stopped_when_its_context_is_left_by_a_signal(tmp_path: Path) -> None:
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    processes = Processes()
    child = _started(processes, _ENDS_WHEN_ASKED, tmp_path)
    stop_on_signals()
    try:
        with pytest.raises(Stopped, match="SIGTERM"), processes:
            os.kill(os.getpid(), signal.SIGTERM)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    assert child.exit_code == -signal.SIGTERM


# This script is a demo. It starts its child as the demo starts Dagster.
_STARTS_A_TIED_FAMILY = """
import os, signal, sys
from pathlib import Path
from compaction_pipeline.demo.processes import Processes
from compaction_pipeline.demo.tied import tied
script, folder = sys.argv[1], Path(sys.argv[2])
command = tied([sys.executable, "-c", script, str(folder / "ready")], folder / "log")
Processes().start("child", command, os.environ, folder, folder / "log")
signal.pause()
"""


@pytest.mark.parametrize("script", [_ENDS_WHEN_ASKED, _LEAVES_A_CHILD], ids=["ends when asked", "leaves a child"])
def test_what_the_demo_started_ends_with_a_demo_that_is_killed(script: str, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "ready")
    mark = {**os.environ, "COMPACTION_TEST_TIED": str(tmp_path)}
    demo = subprocess.Popen([sys.executable, "-c", _STARTS_A_TIED_FAMILY, script, str(tmp_path)], env=mark, start_new_session=True)
    (tmp_path / "ready").read_bytes()
    os.killpg(demo.pid, signal.SIGKILL)
    demo.wait(600)
    while processes_with("COMPACTION_TEST_TIED", str(tmp_path)):
        time.sleep(0.1)


def test_a_tied_command_ends_with_its_own_exit_code_and_prints_to_the_log(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with Processes() as processes:
        child = processes.start("child", tied([sys.executable, "-c", "raise SystemExit('disk full')"], log), os.environ, tmp_path, log)
        child._process.wait(600)
        with pytest.raises(ConfigError, match=r"child ended by itself with exit code 1.*\n.*disk full"):
            processes.check()


def test_a_child_that_ends_by_itself_is_named_with_its_last_words(tmp_path: Path) -> None:
    with Processes() as processes:
        child = processes.start("writer", [sys.executable, "-c", "raise SystemExit('disk full')"], os.environ, tmp_path, tmp_path / "log")
        child._process.wait(600)
        with pytest.raises(ConfigError, match=r"writer ended by itself with exit code 1.*\n.*disk full"):
            processes.check()


def test_a_family_is_its_tree_its_session_and_the_groups_seen_before() -> None:
    table = [
        ProcessEntry(1, 0, 1, 1),
        ProcessEntry(10, 1, 10, 10),  # the leader
        ProcessEntry(11, 10, 10, 10),
        ProcessEntry(12, 11, 12, 10),  # its grandchild, in a group of its own
        ProcessEntry(13, 1, 13, 10),  # adopted by init, same session
        ProcessEntry(14, 1, 77, None),  # adopted by init, its session unknown, its group seen before
        ProcessEntry(15, 10, 10, 10, ended=True),
        ProcessEntry(20, 1, 20, 20),
    ]
    assert sorted(entry.pid for entry in family(10, table, frozenset({77}))) == [10, 11, 12, 13, 14]
    assert sorted(entry.pid for entry in family(10, table)) == [10, 11, 12, 13]


def test_the_process_table_holds_this_process() -> None:
    mine = next(entry for entry in process_table() if entry.pid == os.getpid())
    assert (mine.parent, mine.group, mine.ended) == (os.getppid(), os.getpgrp(), False)


@pytest.mark.parametrize("module", ["writer", "payments"])
def test_a_writer_whose_demo_was_killed_while_it_started_writes_nothing(tmp_path: Path, module: str) -> None:
    options = DemoOptions(tmp_path / "demo")
    options.make_folders()
    make_tables(options)
    # No process is called 1 but the first one, which is not the parent of the writer.
    asked = ["orders", "1", "5"] if module == "writer" else ["1", "5"]
    command = [sys.executable, "-m", f"compaction_pipeline.demo.{module}", *asked]
    done = subprocess.run(command, env=child_environment(options), cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert set(newest_snapshots(options).values()) == {None}
