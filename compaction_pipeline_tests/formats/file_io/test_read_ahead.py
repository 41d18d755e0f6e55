"""Small files are read ahead, once each, within a bound."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from compaction_pipeline.formats.file_io.read_ahead import ReadAhead


class Reads:
    """A function that reads files, and records which files it read."""

    def __init__(self) -> None:
        self.paths: list[str] = []
        self.fail: Callable[[str], bool] = lambda path: False
        self._lock = threading.Lock()

    def __call__(self, path: str, size: int) -> bytes:
        with self._lock:
            self.paths.append(path)
        if self.fail(path):
            raise OSError(f"{path} broke")
        return path.encode() * size


def test_each_file_is_read_once_and_may_be_asked_for_twice() -> None:
    reads = Reads()
    ahead = ReadAhead(reads, 1000)
    ahead.expect([(name, 10) for name in "abc"])
    assert [ahead.get(name, 10) for name in "abcab"] == [name.encode() * 10 for name in "abcab"]
    ahead.close()
    assert sorted(reads.paths) == ["a", "b", "c"]


def test_files_are_begun_before_they_are_asked_for() -> None:
    both = threading.Barrier(2, timeout=30)

    def read(path: str, size: int) -> bytes:
        both.wait()
        return b"x"

    ahead = ReadAhead(read, 1000)
    ahead.expect([("a", 1), ("b", 1)])
    # Neither read ends before the other has begun.
    assert (ahead.get("a", 1), ahead.get("b", 1)) == (b"x", b"x")
    ahead.close()


def test_no_more_than_the_bound_is_begun_until_something_was_used() -> None:
    reads = Reads()
    ahead = ReadAhead(reads, 80)
    ahead.expect([(str(number), 10) for number in range(20)])
    assert ahead.held_bytes == 80
    for number in range(20):
        ahead.get(str(number), 10)
        assert ahead.held_bytes <= 80
    ahead.close()
    assert len(reads.paths) == 20


def test_a_file_that_was_not_announced_is_read_when_asked_for() -> None:
    reads = Reads()
    ahead = ReadAhead(reads, 80)
    assert ahead.get("x", 3) == b"xxx"
    ahead.close()


def test_a_read_that_failed_is_tried_again_when_asked_again() -> None:
    reads = Reads()
    reads.fail = lambda path: len(reads.paths) == 1
    ahead = ReadAhead(reads, 80)
    with pytest.raises(OSError, match="x broke"):
        ahead.get("x", 3)
    assert ahead.get("x", 3) == b"xxx"
    ahead.close()


def test_large_files_are_not_read_ahead() -> None:
    reads = Reads()
    ahead = ReadAhead(reads, 80)
    ahead.expect([("large", ahead.largest + 1)])
    ahead.close()
    assert not reads.paths


def test_a_read_that_failed_ahead_is_repeated_when_the_file_is_announced_again() -> None:
    # The attempt is tried again because the store was busy. Reads that failed then may work now.
    reads = Reads()
    reads.fail = lambda path: True
    ahead = ReadAhead(reads, 1000)
    files = [(f"file-{number}", 10) for number in range(12)]
    ahead.expect(files)
    with pytest.raises(OSError, match="file-0 broke"):
        ahead.get("file-0", 10)
    while len(reads.paths) < len(files):
        threading.Event().wait(0.01)
    reads.fail = lambda path: False
    ahead.expect(files)
    assert [len(ahead.get(*file)) for file in files] == [60, 60, 60, 60, 60, 60, 60, 60, 60, 60, 70, 70]
    ahead.close()
