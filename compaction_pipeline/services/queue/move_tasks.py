"""Moves waiting tasks to the group and the team that their table has now, after somebody gave it another one."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from compaction_pipeline.core.capacity.ports import TeamStore
from compaction_pipeline.core.errors import NotFoundError
from compaction_pipeline.core.insight.ports import TableReader
from compaction_pipeline.core.queue.ports.groups import GroupStore
from compaction_pipeline.core.queue.ports.tasks import TaskStore
from compaction_pipeline.core.tables.ports.catalogs import CatalogStore
from compaction_pipeline.core.tables.properties import group_of, named_team
from compaction_pipeline.core.tables.table import TableIdentifier
from compaction_pipeline.core.tables.team_name import UNASSIGNED

log = logging.getLogger(__name__)


class MoveTasks:
    """One verb: move."""

    def __init__(self, catalogs: CatalogStore, tables: TableReader, tasks: TaskStore, groups: GroupStore, teams: TeamStore) -> None:
        self._catalogs = catalogs
        self._tables = tables
        self._tasks = tasks
        self._groups = groups
        self._teams = teams

    def move(self) -> None:
        """Move waiting tasks to their table's group, while it exists, and to its team. Keep since when each team is held."""
        self._to_groups()
        self._to_teams()
        self._teams.note_held()

    def _to_groups(self) -> None:
        for table, queues in self._tasks.queues_to_merge().items():
            properties = self._properties(table)
            group = None if properties is None else group_of(*properties)
            # A table of a missing group shows that as the reason of its plans.
            if group is None or set(queues) == {group} or self._groups.group(group) is None:
                continue
            try:
                moved = self._tasks.move_to_queue(table, group)
            except NotFoundError:
                # The group was deleted just now.
                continue
            if moved:
                log.info("table=%s moved to group %s with %d waiting task(s)", table, group, len(moved))

    def _to_teams(self) -> None:
        """What runs is charged to the team that it began for."""
        teams_of_waiting = self._tasks.teams_of_waiting()
        if not teams_of_waiting:
            return
        known, mapping = {team.name for team in self._teams.teams()}, self._teams.mapping()
        for table, teams in teams_of_waiting.items():
            properties = self._properties(table)
            if properties is None:
                continue
            named = named_team(table, *properties, mapping)
            team = named if named in known else UNASSIGNED
            if set(teams) != {team} and (moved := self._tasks.move_to_team(table, team)):
                log.info("table=%s belongs to team %s now, with %d waiting task(s)", table, team, len(moved))

    def _properties(self, table: TableIdentifier) -> tuple[Mapping[str, str], Mapping[str, str]] | None:
        """Return the properties of a table and of its catalog; None when they are not known now."""
        try:
            loaded = self._tables.state(table).index.loaded
            of_catalog = self._catalogs.entry(table.catalog).properties
        except NotFoundError:
            return None
        return None if loaded is None else (loaded.layout.properties, of_catalog)
