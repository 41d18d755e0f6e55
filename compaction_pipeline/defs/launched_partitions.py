"""Lets `dagster asset materialize --partition` and `dg launch --partition` name a node that is no partition yet.

Both commands ask the partitions definition whether it has the key, before they start anything. On a new Dagster instance it has none, and a
healthy node never becomes a partition by itself. So a key that a table knows becomes a partition when it is asked for.
"""

from __future__ import annotations

import logging
from typing import Any

import dagster as dg

from compaction_pipeline.bootstrap import Services
from compaction_pipeline.core.errors import CompactionError
from compaction_pipeline.defs.requests import nodes_by_table
from compaction_pipeline.defs.resources import opened_services

log = logging.getLogger(__name__)


class NodesByName(dg.DynamicPartitionsDefinition):
    """The partitions of this name. Dagster counts it as equal to a plain definition of the same name."""

    def validate_partition_key(self, partition_key: str, context: Any) -> None:
        """Add the key when a table has such a node. Raises DagsterUnknownPartitionError when none has, and logs the reason."""
        instance = context.dynamic_partitions_store
        if isinstance(instance, dg.DagsterInstance) and not instance.has_dynamic_partition(str(self.name), partition_key):
            problem = _problem(partition_key)
            if problem is None:
                instance.add_dynamic_partitions(str(self.name), [partition_key])
            else:
                log.error("partition %s: %s", partition_key, problem)
        super().validate_partition_key(partition_key, context)


def _problem(key: str) -> str | None:
    """Why no table has a node with this key; None when one has."""
    services = opened_services()
    try:
        problem = _unknown(services, key)
        if problem is not None:
            # A catalog that was declared in code is listed by a sensor, and none has ticked yet.
            for entry in services.list_catalogs.entries():
                if not services.read_tables.names(entry.name):
                    services.explore_catalogs.explore(entry.name)
            problem = _unknown(services, key)
        return problem
    except CompactionError as error:
        return str(error)
    finally:
        services.close()


def _unknown(services: Services, key: str) -> str | None:
    problems: list[str] = []
    nodes_by_table(services, [key], lambda _, reason: problems.append(reason))
    return problems[0] if problems else None
