"""`task list | show | retry | cancel`: the tasks that wait, run or have ended."""

from __future__ import annotations

from collections.abc import Sequence

import typer

from compaction_pipeline.cli.app import GLOBAL_HELP, command_group
from compaction_pipeline.cli.attempt_lines import applications_lines, used_lines
from compaction_pipeline.cli.render import task_times, tasks_table
from compaction_pipeline.cli.session import TABLE_HELP, Session
from compaction_pipeline.core.ids import TaskId
from compaction_pipeline.core.insight.task_value import whole_value
from compaction_pipeline.core.queue.task import CompactionTask, TaskStatus
from compaction_pipeline.core.tables.table import TableIdentifier

tasks = typer.Typer(
    no_args_is_help=True,
    help=(
        "Look at compaction tasks, try a failed one again now, or cancel one that waits."
        "\n\nExamples:\n\n  compaction-pipeline task list lake.shop.orders"
    ),
    epilog=GLOBAL_HELP,
)
commands = command_group()
commands.add_typer(tasks, name="task")

_IDS = typer.Argument(help="The ids of the tasks.", metavar="TASK...")


@tasks.command("list", epilog=GLOBAL_HELP)
def list_(
    context: typer.Context,
    table: str | None = typer.Argument(None, help=TABLE_HELP + " Without it, every table."),
    status: list[TaskStatus] = typer.Option([], "--status", help="Only tasks with this status. Repeat the option for several."),
    limit: int = typer.Option(20, "--limit", "-n", min=1, max=1_000_000, help="Show at most this many tasks."),
) -> None:
    """List tasks, newest first. Without --status these are the tasks that have not ended.

    A task that is FAILED and has a time in `retry_at` waits to be tried again.

    Examples:

      compaction-pipeline task list
      compaction-pipeline task list lake.shop.orders --status FAILED -n 5 --json
    """
    identifier = TableIdentifier.parse(table) if table is not None else None
    with Session(context) as session:
        found = session.services.read_tasks.tasks(identifier, status, limit)
        title = "tasks" if status else "open tasks"
        session.output.answer([whole_value(task) for task in found], tasks_table(found, title) if found else f"no {title}")


@tasks.command(epilog=GLOBAL_HELP)
def show(context: typer.Context, task: str = typer.Argument(help="The task's id.")) -> None:
    """Show one task: its times, its attempts, and why they ended.

    Examples:

      compaction-pipeline task show 3f0c2b7a9d1e-00000
    """
    with Session(context) as session:
        found, attempts = session.services.read_tasks.task(TaskId(task))
        read = session.services.read_tasks
        value = whole_value(found, attempts, read.application_page)
        shown = tasks_table([found], "task", {found.task_id: attempts}), task_times(found)
        session.output.answer(value, *shown, *used_lines(attempts), *applications_lines(attempts, read.application_page))


@tasks.command(epilog=GLOBAL_HELP)
def retry(context: typer.Context, task: list[str] = _IDS) -> None:
    """Try failed tasks again now, instead of at their `retry_at`.

    A task that failed for good is not tried again; `compact` plans its files anew.

    Examples:

      compaction-pipeline task retry 3f0c2b7a9d1e-00000
    """
    with Session(context) as session:
        _answer(session, session.services.steer_tasks.retry([TaskId(each) for each in task]))


@tasks.command(epilog=GLOBAL_HELP)
def cancel(
    context: typer.Context,
    task: list[str] = _IDS,
    running: bool = typer.Option(False, "--running", help="Also tasks that run. Their workers stop the merges within 10 s."),
) -> None:
    """Cancel tasks that wait.

    The next tick may plan the same files again. `pause` keeps it from that.

    Examples:

      compaction-pipeline task cancel 3f0c2b7a9d1e-00000 3f0c2b7a9d1e-00001
    """
    with Session(context) as session:
        _answer(session, session.services.steer_tasks.cancel([TaskId(each) for each in task], running=running))


def _answer(session: Session, changed: Sequence[CompactionTask]) -> None:
    session.output.answer([whole_value(task) for task in changed], tasks_table(changed, "tasks"))
