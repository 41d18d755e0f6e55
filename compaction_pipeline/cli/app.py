"""The typer application: the global options, and how an error ends a command.

Global options may stand anywhere on the line: `compact T --json` means the same as `--json compact T`.
"""

from __future__ import annotations

import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib.metadata import version as installed_version
from typing import Any

import typer
from typer.core import TyperGroup
from typer.main import get_group

from compaction_pipeline.cli.exit_codes import ExitCode, exit_code_of
from compaction_pipeline.cli.logs import log_to_stderr
from compaction_pipeline.cli.output import ANSWERED, AnswerLost, Invocation, Output, Verbosity, as_text, error_value, written_to_stdout
from compaction_pipeline.core.errors import CompactionError, ConfigError, ErrorCode
from compaction_pipeline.core.insight.masking import masked_text

_GLOBAL = {"--json": "--json", "--verbose": "--verbose", "-v": "--verbose", "--quiet": "--quiet", "-q": "--quiet"}
GLOBAL_HELP = (
    "Everywhere: --json, --verbose/-v, --quiet/-q. "
    "Exit codes: 0 done or nothing to do, 1 failed, 2 bad input, 3 partly committed, 4 refused, 5 outcome unknown, 6 not ready, "
    "130 interrupted."
)


COMMANDS: dict[str, Callable[[], typer.Typer]] = {}
"""The commands in the order of the help. Each value imports the application that holds the command. `cli.main` fills this."""


INTERRUPTED = "interrupted; run the command again"


class Interrupted(Exception):
    """Ctrl-C or a request to end has ended a command. The message says what a person should know."""


class Commands(TyperGroup):
    """The root of the commands. Every error becomes one clear sentence and an exit code here, and never a stack of calls.

    A command is imported when it is asked for. So `--version` imports no command, and `status` none that compacts.
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
            # Without this, the library would end the process and say nothing.
            raise Interrupted(INTERRUPTED) from None
        except Exception as error:
            _drop_words_of_pydantic(error)
            raise

    def main(self, args: Sequence[str] | None = None, *rest: Any, **extra: Any) -> Any:
        given = list(sys.argv[1:] if args is None else args)
        flags, others = _global_flags(given)
        output = _output(flags)
        try:
            return self._answered(flags, others, output, *rest, **extra)
        except AnswerLost as error:
            if str(error):
                Output(verbosity=output.verbosity).error(str(error), ExitCode.FAILED, ErrorCode.UNEXPECTED)
            sys.exit(ExitCode.FAILED)

    def _answered(self, flags: Sequence[str], others: Sequence[str], output: Output, *rest: Any, **extra: Any) -> Any:
        """Run a command, and tell how it ended when an error or an interrupt ended it. Raises AnswerLost."""
        try:
            with _ended_as_interrupted():
                try:
                    return self._run([*flags, *others], output, *rest, **extra)
                finally:
                    # The help is not written by `Output`.
                    with written_to_stdout():
                        pass
        except AnswerLost:
            raise
        except CompactionError as error:
            code = exit_code_of(error)
            _tell(output, others, str(error), code, error.code)
            explain(output)
            sys.exit(code)
        except (Interrupted, KeyboardInterrupt) as error:
            _tell(output, others, str(error) or INTERRUPTED, ExitCode.INTERRUPTED, ErrorCode.INTERRUPTED)
            sys.exit(ExitCode.INTERRUPTED)
        except Exception as error:  # A fault of ours or of a library is one sentence too. --verbose shows the rest.
            message = f"{type(error).__name__}: {error} (run again with --verbose to see where)"
            _tell(output, others, message, ExitCode.FAILED, ErrorCode.UNEXPECTED)
            explain(output)
            sys.exit(ExitCode.FAILED)

    def _run(self, args: Sequence[str], output: Output, *rest: Any, **extra: Any) -> Any:
        if not output.as_json and sys.stderr.isatty():
            return super().main(args, *rest, **extra)
        # Click draws a box around a usage error for a person. Programs and logs get one sentence instead.
        extra["standalone_mode"] = False
        try:
            code = super().main(args, *rest, **extra)
        except (AnswerLost, CompactionError, Interrupted):
            raise
        except Exception as error:
            # A usage error is an exception of click, or of the copy of click in newer versions of typer. Both have `format_message`.
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
    """Treat a request to end (SIGTERM) like Ctrl-C: give back what is held, and end with the exit code of an interrupt."""
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


def _drop_words_of_pydantic(error: Exception) -> None:
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
    """Answer with an error. `compact --json` always answers the same object, so an error becomes one too."""
    output.error(message, code, reason_code, _of_compact(arguments, message, code, reason_code) if output.as_json else None)


def _of_compact(arguments: Sequence[str], message: str, code: ExitCode, reason_code: ErrorCode) -> object:
    # The help of a command needs none of this, so it does not pay for this import.
    from compaction_pipeline.cli.compaction_answer import TableBefore, asked_table, ended_answer

    if next((argument for argument in arguments if not argument.startswith("-")), None) != "compact":
        return None
    return ended_answer(asked_table(arguments), message, code, reason_code, TableBefore())


def last_words(given: Sequence[str]) -> str:
    """What stdout still has to say when a command is cut off: the one JSON value that is promised, unless the command has answered."""
    flags, others = _global_flags(given)
    if "--json" not in flags or ANSWERED.is_set():
        return ""
    message = "the command was interrupted, and ended before it was finished; run it again: it settles what this one did"
    value = _of_compact(others, message, ExitCode.INTERRUPTED, ErrorCode.INTERRUPTED)
    return as_text(value or error_value(message, ExitCode.INTERRUPTED, ErrorCode.INTERRUPTED))


def explain(output: Output) -> None:
    """Show with --verbose where the error that is being handled came from."""
    if output.verbosity is Verbosity.VERBOSE:
        sys.stderr.write(masked_text(traceback.format_exc()))


def _print_version(wanted: bool) -> None:
    if wanted:
        with written_to_stdout():
            sys.stdout.write(f"compaction-pipeline {installed_version('compaction-pipeline')}\n")
        raise typer.Exit


def command_group() -> typer.Typer:
    """An application at which a module registers its commands. All of them have the same style of help."""
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
    as_json: bool = typer.Option(False, "--json", help="Answer with one JSON value on stdout, also in case of an error."),
    verbose: bool = typer.Option(False, "--verbose", "-v", help="Say more on stderr: the debug log, and where an error came from."),
    quiet: bool = typer.Option(False, "--quiet", "-q", help="Say only the answer and errors."),
    version: bool = typer.Option(False, "--version", callback=_print_version, is_eager=True, help="Print the version and end."),
) -> None:
    """Keeps Apache Iceberg tables fast: finds fragmented partitions, merges their files on Spark, and commits without changing a row.

    TABLE is catalog.namespace.table. Begin with:

      compaction-pipeline catalog add lake -p type=sql -p uri=sqlite:////data/catalog.db --observe
      compaction-pipeline table list
      compaction-pipeline plan lake.shop.orders
    """
    if verbose and quiet:
        raise ConfigError("--verbose and --quiet cannot both be given: choose one")
    flags = [flag for flag, given in (("--json", as_json), ("--verbose", verbose), ("--quiet", quiet)) if given]
    # Whoever runs the application in its own process may give it what opens the services.
    context.obj = Invocation(_output(flags), context.obj)
    log_to_stderr(context.obj.output.verbosity)
