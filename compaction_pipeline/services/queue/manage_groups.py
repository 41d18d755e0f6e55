"""Shows, makes, changes and deletes resource groups."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from compaction_pipeline.core.errors import ConfigError
from compaction_pipeline.core.insight.ports import TableReader
from compaction_pipeline.core.queue.group import GroupHolders, ResourceGroup, checked, unknown_group
from compaction_pipeline.core.queue.ports import GroupStore
from compaction_pipeline.core.tables.group_name import DEFAULT_GROUP
from compaction_pipeline.core.tables.ports import CatalogStore
from compaction_pipeline.core.tables.properties import group_of


class ManageGroups:
    """The verbs of a person who decides where work is done: groups, group, add, change, delete."""

    def __init__(self, groups: GroupStore, catalogs: CatalogStore, tables: TableReader) -> None:
        self._groups = groups
        self._catalogs = catalogs
        self._tables = tables

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
        """Make a group. Raises ConfigError when a value breaks its rule, or when the name is taken."""
        if not self._groups.add(checked(group)):
            raise ConfigError(f"group {group.name} exists already; `compaction-pipeline group change {group.name}` changes it")
        return group

    def change(self, group: ResourceGroup) -> ResourceGroup:
        """Replace the group of this name. Raises ConfigError when a value breaks its rule, and NotFoundError."""
        if not self._groups.change(checked(group)):
            raise unknown_group(group.name)
        return group

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
