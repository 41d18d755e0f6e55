"""Shows, makes, changes and deletes resource groups."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from compaction_pipeline.core.capacity.ports import TeamStore
from compaction_pipeline.core.capacity.team import unknown_team
from compaction_pipeline.core.errors import ConfigError
from compaction_pipeline.core.insight.ports import TableReader
from compaction_pipeline.core.queue.container import Container, ContainerKind, check_group_keys, without_effect
from compaction_pipeline.core.queue.group import GroupHolders, ResourceGroup, checked, unknown_group
from compaction_pipeline.core.queue.ports.containers import Containers
from compaction_pipeline.core.queue.ports.groups import GroupStore
from compaction_pipeline.core.queue.scaling.sizes import group_policy
from compaction_pipeline.core.tables.group_name import DEFAULT_GROUP
from compaction_pipeline.core.tables.ports.catalogs import CatalogStore
from compaction_pipeline.core.tables.properties import group_of

_TRIES = 20


class ManageGroups:
    """The verbs of a person who decides where work is done: groups, group, add, change, edit, delete, and warning."""

    def __init__(self, groups: GroupStore, catalogs: CatalogStore, tables: TableReader, teams: TeamStore, containers: Containers) -> None:
        self._groups = groups
        self._containers = containers
        self._catalogs = catalogs
        self._tables = tables
        self._teams = teams

    def groups(self) -> Sequence[ResourceGroup]:
        """Return all groups, sorted by name."""
        return self._groups.groups()

    def group(self, name: str) -> ResourceGroup:
        """Return a group. Raises NotFoundError."""
        found = self._groups.group(name)
        if found is None:
            raise unknown_group(name)
        return found

    def add(self, group: ResourceGroup) -> ResourceGroup:
        """Make a group. Raises ConfigError when a value breaks its rule, when the container is not known, or when the name is taken."""
        self._check(group, None)
        if not self._groups.add(group):
            raise ConfigError(f"group {group.name} exists already; `compaction-pipeline group change {group.name}` changes it")
        return group

    def change(self, group: ResourceGroup) -> ResourceGroup:
        """Replace the group of this name. Raises ConfigError when a value breaks its rule or a new container is not known, and
        NotFoundError."""
        self._check(group, self._groups.group(group.name))
        if not self._groups.change(group):
            raise unknown_group(group.name)
        return group

    def edit(self, name: str, how: Callable[[ResourceGroup], ResourceGroup]) -> ResourceGroup:
        """Change a group as it is stored now, and return it. Nothing is lost that another person changes at the same time.

        Raises NotFoundError, and ConfigError as `change` does, and when others change the group again and again.
        """
        for _ in range(_TRIES):
            before = self.group(name)
            after = how(before)
            self._check(after, before)
            if self._groups.change(after, before):
                return after
        raise ConfigError(f"group {name} was changed by others {_TRIES} times meanwhile, so nothing was changed; try again")

    def warning(self, group: ResourceGroup) -> str | None:
        """Say what is useless about a group, or cannot be known here. None when all is well. Raises ConfigError."""
        found = self._containers.containers().get(group.container)
        if found is not None:
            return without_effect(found, group)
        if self._containers.has_file:
            return f"group {group.name} gets no optimizers on this host, which has no container {group.container!r}"
        return (
            f"nobody can tell here whether there is a container {group.container!r}, because COMPACTION_CONTAINERS_FILE is not set: "
            "the `serve` that starts the optimizers of this group needs a file that describes it"
        )

    def _check(self, group: ResourceGroup, before: ResourceGroup | None) -> None:
        """Raise ConfigError for a part of a group that breaks its rule. A container that the group has already is not asked for again."""
        checked(group)
        if group.team is not None and group.team not in {team.name for team in self._teams.teams()}:
            raise unknown_team(group.team)
        found = self._containers.containers().get(group.container)
        if found is None and self._containers.has_file and (before is None or before.container != group.container):
            self._containers.container(group.container)
        # A container that is not known here may be one of a cluster, whose groups may have the most properties.
        known = found or Container(group.container, ContainerKind.SPARK)
        check_group_keys(known, group)
        group_policy(group, known)

    def delete(self, name: str) -> None:
        """Delete a group. Raises NotFoundError, and ConfigError, which lists what holds the group."""
        self.group(name)
        if name == DEFAULT_GROUP:
            raise ConfigError(f"the group {DEFAULT_GROUP!r} cannot be deleted: tables that name no group belong to it")
        holders = self._mapped(name)
        if not holders.are_any:
            held = self._groups.remove(name)
            holders = replace(holders, open_tasks=held.open_tasks, optimizers=held.optimizers)
        if holders.are_any:
            raise ConfigError(
                f"group {name} cannot be deleted, because it is in use: {holders.in_words}. Name another group in "
                "'self-optimizing.group' of these tables and catalogs, drain the optimizers, and wait until the tasks have ended"
            )

    def _mapped(self, name: str) -> GroupHolders:
        """Return the tables and the catalogs whose properties name this group."""
        catalogs = {entry.name: entry.properties for entry in self._catalogs.entries()}
        tables = [
            str(known.table)
            for known in self._tables.states()
            if known.index.loaded is not None
            and group_of(known.index.loaded.layout.properties, catalogs.get(known.table.catalog, {})) == name
        ]
        return GroupHolders(
            tables=tuple(sorted(tables)),
            catalogs=tuple(sorted(catalog for catalog, properties in catalogs.items() if group_of({}, properties) == name)),
        )
