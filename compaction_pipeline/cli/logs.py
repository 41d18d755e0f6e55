"""Where the log of the command line goes, and how much of it people see."""

from __future__ import annotations

import logging
import os
import sys
from copy import copy

from compaction_pipeline.cli.output import Verbosity
from compaction_pipeline.core.words import printable

_LOG_LEVEL = "COMPACTION_LOG_LEVEL"


class SafeFormatter(logging.Formatter):
    """Writes no control character, whoever wrote the text: names of tables, paths, ids and errors come from others.

    Only the first line of a record begins at the margin, so no text can look like a record of its own.
    """

    def format(self, record: logging.LogRecord) -> str:
        first, *others = super().format(record).split("\n")
        return "\n".join([printable(first, len(first)), *(f"    {printable(line, len(line))}" for line in others)])


class _StderrHandler(logging.Handler):
    """Writes to the stderr of the moment, because one process may run several commands with streams of their own.

    As everywhere on the command line, the stack of an error shows only with --verbose.
    """

    def __init__(self, verbosity: Verbosity) -> None:
        super().__init__()
        self._verbose = verbosity is Verbosity.VERBOSE

    def emit(self, record: logging.LogRecord) -> None:
        if not self._verbose:
            record = copy(record)
            record.exc_info = record.exc_text = record.stack_info = None
        sys.stderr.write(self.format(record) + "\n")


def log_to_stderr(verbosity: Verbosity) -> None:
    """Write our log to stderr from now on, at the level that `verbosity` asks for."""
    handler = _StderrHandler(verbosity)
    handler.setFormatter(SafeFormatter("%(asctime)s %(levelname)s %(name)s %(message)s"))
    ours = logging.getLogger("compaction_pipeline")
    ours.handlers[:] = [handler]
    # The server of `serve` writes warnings and errors alone, and stacks of what failed.
    logging.getLogger("uvicorn").handlers[:] = [handler]
    ours.setLevel(_level(verbosity))
    logging.getLogger().removeFilter(_is_news)
    if verbosity is not Verbosity.VERBOSE:
        logging.getLogger().addFilter(_is_news)


def log_service(verbosity: Verbosity) -> None:
    """Let the log of a command that runs for long tell what happens: from COMPACTION_LOG_LEVEL on, by default INFO."""
    if verbosity is Verbosity.NORMAL:
        from compaction_pipeline.settings import load_settings

        logging.getLogger("compaction_pipeline").setLevel(load_settings().log_level)


def _is_news(record: logging.LogRecord) -> bool:
    """False for the stack that Py4J logs when an interrupt comes during a call of Java. The command's own answer tells of the interrupt."""
    return record.msg != "KeyboardInterrupt while sending command."


def _level(verbosity: Verbosity) -> str:
    if verbosity is Verbosity.VERBOSE:
        return "DEBUG"
    if verbosity is Verbosity.QUIET:
        return "ERROR"
    # A command says in one sentence what went wrong. The default level of the log, INFO, is meant for services.
    if not any(name.upper() == _LOG_LEVEL for name in os.environ):
        return "ERROR"
    # pydantic reads the settings and takes a third of a second to import. The help of a command needs no settings.
    from compaction_pipeline.settings import load_settings

    return load_settings().log_level
