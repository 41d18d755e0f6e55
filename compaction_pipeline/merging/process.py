"""Merges in a process of its own, for a program that merges in its own interpreter would slow down. It also verifies the merges of others.

`MergeProcess` starts `python -m compaction_pipeline.merging.process`, gives it work through a pipe, and reads results from another. A
process of `multiprocessing` would import the main module of the program again, which many scripts are not written for.
"""

from __future__ import annotations

import os
import pickle
import resource
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import IO, Any

from compaction_pipeline.core.errors import MergeFailed
from compaction_pipeline.core.work.merge_input import MergeInput
from compaction_pipeline.core.work.result import MergeResult
from compaction_pipeline.core.work.work import Work
from compaction_pipeline.merging.kernel import merge_task

_NICE = 5
"""The program comes first when it and its merges want the same core. With 10, merges hardly went on where all cores were busy."""
_STDERR = 2
_RESERVED_BYTES = 6 * 1024**3
_MOST_CPU_SECONDS = 3600
_Asked = tuple[Callable[..., Any], tuple[Any, ...]]
"""A function of this module, and its arguments."""


@dataclass(frozen=True, slots=True)
class _Running:
    """A process with the two pipes that lead to it and from it."""

    process: subprocess.Popen[bytes]
    asked: IO[bytes]
    answers: IO[bytes]


class MergeProcess:
    """Starts a process at the first merge, and a new one after it has died. The process ends with `close`, and when this one ends."""

    def __init__(self, python: str = sys.executable) -> None:
        self._python = python
        self._running: _Running | None = None

    def merge(
        self, tasks: Sequence[MergeInput[Work]], file_io: Mapping[str, str], held: Mapping[str, bytes] | None = None
    ) -> list[MergeResult]:
        """Do one attempt of each task, one after the other, and return the results in the order of the tasks.

        `held` has whole input files by path. They are sent to the process, which does not read them from storage then.

        Raises MergeFailed when the process cannot be started, or dies. Nobody knows then what it has written.
        """
        results: list[MergeResult] = self._ask(_merge_all, tasks, file_io, held or {})
        return results

    def verify(self, task: MergeInput[Work], result: MergeResult, file_io: Mapping[str, str]) -> str | None:
        """Return why the rows of a report cannot be true (`verify_rows`). The process ends then, because it has read another's files.

        Raises MergeFailed when nobody can tell, also when the process dies.
        """
        try:
            answer: str | MergeFailed | None = self._ask(_verify, task, result, file_io)
        finally:
            self.close()
        if isinstance(answer, MergeFailed):
            raise answer
        return answer

    def _ask(self, function: Callable[..., Any], *arguments: Any) -> Any:
        asked: _Asked = (function, arguments)
        # Half of a message would spoil the next one, so nothing is sent before all of it is there.
        message = pickle.dumps(asked)
        try:
            if self._running is None or self._running.process.poll() is not None:
                self.close()
                self._running = _start(self._python)
            self._running.asked.write(message)
            self._running.asked.flush()
            answer = pickle.load(self._running.answers)
        except (OSError, EOFError, pickle.UnpicklingError) as error:
            raise MergeFailed(f"the process that merges ended, or did not start: {self.close() or error}") from error
        return answer

    def close(self) -> str:
        """Close the pipes, and wait for the end of the process. Returns in words how it ended; "" when there is none."""
        running, self._running = self._running, None
        if running is None:
            return ""
        running.answers.close()
        # What was not yet sent has no reader when the process has died.
        with suppress(BrokenPipeError):
            running.asked.close()
        return f"exit code {running.process.wait()}"


def _start(python: str) -> _Running:
    answers, to_us = os.pipe()
    try:
        process = subprocess.Popen(
            [python, "-m", __name__, str(to_us)],
            stdin=subprocess.PIPE,
            # Answers have a pipe of their own, because libraries may print.
            stdout=_STDERR,
            pass_fds=(to_us,),
            # The program may have found our package in a place of its own.
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        )
    except BaseException:
        os.close(answers)
        raise
    finally:
        os.close(to_us)
    assert process.stdin is not None, "it is a pipe"
    return _Running(process, process.stdin, os.fdopen(answers, "rb"))


def _merge_all(tasks: Sequence[MergeInput[Work]], file_io: Mapping[str, str], held: Mapping[str, bytes]) -> list[MergeResult]:
    return [merge_task(task, file_io, held=held) for task in tasks]


def _verify(task: MergeInput[Work], result: MergeResult, file_io: Mapping[str, str]) -> str | MergeFailed | None:
    from compaction_pipeline.merging.reported.verify import verify_rows

    # A few bytes of a Parquet file may stand for gigabytes of rows. The libraries reserve much more address space than they use.
    with suppress(ValueError, OSError):
        most = 2 * task.memory_bytes + _RESERVED_BYTES
        resource.setrlimit(resource.RLIMIT_AS, (most, most))
        # A file may also keep a reader busy for ever, and only one report is compared at a time.
        resource.setrlimit(resource.RLIMIT_CPU, (_MOST_CPU_SECONDS, _MOST_CPU_SECONDS))
    try:
        return verify_rows(task, result, file_io)
    except MergeFailed as failure:
        return MergeFailed(str(failure))


def serve(asked: IO[bytes], answers: IO[bytes]) -> None:
    """Do what is asked for until there is nothing more to read, or nobody who reads the answers."""
    while True:
        try:
            function, arguments = pickle.load(asked)
        except EOFError:
            return
        answer = function(*arguments)
        try:
            pickle.dump(answer, answers)
            answers.flush()
        except BrokenPipeError:
            return


def main() -> None:
    """Serve the program that has started this process."""
    # Ctrl-C reaches both processes. The program decides what becomes of a merge.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.nice(_NICE)
    with os.fdopen(int(sys.argv[1]), "wb") as answers:
        serve(sys.stdin.buffer, answers)


if __name__ == "__main__":
    main()
