"""`optimizer`: a worker that merges for a server, and commands that look at the optimizers of a state database and steer them."""

from __future__ import annotations

import os
import re
import socket
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from compaction_pipeline.cli.app import GLOBAL_HELP, command_group
from compaction_pipeline.cli.cost_tables import uses_table
from compaction_pipeline.cli.logs import log_service
from compaction_pipeline.cli.output import Output
from compaction_pipeline.cli.render import optimizers_table
from compaction_pipeline.cli.session import Session
from compaction_pipeline.core.errors import ConfigError
from compaction_pipeline.core.insight.plain import plain
from compaction_pipeline.core.queue.merge_version import MERGE_VERSION
from compaction_pipeline.core.queue.optimizer import HEARTBEAT
from compaction_pipeline.core.words import count_text, duration_text

if TYPE_CHECKING:
    from compaction_pipeline.bootstrap import Services

optimizers = typer.Typer(invoke_without_command=True, epilog=GLOBAL_HELP)
commands = command_group()
commands.add_typer(optimizers, name="optimizer")

_ID = typer.Argument(help="The optimizer's id; `optimizer list` shows it.", metavar="OPTIMIZER")
_SERVER = typer.Option(None, "--server", metavar="URL", help="The server's URL, e.g. https://compaction.example.com:8787.")
_TOKEN_FILE = typer.Option(
    None, "--token-file", help="A file with a token of the role optimizer. The default is optimizer.token in COMPACTION_HOME."
)


class LogLevel(str, Enum):
    """The levels that a log may have."""

    DEBUG = "DEBUG"
    INFO = "INFO"
    WARNING = "WARNING"
    ERROR = "ERROR"


@optimizers.callback()
def optimizer(
    context: typer.Context,
    server: str | None = _SERVER,
    group: str = typer.Option("default", "--group", help="The group whose tasks it takes."),
    parallelism: int | None = typer.Option(
        None, "--parallelism", min=1, max=1_024, help="How many tasks it merges at a time. The default is COMPACTION_TASK_SLOTS."
    ),
    memory: int = typer.Option(
        0,
        "--memory",
        min=0,
        metavar="BYTES",
        help="How much memory its starter reserves for it in all. `cost` charges it for this; nothing limits it to that.",
    ),
    resource_id: str = typer.Option(
        "",
        "--resource-id",
        help="A name that the system that starts it chooses, e.g. the id of its pod. The list of optimizers shows it, and Spark does.",
    ),
    token_file: Path | None = _TOKEN_FILE,
    ca_file: Path | None = typer.Option(None, "--ca-file", help="Trust the certificates in this file, in PEM, too."),
    profile: Path | None = typer.Option(
        None,
        "--profile",
        metavar="FILE",
        help="Write a flame graph (SVG) of this process and its Python workers into this file at the end. It needs the extra 'profile'.",
    ),
    master: str | None = typer.Option(None, "--master", help="The Spark master that it merges on. The default is COMPACTION_SPARK_MASTER."),
) -> None:
    """Take tasks from a server and merge them, until Ctrl-C or SIGTERM. It needs the tables' storage, but no catalog and no database.

    COMPACTION_SPARK_MASTER, COMPACTION_SPARK_REMOTE and COMPACTION_MERGE_ENGINE say where it merges. It ends with exit code 1 when a merge
    cannot be stopped, so let a supervisor start it again.

    Examples:

      compaction-pipeline optimizer --server http://127.0.0.1:8787
      compaction-pipeline optimizer --server https://compaction.example.com:8787 --parallelism 8 --token-file worker.token
    """
    if context.invoked_subcommand is not None:
        return
    if server is None:
        raise ConfigError("--server is missing: give the server's URL, or one of the commands that `optimizer --help` lists")
    from compaction_pipeline.core.queue.optimizer import Registration
    from compaction_pipeline.optimizer.client import HttpTaskQueue
    from compaction_pipeline.optimizer.cores import own_cores
    from compaction_pipeline.optimizer.loop import run_optimizer
    from compaction_pipeline.optimizer.profiling import profiled

    with Session(context, **({} if master is None else {"spark_master": master})) as session:
        log_service(session.output.verbosity)
        services, output = session.services, session.output
        # Spark shows which optimizer an application belongs to.
        services.spark_name = f"{services.spark_name} {resource_id}".strip()
        slots = _slots(services, parallelism)
        services.spark_slots = slots
        cores = own_cores() if services.merges_on_this_host else None
        registration = Registration(
            group, socket.gethostname(), str(os.getpid()), services.version, MERGE_VERSION, slots, memory, resource_id, cores
        )
        token = _token(token_file or services.settings.home.expanduser() / "optimizer.token")
        queue = HttpTaskQueue(server, token, registration, str(ca_file) if ca_file else None)
        output.say(f"registering {count_text(slots, 'slot')} for group {group} at {server}")
        with profiled(profile):
            done = run_optimizer(services, queue, slots)
        _ended(output, queue.optimizer_id, done.polled, len(done.prepared), queue.why_drains)


