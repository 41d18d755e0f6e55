"""The `compaction-pipeline` command: knows which module has each command, and runs the application."""

from __future__ import annotations

import faulthandler
import os
import sys

import typer

from compaction_pipeline.cli.app import COMMANDS, app, last_words
from compaction_pipeline.cli.exit_codes import ExitCode
from compaction_pipeline.ending.last_resort import GRACE_SECONDS, end_after_sigterm

__all__ = ["app", "run"]


_SLOW_TO_END = {"optimizer": 45.0}
"""Commands that get more seconds to end after SIGTERM. An optimizer lets its running tasks end for 30 s."""
_SERVICES = ("forward-events", "optimizer", "serve")
"""When one of these does not end by itself, its log shows where each thread waits. Nobody sits before it who could try again and look."""


def _catalog() -> typer.Typer:
    from compaction_pipeline.cli.commands.catalog import commands

    return commands


def _table() -> typer.Typer:
    from compaction_pipeline.cli.commands.table import commands

    return commands


def _compaction() -> typer.Typer:
    from compaction_pipeline.cli.commands.compaction import commands

    return commands


def _check() -> typer.Typer:
    from compaction_pipeline.cli.commands.check import commands

    return commands


def _record() -> typer.Typer:
    from compaction_pipeline.cli.commands.record import commands

    return commands


def _maintain() -> typer.Typer:
    from compaction_pipeline.cli.commands.maintain import commands

    return commands


def _team() -> typer.Typer:
    from compaction_pipeline.cli.commands.team import commands

    return commands


def _cost() -> typer.Typer:
    from compaction_pipeline.cli.commands.cost import commands

    return commands


def _consumer() -> typer.Typer:
    from compaction_pipeline.cli.commands.consumer import commands

    return commands


def _dependencies() -> typer.Typer:
    from compaction_pipeline.cli.commands.dependencies import commands

    return commands


def _center() -> typer.Typer:
    from compaction_pipeline.cli.commands.outlook import commands

    return commands


def _task() -> typer.Typer:
    from compaction_pipeline.cli.commands.task import commands

    return commands


def _group() -> typer.Typer:
    from compaction_pipeline.cli.commands.group import commands

    return commands


def _state() -> typer.Typer:
    from compaction_pipeline.cli.commands.state import commands

    return commands


def _optimizer() -> typer.Typer:
    from compaction_pipeline.cli.commands.optimizer import commands

    return commands


def _events() -> typer.Typer:
    from compaction_pipeline.cli.commands.events import commands

    return commands


def _service() -> typer.Typer:
    from compaction_pipeline.cli.commands.service import commands

    return commands


COMMANDS.update(
    {
        "catalog": _catalog,
        "table": _table,
        "status": _record,
        "plan": _compaction,
        "compact": _compaction,
        "check": _check,
        "record": _record,
        "cost": _cost,
        "team": _team,
        "maintain": _maintain,
        "consumer": _consumer,
        "ready": _dependencies,
        "watermark": _dependencies,
        "dependencies": _center,
        "task": _task,
        "group": _group,
        "queue": _group,
        "container": _group,
        "pause": _table,
        "resume": _table,
        "serve": _service,
        "optimizer": _optimizer,
        "forward-events": _events,
        "token": _service,
        "state": _state,
        "doctor": _state,
    }
)


def cut_off(code: int) -> None:
    """End this process hard. The log of a service shows where each thread waited, and a command that answers in JSON still answers."""
    try:
        if _command() in _SERVICES:
            faulthandler.dump_traceback(2)
        # A thread that hangs may hold the lock of `sys.stdout`, so this writes past it.
        os.write(1, last_words(sys.argv[1:]).encode())
    finally:
        os._exit(code)


def seconds_to_end(command: str) -> float:
    """A process that runs this command ends at the latest so long after SIGTERM."""
    return _SLOW_TO_END.get(command, GRACE_SECONDS)


def run() -> None:
    """The entry point of the installed command."""
    end_after_sigterm(seconds_to_end(_command()), ExitCode.INTERRUPTED, cut_off)
    app(prog_name="compaction-pipeline")


def _command() -> str:
    return next((argument for argument in sys.argv[1:] if not argument.startswith("-")), "")
