"""The two streams of the command line: stdout has the answer and nothing else, and stderr has everything that is said before it.

A message on stderr is one line. With `--json` the answer is exactly one JSON value.
"""

from __future__ import annotations

import errno
import json
import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING

from rich.console import Console, RenderableType

from compaction_pipeline.core.errors import ErrorCode
from compaction_pipeline.core.insight.masking import masked_text
from compaction_pipeline.core.insight.plain import plain
from compaction_pipeline.core.secrets.known import without_known_secrets

if TYPE_CHECKING:
    from rich.progress import Progress

    from compaction_pipeline.bootstrap import Services
    from compaction_pipeline.settings import Settings

# In a pipe or a log no path is folded, however long it is. A terminal has its own width.
_PIPE_WIDTH = 10_000


ANSWERED = threading.Event()
"""This is set when the process has answered with JSON. If the process is cut off later, it does not answer a second time."""


class AnswerLost(Exception):
    """stdout did not take the answer. The message says why; it is "" when the reader went away, which is no mistake of anybody."""

    def __init__(self, error: OSError) -> None:
        place = "give stdout another place, and run the command again to see its answer"
        gone = error.errno == errno.EPIPE
        super().__init__("" if gone else f"stdout does not take the answer ({error.strerror}): what the command did stands; {place}")


class Verbosity(IntEnum):
    """QUIET shows only the answer and errors. VERBOSE shows our debug log too, and where an unexpected error came from."""

    QUIET = -1
    NORMAL = 0
    VERBOSE = 1


@dataclass(frozen=True, slots=True)
class Output:
    """How this command answers. Each use makes its own console, because a test may have replaced the streams."""

    as_json: bool = False
    verbosity: Verbosity = Verbosity.NORMAL

    def answer(self, value: object, *rendered: RenderableType) -> None:
        """Give the answer: `value` as JSON, or `rendered` for people."""
        if self.as_json:
            ANSWERED.set()
            with written_to_stdout():
                sys.stdout.write(without_known_secrets(as_text(value)))
            return
        console = _console(stderr=False)
        with written_to_stdout():
            for item in rendered:
                # A sentence may name a path, and `[` in a path is no markup.
                console.print(item, markup=not isinstance(item, str))

    def say(self, text: str) -> None:
        """Write one line for people to stderr, unless --quiet is given."""
        if self.verbosity > Verbosity.QUIET:
            _console(stderr=True).print(_one_line(masked_text(text)), markup=False, highlight=False, soft_wrap=True)

    def error(self, message: str, exit_code: int, reason_code: ErrorCode, value: object = None) -> None:
        """Tell what went wrong: as JSON on stdout for programs, or as one line on stderr for people.

        `value` is the JSON value of a command that has its own form of answer.
        """
        message = masked_text(message)
        if self.as_json:
            self.answer(value or error_value(message, exit_code, reason_code))
        else:
            _console(stderr=True).print(f"error: {_one_line(message)}", style="red", markup=False, highlight=False, soft_wrap=True)

    @contextmanager
    def progress(self) -> Iterator[Progress]:
        """A progress bar on stderr. It is invisible with --quiet, and where stderr is no terminal."""
        # Help and version need no bar, so they do not pay for this import.
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

        console = _console(stderr=True)
        with Progress(
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            console=console,
            transient=True,
            disable=self.verbosity is Verbosity.QUIET or not console.is_terminal,
        ) as progress:
            yield progress


@contextmanager
def written_to_stdout() -> Iterator[None]:
    """Let stdout take at once what the block writes to it. The block does nothing else. Raises AnswerLost."""
    try:
        yield
        sys.stdout.flush()
    except OSError as error:
        # Python writes the rest when the process ends, which would fail again, with a stack of calls.
        with suppress(OSError, ValueError):
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, sys.stdout.fileno())
            os.close(nowhere)
        raise AnswerLost(error) from error


def error_value(message: str, exit_code: int, reason_code: ErrorCode) -> dict[str, object]:
    """The JSON value of an error."""
    return {"error": message, "exit_code": int(exit_code), "reason_code": reason_code}


def as_text(value: object) -> str:
    """One JSON value, as it is written to stdout."""
    return json.dumps(plain(value), ensure_ascii=False, indent=2 if sys.stdout.isatty() else None) + "\n"


def _one_line(text: str) -> str:
    """The text as one line, because log collectors take each line for a message of its own."""
    return " ".join(line.strip() for line in text.splitlines())


@dataclass(frozen=True, slots=True)
class Invocation:
    """What each command is given: its output, and what opens its services where that is not `Services` itself."""

    output: Output
    open_services: Callable[[Settings], Services] | None


def _console(*, stderr: bool) -> Console:
    stream = sys.stderr if stderr else sys.stdout
    return Console(file=stream, width=None if stream.isatty() else _PIPE_WIDTH)
