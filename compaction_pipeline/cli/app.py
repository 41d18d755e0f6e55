"""The typer application: global options, how errors end a command, and what every command gets from both.

Global options may stand anywhere on the line (`compact T --json` as well as `--json compact T`).
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from copy import copy
from importlib.metadata import version as installed_version
from typing import Any

import typer
from typer.core import TyperGroup
from typer.main import get_group

from compaction_pipeline.cli.exit_codes import ExitCode, exit_code_of
from compaction_pipeline.cli.output import ANSWERED, Output, Verbosity, as_text, error_value
from compaction_pipeline.core.errors import CompactionError, ConfigError, ErrorCode

_LOG_LEVEL = "COMPACTION_LOG_LEVEL"
_GLOBAL = {"--json": "--json", "--verbose": "--verbose", "-v": "--verbose", "--quiet": "--quiet", "-q": "--quiet"}
GLOBAL_HELP = (
    "Everywhere: --json, --verbose/-v, --quiet/-q. "
    "Exit codes: 0 done or nothing to do, 1 failed, 2 bad input, 3 partly committed, 4 refused, 5 outcome unknown, 130 interrupted."
)


COMMANDS: dict[str, Callable[[], typer.Typer]] = {}
"""Each command's name, in the order of the help, and how to import the application that holds it; `cli.main` fills it."""


INTERRUPTED = "interrupted; run the command again"


class Interrupted(Exception):
    """Ctrl-C, or a request to end, ended a command; the message is what a person should know."""


class Commands(TyperGroup):
    """The root of the commands. Every error ends here: one clear sentence and an exit code, never a stack of calls.

    A command is imported when it is asked for: `--version` imports none, `status` none that compacts.
    """

    def list_commands(self, ctx: Any) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        imported = COMMANDS.get(cmd_name)
        return None if imported is None else get_group(imported()).get_command(ctx, cmd_name)

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            # Else the library below ends the process by itself, without a word.
            raise Interrupted(INTERRUPTED) from None
        except Exception as error:
            _drop_pydantic_s_words(error)
            raise

    def main(self, args: Sequence[str] | None = None, *rest: Any, **extra: Any) -> Any:
        given = list(sys.argv[1:] if args is None else args)
        flags, others = _global_flags(given)
        output = _output(flags)
        try:
            with _ended_as_interrupted():
                return self._run([*flags, *others], output, *rest, **extra)
        except CompactionError as error:
            code = exit_code_of(error)
            _tell(output, others, str(error), code, error.code)
            _explain(output)
            sys.exit(code)
        except (Interrupted, KeyboardInterrupt) as error:
            _tell(output, others, str(error) or INTERRUPTED, ExitCode.INTERRUPTED, ErrorCode.INTERRUPTED)
            sys.exit(ExitCode.INTERRUPTED)
        except Exception as error:  # A fault of ours or of a library: still one sentence, the rest with --verbose.
            message = f"{type(error).__name__}: {error} (run again with --verbose to see where)"
            _tell(output, others, message, ExitCode.FAILED, ErrorCode.UNEXPECTED)
            _explain(output)
            sys.exit(ExitCode.FAILED)

    def _run(self, args: Sequence[str], output: Output, *rest: Any, **extra: Any) -> Any:
        if not output.as_json and sys.stderr.isatty():
            return super().main(args, *rest, **extra)
        # Programs and logs get one sentence of a usage error too, in place of the box that is drawn for a person.
        extra["standalone_mode"] = False
        try:
            code = super().main(args, *rest, **extra)
        except (CompactionError, Interrupted):
            raise
        except Exception as error:
            # Usage errors are of click or of typer's own copy of it, by version: known by what they can do.
            message = getattr(error, "format_message", None)
            if type(error).__name__ == "Abort":
                raise Interrupted(INTERRUPTED) from None
            if type(error).__name__ == "NoArgsIsHelpError" and not output.as_json:
                error.show()  # type: ignore[attr-defined]
                sys.exit(ExitCode.BAD_INPUT)
            if message is None:
                raise
            raise ConfigError(f"{message()} (see --help)") from None
        sys.exit(code if isinstance(code, int) else ExitCode.DONE)


