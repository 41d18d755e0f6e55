"""`group`, `queue` and `container`: who merges whose tables, how much waits there, and what starts optimizers."""

from __future__ import annotations

import shlex
from dataclasses import replace

import typer

from compaction_pipeline.cli.app import GLOBAL_HELP, command_group
from compaction_pipeline.cli.key_values import key_values
from compaction_pipeline.cli.render import containers_table, groups_table, queues_table
from compaction_pipeline.cli.render_scaling import actions_table, replay_table, scaling_lines
from compaction_pipeline.cli.session import Session
from compaction_pipeline.core.capacity.scaling.observation import KEPT_FOR
from compaction_pipeline.core.errors import ConfigError
from compaction_pipeline.core.insight.group_value import container_value, group_value
from compaction_pipeline.core.insight.plain import plain
from compaction_pipeline.core.queue.group import DEFAULT_CAPACITY, EXTERNAL, MOST_CAPACITY, CompactionQueue, QueueOrder, ResourceGroup

groups = typer.Typer(
    no_args_is_help=True,
    help=(
        "Look at resource groups, make, change or delete them. A table names its group in 'self-optimizing.group'."
        "\n\nExamples:\n\n  compaction-pipeline group list"
    ),
    epilog=GLOBAL_HELP,
)
queues = typer.Typer(
    no_args_is_help=True,
    help="See how many tasks wait in the queue of each group, and who works on them.\n\nExamples:\n\n  compaction-pipeline queue list",
    epilog=GLOBAL_HELP,
)
containers = typer.Typer(
    no_args_is_help=True,
    help="See what optimizers are started in. The file that COMPACTION_CONTAINERS_FILE names describes it."
    "\n\nExamples:\n\n  compaction-pipeline container list",
    epilog=GLOBAL_HELP,
)
commands = command_group()
commands.add_typer(groups, name="group")
commands.add_typer(queues, name="queue")
commands.add_typer(containers, name="container")

_NAME = typer.Argument(help="The name of the group.")
_CAPACITY_HELP = "How many tasks may be planned and not merged yet. Plans wait when the queue is full."
_ORDER_HELP = "Which waiting task is next: the oldest, by priority and age, or one of the table that used least of its quota."
_CONTAINER_HELP = "What starts the group's optimizers; `external` means that people do. `container list` shows those of this host."
_PROPERTY_HELP = (
    "A property: instances, min-instances, parallelism, memory, verify-outputs, team, one of a policy of scaling (dynamic-allocation.…), "
    "or one of the container. Repeat the option for each."
)


@groups.command("list", epilog=GLOBAL_HELP)
def list_(context: typer.Context) -> None:
    """List all groups, by name.

    Examples:

      compaction-pipeline group list --json
    """
    with Session(context) as session:
        found = session.services.manage_groups.groups()
        problems = session.services.read_queues.start_problems()
        session.output.answer([group_value(group, problems.get(group.name)) for group in found], groups_table(found, problems))


@groups.command(epilog=GLOBAL_HELP)
def show(context: typer.Context, name: str = _NAME) -> None:
    """Show one group.

    Examples:

      compaction-pipeline group show default
    """
    with Session(context) as session:
        _answer(session, session.services.manage_groups.group(name))


@groups.command(epilog=GLOBAL_HELP)
def command(context: typer.Context, name: str = _NAME) -> None:
    """Show the command line that runs an optimizer of this group by hand. It names a file with the token, and never the token.

    Examples:

      compaction-pipeline group command default
    """
    with Session(context) as session:
        arguments = session.services.read_containers.command(name)
        session.output.answer({"group": name, "command": list(arguments)}, shlex.join(arguments))


@groups.command(epilog=GLOBAL_HELP)
def scaling(
    context: typer.Context,
    name: str | None = typer.Argument(None, help="The name of a group. Without one, all groups are shown that have a policy."),
    dry_run: int | None = typer.Option(
        None,
        "--dry-run",
        min=1,
        max=24 * KEPT_FOR.days,
        metavar="HOURS",
        help="Show what the policy of the group would have done in so many hours, as if it were enabled. Nothing is changed.",
    ),
) -> None:
    """Show what groups are to have by their policies of scaling, what is decided now, and what was done.

    Examples:

      compaction-pipeline group scaling
      compaction-pipeline group scaling heavy --dry-run 24
    """
    with Session(context) as session:
        read = session.services.read_scaling
        if dry_run is not None:
            if name is None:
                raise ConfigError("--dry-run needs the name of a group: compaction-pipeline group scaling NAME --dry-run HOURS")
            replay = read.dry_run(name, dry_run)
            session.output.answer(plain(replay), replay_table(replay) if replay else f"group {name} would have been left as it was")
            return
        found = read.groups() if name is None else [read.group(name)]
        lines = [line for each in found for line in scaling_lines(each)]
        shown = actions_table(found) if any(each.actions for each in found) else "nothing was scaled"
        session.output.answer([plain(each) for each in found], shown, *(lines or ["no group has a policy of scaling"]))