@optimizers.command("list", epilog=GLOBAL_HELP)
def list_(context: typer.Context, every: bool = typer.Option(False, "--all", help="Also those that ended or were lost.")) -> None:
    """List the optimizers that are registered, the oldest first.

    Examples:

      compaction-pipeline optimizer list --all --json
    """
    with Session(context) as session:
        found = session.services.serve_optimizers.optimizers(live=not every)
        problems = session.services.read_queues.start_problems()
        none = "no optimizers" if every else "no optimizers run; --all shows those that ended or were lost, and why"
        shown = [optimizers_table(found) if found else none, *(f"group {name}: {problem}" for name, problem in problems.items())]
        session.output.answer([plain(each) for each in found], *shown)


@optimizers.command(epilog=GLOBAL_HELP)
def use(context: typer.Context) -> None:
    """Show how well each optimizer is used, those with the lowest score first, and the command that would use it better.

    COMPACTION_LOW_USE_MINUTES says for how long it looks back. An optimizer that is younger has no score yet.

    Examples:

      compaction-pipeline optimizer use
    """
    with Session(context) as session:
        found = session.services.read_use.uses()
        commands = dict.fromkeys(each.command for each in found if each.command)
        lines = [f"to do what is proposed: {command}" for command in commands]
        session.output.answer([plain(each) for each in found], uses_table(found) if found else "no optimizers run", *lines)


@optimizers.command(epilog=GLOBAL_HELP)
def drain(context: typer.Context, optimizer_id: str = _ID) -> None:
    """Let an optimizer take no more tasks, and end after those that it has.

    Examples:

      compaction-pipeline optimizer drain optimizer-3f0c2b7a9d1e
    """
    with Session(context) as session:
        session.services.serve_optimizers.drain(optimizer_id)
        _asked(session.output, optimizer_id, "drain", "it takes no more tasks")


@optimizers.command(epilog=GLOBAL_HELP)
def cancel(context: typer.Context, optimizer_id: str = _ID) -> None:
    """End an optimizer now, whether or not it can be reached. Its tasks wait again at once, and another optimizer takes them.

    A process that still runs stops its merges and ends at its next heartbeat, with exit code 2. `drain` lets it finish its tasks first.

    Examples:

      compaction-pipeline optimizer cancel optimizer-3f0c2b7a9d1e
    """
    with Session(context) as session:
        session.services.serve_optimizers.cancel(optimizer_id)
        session.output.answer({"optimizer_id": optimizer_id, "canceled": True}, f"{optimizer_id} is canceled; its tasks wait again")


@optimizers.command(epilog=GLOBAL_HELP)
def logs(
    context: typer.Context,
    optimizer_id: str = _ID,
    level: LogLevel = typer.Option(..., "--level", help="Messages below this level are left out from now on.", case_sensitive=False),
) -> None:
    """Change the level of the log of a running optimizer, until it ends. The log is where its process writes it: its stderr.

    Examples:

      compaction-pipeline optimizer logs optimizer-3f0c2b7a9d1e --level DEBUG
    """
    with Session(context) as session:
        session.services.serve_optimizers.set_log_level(optimizer_id, level.value)
        _asked(session.output, optimizer_id, "log_level", f"its log shows {level.value} and what is worse")


@optimizers.command(epilog=GLOBAL_HELP)
def stack(context: typer.Context, optimizer_id: str = _ID) -> None:
    """Let a running optimizer write the stacks of its threads into its own log. They tell what it waits for.

    Examples:

      compaction-pipeline optimizer stack optimizer-3f0c2b7a9d1e
    """
    with Session(context) as session:
        session.services.serve_optimizers.ask_for_stacks(optimizer_id)
        _asked(session.output, optimizer_id, "stack", "it writes the stacks of its threads into its log")


def _asked(output: Output, optimizer_id: str, what: str, meaning: str) -> None:
    soon = duration_text(HEARTBEAT)
    output.answer({"optimizer_id": optimizer_id, "asked": what}, f"{optimizer_id} is told at its next heartbeat, within {soon}: {meaning}")


def _ended(output: Output, optimizer_id: str, attempts: int, merged: int, why: str) -> None:
    value = {"optimizer_id": optimizer_id, "attempts": attempts, "merged": merged, "why": why}
    output.answer(value, f"{optimizer_id} ended, {why}: {count_text(attempts, 'attempt')}, {merged} merged")


def _slots(services: Services, parallelism: int | None) -> int:
    if services.settings.merge_engine == "in-process":
        if parallelism not in (None, 1):
            raise ConfigError(f"--parallelism is {parallelism}, but COMPACTION_MERGE_ENGINE=in-process merges one task at a time; give 1")
        return 1
    return parallelism or services.settings.task_slots


def _token(path: Path) -> str:
    try:
        text = path.read_bytes().strip()
    except OSError as error:
        raise ConfigError(f"the token file {path} cannot be read: {error.strerror}; give --token-file") from error
    if not text:
        raise ConfigError(f"the token file {path} is empty; `compaction-pipeline token add --role optimizer` issues a token")
    # The text is a secret, and part of it may be one. So it is never shown.
    if re.fullmatch(rb"[!-~]+", text) is None:
        raise ConfigError(
            f"the token file {path} must hold a token and nothing else, but it has several lines or words, or bytes that no token has; "
            "write what `compaction-pipeline token add --role optimizer` prints on stdout into it"
        )
    return text.decode("ascii")