@contextmanager
def _ended_as_interrupted() -> Iterator[None]:
    """A request to end (SIGTERM) is an interrupt too: what is held is given back, and the exit code says so."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def interrupt(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _drop_pydantic_s_words(error: Exception) -> None:
    message = getattr(error, "message", None)
    if isinstance(message, str):
        error.message = message.replace("Value error, ", "")  # type: ignore[attr-defined]


def _global_flags(args: Sequence[str]) -> tuple[list[str], list[str]]:
    end = args.index("--") if "--" in args else len(args)
    flags = list(dict.fromkeys(_GLOBAL[argument] for argument in args[:end] if argument in _GLOBAL))
    return flags, [argument for position, argument in enumerate(args) if position >= end or argument not in _GLOBAL]


def _output(flags: Sequence[str]) -> Output:
    if "--verbose" in flags:
        return Output("--json" in flags, Verbosity.VERBOSE)
    return Output("--json" in flags, Verbosity.QUIET if "--quiet" in flags else Verbosity.NORMAL)


def _tell(output: Output, arguments: Sequence[str], message: str, code: ExitCode, reason_code: ErrorCode) -> None:
    """Answer with an error. `compact --json` answers the same object whatever ended it."""
    output.error(message, code, reason_code, _of_compact(arguments, message, code, reason_code) if output.as_json else None)


def _of_compact(arguments: Sequence[str], message: str, code: ExitCode, reason_code: ErrorCode) -> object:
    # Where it is needed: the help of a command needs none of it.
    from compaction_pipeline.cli.compaction_answer import TableBefore, asked_table, ended_answer

    if next((argument for argument in arguments if not argument.startswith("-")), None) != "compact":
        return None
    return ended_answer(asked_table(arguments), message, code, reason_code, TableBefore())


def last_words(given: Sequence[str]) -> str:
    """What is still to be said on stdout when a command is cut off: one JSON value is promised; nothing where it was said already."""
    flags, others = _global_flags(given)
    if "--json" not in flags or ANSWERED.is_set():
        return ""
    message = "interrupted, and cut off while it waited; the next command settles what it did: run the command again"
    value = _of_compact(others, message, ExitCode.INTERRUPTED, ErrorCode.INTERRUPTED)
    return as_text(value or error_value(message, ExitCode.INTERRUPTED, ErrorCode.INTERRUPTED))


def _explain(output: Output) -> None:
    if output.verbosity is Verbosity.VERBOSE:
        traceback.print_exc(file=sys.stderr)


def _print_version(wanted: bool) -> None:
    if wanted:
        sys.stdout.write(f"compaction-pipeline {installed_version('compaction-pipeline')}\n")
        raise typer.Exit


def command_group() -> typer.Typer:
    """What a module of commands registers them at; it takes its help style from here."""
    return typer.Typer(add_completion=False, rich_markup_mode="rich")


app = typer.Typer(
    name="compaction-pipeline",
    cls=Commands,
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    epilog=GLOBAL_HELP,
    context_settings={"help_option_names": ["--help", "-h"]},
)


@app.callback()
def _root(
    context: typer.Context,
    as_json: bool = typer.Option(False, "--json", help="Answer with one JSON value on stdout, errors too."),
    verbose: bool = typer.Option(False, "--verbose", "-v", help="Say more on stderr: the debug log, and where an error came from."),
    quiet: bool = typer.Option(False, "--quiet", "-q", help="Say only the answer and errors."),
    version: bool = typer.Option(False, "--version", callback=_print_version, is_eager=True, help="Print the version and end."),
) -> None:
    """Keeps Apache Iceberg tables fast: finds fragmented partitions, merges their files on Spark, commits without changing a row.

    TABLE is catalog.namespace.table. Begin with:

      compaction-pipeline catalog add lake -p type=sql -p uri=sqlite:////data/catalog.db --observe
      compaction-pipeline table list
      compaction-pipeline plan lake.shop.orders
    """
    if verbose and quiet:
        raise ConfigError("--verbose and --quiet cannot both be given: choose one")
    flags = [flag for flag, given in (("--json", as_json), ("--verbose", verbose), ("--quiet", quiet)) if given]
    context.obj = _output(flags)
    _log_to_stderr(context.obj.verbosity)


class _StderrHandler(logging.Handler):
    """Writes to what stderr is now: one process may run several commands, each with streams of its own.

    The stack of an error is for --verbose only, as everywhere on the command line.
    """

    def __init__(self, verbosity: Verbosity) -> None:
        super().__init__()
        self._verbose = verbosity is Verbosity.VERBOSE

    def emit(self, record: logging.LogRecord) -> None:
        if not self._verbose:
            record = copy(record)
            record.exc_info = record.exc_text = record.stack_info = None
        sys.stderr.write(self.format(record) + "\n")


def _log_to_stderr(verbosity: Verbosity) -> None:
    handler = _StderrHandler(verbosity)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s %(message)s"))
    ours = logging.getLogger("compaction_pipeline")
    ours.handlers[:] = [handler]
    ours.setLevel(_level(verbosity))
    logging.getLogger().removeFilter(_is_news)
    if verbosity is not Verbosity.VERBOSE:
        logging.getLogger().addFilter(_is_news)


def _is_news(record: logging.LogRecord) -> bool:
    """Py4J logs the stack of an interrupt that comes while Java is asked; the command's own answer tells of it."""
    return record.msg != "KeyboardInterrupt while sending command."


def _level(verbosity: Verbosity) -> str:
    if verbosity is Verbosity.VERBOSE:
        return "DEBUG"
    if verbosity is Verbosity.QUIET:
        return "ERROR"
    # A command says by itself what went wrong, in one sentence; the log, INFO by default, is meant for services.
    if not any(name.upper() == _LOG_LEVEL for name in os.environ):
        return "ERROR"
    # pydantic, that reads the settings, costs a third of a second: the help of a command needs none.
    from compaction_pipeline.settings import load_settings

    return load_settings().log_level
