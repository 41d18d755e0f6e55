"""What the definitions are called, and the group, the pool and the tags that all of them have in common.

`Names` builds every name that a prefix may stand before. So a process can hold several sets of definitions.
"""

from __future__ import annotations

from dataclasses import dataclass

import dagster as dg

COMPACT_JOB = "compact_job"
COMMIT_JOB = "commit_job"
CHECKS_JOB = "compaction_checks_job"
PAUSE_JOB = "pause_job"
RESUME_JOB = "resume_job"
RETIRE_JOB = "compaction_retire_job"
UPKEEP_JOB = "upkeep_job"
ADD_GROUP_JOB = "add_group_job"
CHANGE_GROUP_JOB = "change_group_job"
DRAIN_GROUP_JOB = "drain_group_job"

GROUP = "compaction"
POOL = "spark_merge"
"""A run that merges holds a slot of this pool. With the default limit of 1, a machine has one Spark session at a time."""

MACHINE_TAGS = {"dagster/priority": "-1", "compaction/requested-by": "machine"}
"""Tags of runs that a sensor asked for. Their priority lets the runs of people go first."""


@dataclass(frozen=True, slots=True)
class Names:
    """The names of one set of definitions.

    `asset_prefix` are the levels before each asset key. `name_prefix` stands before the names of jobs, sensors, steps and all other things
    of which a code location may have only one of each name.
    """

    asset_prefix: tuple[str, ...] = ()
    name_prefix: str = ""

    @classmethod
    def of_setting(cls, asset_prefix: str, name_prefix: str = "") -> Names:
        """The names with the value of the setting `asset_prefix`."""
        return cls(tuple(level for level in asset_prefix.split("/") if level), name_prefix)

    def of(self, name: str) -> str:
        """The name of a job, a sensor or another thing that is no asset."""
        return f"{self.name_prefix}_{name}" if self.name_prefix else name

    @property
    def compaction(self) -> str:
        """The key of the resource that gives the services to runs and ticks."""
        return self.of("compaction")

    @property
    def table_nodes(self) -> dg.DynamicPartitionsDefinition:
        """One partition for each table node that needs care."""
        return dg.DynamicPartitionsDefinition(name=self.of("table_nodes"))

    @property
    def tables(self) -> dg.DynamicPartitionsDefinition:
        """One partition for each table that was ever compacted."""
        return dg.DynamicPartitionsDefinition(name=self.of("tables"))

    @property
    def delta_files(self) -> dg.AssetKey:
        """What writers left in the nodes."""
        return self._asset("delta_files")

    @property
    def table_health(self) -> dg.AssetKey:
        """The page to look at first."""
        return self._asset("table_health")

    @property
    def table_figures(self) -> dg.AssetKey:
        """Figures over time."""
        return self._asset("table_figures")

    @property
    def compacted_files(self) -> dg.AssetKey:
        """What merges did to nodes."""
        return self._asset("compacted_files")

    @property
    def compaction_records(self) -> dg.AssetKey:
        """The commits of tables."""
        return self._asset("compaction_records")

    @property
    def compaction_queues(self) -> dg.AssetKey:
        """The tasks of groups."""
        return self._asset("compaction_queues")

    @property
    def optimizers(self) -> dg.AssetKey:
        """The processes that merge for the HTTP service."""
        return self._asset("optimizers")

    @property
    def waiting_jobs(self) -> dg.AssetKey:
        """What jobs of the dependency center wait for."""
        return self._asset("waiting_jobs")

    @property
    def compaction_capacity(self) -> dg.AssetKey:
        """What compaction costs and may cost."""
        return self._asset("compaction_capacity")

    @property
    def external_assets(self) -> tuple[dg.AssetKey, ...]:
        """The assets that nobody launches: sensors and runs store their events."""
        of_sensor = (self.compaction_queues, self.optimizers, self.waiting_jobs, self.compaction_capacity)
        return (self.delta_files, self.table_health, self.table_figures, *of_sensor)

    @property
    def assets(self) -> frozenset[dg.AssetKey]:
        """All assets of the program."""
        return frozenset([*self.external_assets, self.compacted_files, self.compaction_records])

    def _asset(self, name: str) -> dg.AssetKey:
        return dg.AssetKey([*self.asset_prefix, name])
