"""`docs/commands.md` describes every command. This test makes its sections from the application that the command line runs."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from enum import Enum
from typing import Any

from typer.main import get_command

from compaction_pipeline.cli.main import app
from compaction_pipeline_tests.written_pages import check_part, table

PAGE = "docs/commands.md"
EXAMPLES = "Examples:"


def commands(group: Any, name: str) -> Iterator[tuple[str, Any]]:
    """Every command that does something by itself, with its full name, in the order of the help. Few groups do."""
    for child in group.list_commands(None):
        command = group.get_command(None, child)
        full_name = f"{name} {child}"
        if hasattr(command, "list_commands"):
            if command.invoke_without_command:
                yield full_name, command
            yield from commands(command, full_name)
        else:
            yield full_name, command


def section(name: str, command: Any) -> str:
    meaning, _, examples = inspect.cleandoc(command.help).partition(EXAMPLES)
    calls = [line.strip() for line in examples.splitlines() if line.strip()]
    assert calls, f"{name} has no example"
    parts = [f"### `{name.removeprefix('compaction-pipeline ')}`", meaning.strip()]
    rows = [row(parameter) for parameter in command.params if parameter.name != "help"]
    if rows:
        parts.append(table(("argument or option", "meaning"), rows))
    parts.append("\n".join(["```sh", *calls, "```"]))
    return "\n\n".join(parts)


def row(parameter: Any) -> tuple[str, str]:
    if parameter.param_type_name == "argument":
        name = parameter.name.upper()
        shown = f"`{name}`" if parameter.required else f"`[{name}]`"
    else:
        names = ", ".join([*parameter.opts, *parameter.secondary_opts])
        value = "" if parameter.is_flag else f" {parameter.metavar or parameter.name.upper()}"
        shown = f"`{names}{value}`"
    kind, default = parameter.type_descriptor.annotation, parameter.default
    notes = [parameter.help]
    if isinstance(kind, type) and issubclass(kind, Enum):
        notes.append(f"One of: {', '.join(choice.value for choice in kind)}.")
    if isinstance(default, int) and not isinstance(default, bool):
        notes.append(f"Default: {default}.")
    return shown, " ".join(notes)


def test_the_page_lists_every_command() -> None:
    sections = [section(name, command) for name, command in commands(get_command(app), "compaction-pipeline")]
    check_part(PAGE, "commands", __file__, "\n\n".join(sections))