@groups.command(epilog=GLOBAL_HELP)
def add(
    context: typer.Context,
    name: str = _NAME,
    capacity: int = typer.Option(DEFAULT_CAPACITY, "--capacity", min=1, max=MOST_CAPACITY, help=_CAPACITY_HELP),
    order: QueueOrder = typer.Option(QueueOrder.PRIORITY, "--order", help=_ORDER_HELP),
    container: str = typer.Option(EXTERNAL, "--container", help=_CONTAINER_HELP),
    properties: list[str] = typer.Option([], "--property", "-p", metavar="KEY=VALUE", help=_PROPERTY_HELP),
) -> None:
    """Make a group.

    Examples:

      compaction-pipeline group add heavy --capacity 2000 --order quota
    """
    with Session(context) as session:
        group = ResourceGroup(name, container, key_values(properties, "instances=2"), CompactionQueue(capacity, order))
        _changed(session, session.services.manage_groups.add(group))


@groups.command(epilog=GLOBAL_HELP)
def change(
    context: typer.Context,
    name: str = _NAME,
    capacity: int | None = typer.Option(None, "--capacity", min=1, max=MOST_CAPACITY, help=_CAPACITY_HELP),
    order: QueueOrder | None = typer.Option(None, "--order", help=_ORDER_HELP),
    container: str | None = typer.Option(None, "--container", help=_CONTAINER_HELP),
    properties: list[str] = typer.Option(
        [], "--property", "-p", metavar="KEY=VALUE", help=_PROPERTY_HELP + " A property without a value is removed: -p memory="
    ),
) -> None:
    """Change what is given, and keep the rest. Tasks that are in the queue already stay there.

    Examples:

      compaction-pipeline group change heavy --capacity 5000
    """
    with Session(context) as session:
        given = key_values(properties, "instances=2")

        def changed(old: ResourceGroup) -> ResourceGroup:
            queue = CompactionQueue(capacity or old.queue.capacity, order or old.queue.order)
            return replace(old, container=container or old.container, properties=old.changed_properties(given), queue=queue)

        _changed(session, session.services.manage_groups.edit(name, changed))


@groups.command(epilog=GLOBAL_HELP)
def delete(context: typer.Context, name: str = _NAME) -> None:
    """Delete a group that no table, catalog, open task or live optimizer belongs to.

    Examples:

      compaction-pipeline group delete heavy
    """
    with Session(context) as session:
        session.services.manage_groups.delete(name)
        session.output.answer({"group": name, "deleted": True}, f"group {name} is deleted")


@queues.command("list", epilog=GLOBAL_HELP)
def list_queues(context: typer.Context) -> None:
    """List all queues: what waits, what runs, how full they are, and how long the oldest task has waited.

    Examples:

      compaction-pipeline queue list
    """
    with Session(context) as session:
        queues = session.services.read_queues.queues()
        session.output.answer([queues.value(work) for work in queues.all_works], queues_table(queues, queues.all_works))


@queues.command("show", epilog=GLOBAL_HELP)
def show_queue(context: typer.Context, name: str = _NAME) -> None:
    """Show the queue of one group.

    Examples:

      compaction-pipeline queue show default --json
    """
    with Session(context) as session:
        group = session.services.manage_groups.group(name)
        queues = session.services.read_queues.queues()
        work = queues.work(group.name)
        session.output.answer(queues.value(work), queues_table(queues, [work]))


@containers.command("list", epilog=GLOBAL_HELP)
def list_containers(context: typer.Context) -> None:
    """List the containers that this host knows, by name. Groups name them; `serve` on this host starts optimizers in them.

    Examples:

      compaction-pipeline container list
    """
    with Session(context) as session:
        found = session.services.read_containers.containers()
        session.output.answer([container_value(each) for each in found], containers_table(found))


def _changed(session: Session, group: ResourceGroup) -> None:
    warning = session.services.manage_groups.warning(group)
    if warning is not None:
        session.output.say(f"warning: {warning}")
    _answer(session, group)


def _answer(session: Session, group: ResourceGroup) -> None:
    problems = session.services.read_queues.start_problems()
    session.output.answer(group_value(group, problems.get(group.name)), groups_table([group], problems))
