"""Decides whether an optimizer may register: it must merge by the rules of this server, and say enough to be charged."""

from __future__ import annotations

from compaction_pipeline.core.capacity.ports import TeamStore
from compaction_pipeline.core.capacity.team_starts import needs_memory
from compaction_pipeline.core.errors import ConfigError
from compaction_pipeline.core.queue.group import MEMORY, MOST_MEMORY_OF_ONE
from compaction_pipeline.core.queue.merge_version import MERGE_VERSION
from compaction_pipeline.core.queue.optimizer import Registration
from compaction_pipeline.core.queue.ports.groups import GroupStore
from compaction_pipeline.core.words import printable


class AdmitOptimizers:
    """One verb: check."""

    def __init__(self, groups: GroupStore, teams: TeamStore, version: str) -> None:
        """`version` is the version of this program, which an optimizer with another merge version is told to install."""
        self._groups = groups
        self._teams = teams
        self.version = version

    def check(self, registration: Registration) -> None:
        """Raise ConfigError when a value breaks its rule, or when the optimizer merges by other rules than this server."""
        if registration.merge_version != MERGE_VERSION:
            raise ConfigError(
                f"an optimizer of version {printable(registration.version)} merges by version {registration.merge_version} of the rules, "
                f"but this server has version {MERGE_VERSION}: install compaction-pipeline {self.version} on the optimizer's host"
            )
        if registration.parallelism < 1:
            raise ConfigError(
                f"parallelism is {registration.parallelism} but must be at least 1: it is how many tasks are merged at a time"
            )
        memory = registration.memory_bytes
        if memory < 0:
            raise ConfigError(f"memory is {memory} bytes but must not be negative; leave it out when it is not known")
        if memory > MOST_MEMORY_OF_ONE:
            raise ConfigError(f"memory is {memory} bytes but must be at most {MOST_MEMORY_OF_ONE}: say how much the optimizer has")
        if not memory:
            self._check_unknown_memory(registration.group)

    def _check_unknown_memory(self, name: str) -> None:
        group = self._groups.group(name)
        if group is None or group.team is None or group.number(MEMORY):
            return
        team = next((each for each in self._teams.teams() if each.name == group.team), None)
        if team is not None and needs_memory(team.limits):
            raise ConfigError(
                f"memory is not given, but group {name} belongs to team {team.name}, whose memory or GB-hours are limited: start the "
                f"optimizer with --memory BYTES, or set it for all with `compaction-pipeline group change {name} -p {MEMORY}=BYTES`"
            )
