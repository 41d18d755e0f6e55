"""Lets `dagster asset materialize --partition` and `dg launch --partition` name a node or a table that is no partition yet.

Both commands ask the partitions definition whether it has the key, before they start anything. On a new Dagster instance it has none. A
healthy node never becomes a partition by itself, and a table only with its first commit. So a key that the program knows becomes a
partition when it is asked for.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import dagster as dg

from compaction_pipeline.bootstrap import Services
from compaction_pipeline.core.errors import CompactionError
from compaction_pipeline.defs.choices import Choices
from compaction_pipeline.defs.names import Names
from compaction_pipeline.defs.requests import nodes_by_table, table_named
from compaction_pipeline.defs.resources import opened_services

log = logging.getLogger(__name__)


class _ByName(dg.DynamicPartitionsDefinition):
    """The partitions of this name. Dagster counts it as equal to a plain definition of the same name."""

    choices = Choices()

    @staticmethod
    def unknown(services: Services, key: str) -> str | None:
        """Say why the program knows nothing of this key; None when it does."""
        raise NotImplementedError

    def validate_partition_key(self, partition_key: str, context: Any) -> None:
        """Add the key when the program knows it. Raises DagsterUnknownPartitionError when it does not, and logs the reason."""
        instance = context.dynamic_partitions_store
        if isinstance(instance, dg.DagsterInstance) and not instance.has_dynamic_partition(str(self.name), partition_key):
            problem = _problem(self.choices, partition_key, self.unknown)
            if problem is None:
                instance.add_dynamic_partitions(str(self.name), [partition_key])
            else:
                log.error("partition %s: %s", partition_key, problem)
        super().validate_partition_key(partition_key, context)


class _NodesByName(_ByName):
    """The partitions of nodes."""

    @staticmethod
    def unknown(services: Services, key: str) -> str | None:
        """Say why no table has such a node."""
        problems: list[str] = []
        nodes_by_table(services, [key], lambda _, reason: problems.append(reason))
        return problems[0] if problems else None


class _TablesByName(_ByName):
    """The partitions of tables."""

    @staticmethod
    def unknown(services: Services, key: str) -> str | None:
        """Say why no catalog has such a table."""
        try:
            table_named(services, key)
        except CompactionError as error:
            return str(error)
        return None


def nodes_by_name(names: Names, choices: Choices) -> dg.DynamicPartitionsDefinition:
    """The partitions of nodes, which look into the state database of these choices."""
    made = _NodesByName(name=names.table_nodes.name)
    made.choices = choices
    return made


def tables_by_name(names: Names, choices: Choices) -> dg.DynamicPartitionsDefinition:
    """The partitions of tables, which look into the state database of these choices."""
    made = _TablesByName(name=names.tables.name)
    made.choices = choices
    return made


def _problem(choices: Choices, key: str, unknown: Callable[[Services, str], str | None]) -> str | None:
    """Why the program knows nothing of this key, after a look at catalogs that nobody has listed yet; None when it does."""
    services = opened_services(choices)
    try:
        problem = unknown(services, key)
        if problem is not None:
            # A catalog that was declared in code is listed by a sensor, and none has ticked yet.
            for entry in services.explore_catalogs.entries():
                if not services.read_tables.names(entry.name):
                    services.explore_catalogs.explore(entry.name)
            problem = unknown(services, key)
        return problem
    except CompactionError as error:
        return str(error)
    finally:
        services.close()
