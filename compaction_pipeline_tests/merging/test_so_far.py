"""What a merge has used is told while it runs: of the process that merges, and of no other one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from compaction_pipeline.merging import so_far
from compaction_pipeline.merging.so_far import begins_to_merge, noted, used_by_noted

pytestmark = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="only Linux has /proc")

MIB = 1024 * 1024
_MERGES = """
import sys
from pathlib import Path
from compaction_pipeline.merging.so_far import noted
with noted(Path(sys.argv[1])):
    held = bytearray(64 * 1024 * 1024)
    sum(number * number for number in range(3_000_000))
    print("merges", flush=True)
    sys.stdin.readline()
print("ended", flush=True)
sys.stdin.readline()
"""


@contextmanager
def worker(note: Path) -> Iterator[subprocess.Popen[str]]:
    """Another process that merges, as it says, until it reads a line, and ends at the next one."""
    process = subprocess.Popen(
        [sys.executable, "-c", _MERGES, str(note)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    assert process.stdout is not None
    try:
        assert process.stdout.readline() == "merges\n"
        yield process
    finally:
        process.kill()
        process.communicate()


def test_the_driver_sees_what_a_worker_has_used_for_its_merge(tmp_path: Path) -> None:
    note = tmp_path / "worker"
    with worker(note) as process:
        used = used_by_noted(note)
        assert used is not None
        whole = psutil.Process(process.pid)
        seconds = whole.cpu_times().user + whole.cpu_times().system
        # What the process had used before, for its imports, is not the merge's.
        assert 0 < used.cpu_ms < seconds * 1000
        assert 64 * MIB <= used.peak_memory_bytes < whole.memory_info().rss


def test_nothing_is_told_of_a_worker_that_merges_no_more(tmp_path: Path) -> None:
    note = tmp_path / "worker"
    with worker(note) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        print(file=process.stdin, flush=True)
        assert process.stdout.readline() == "ended\n"
        assert process.poll() is None
        assert used_by_noted(note) is None
    assert list(tmp_path.iterdir()) == []


def test_nothing_is_told_of_a_worker_that_died_or_of_a_process_that_got_its_number(tmp_path: Path) -> None:
    note = tmp_path / "worker"
    with worker(note) as process:
        process.kill()
        process.wait()
        assert note.exists()
        assert used_by_noted(note) is None
        said = json.loads(note.read_text())
        note.write_text(json.dumps({**said, "pid": os.getpid()}))
        assert used_by_noted(note) is None


@pytest.mark.parametrize("text", ["", "no json", "7", "{}", '{"pid": "x", "started_ticks": 1, "cpu_ms": 1, "other_bytes": 1}'])
def test_a_note_that_nobody_can_read_tells_nothing(tmp_path: Path, text: str) -> None:
    note = tmp_path / "worker"
    note.write_text(text)
    assert used_by_noted(note) is None
    assert used_by_noted(tmp_path / "none") is None


def test_a_note_that_changes_while_it_is_read_tells_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    note, times = tmp_path / "worker", so_far._times
    with noted(note):
        assert used_by_noted(note) is not None

        def changed(pid: int) -> tuple[int, int]:
            note.write_text(note.read_text() + " ")
            return times(pid)

        monkeypatch.setattr(so_far, "_times", changed)
        assert used_by_noted(note) is None


def test_what_is_shared_with_earlier_merges_counts_as_memory_of_this_one() -> None:
    alone, sharing = begins_to_merge(), begins_to_merge(8 * MIB)
    assert alone is not None
    assert sharing is not None
    assert abs(alone.other_bytes - sharing.other_bytes - 8 * MIB) < 4 * MIB
    assert replace(alone, other_bytes=2**60).used() is not None


def test_where_there_is_no_proc_nothing_is_known_and_merges_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(so_far, "_PROC", tmp_path / "none")
    assert begins_to_merge() is None
    with noted(tmp_path / "worker"):
        assert list(tmp_path.iterdir()) == []
    monkeypatch.undo()
    with noted(tmp_path / "gone" / "worker"), noted(None):
        assert list(tmp_path.iterdir()) == []
