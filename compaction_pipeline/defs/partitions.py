"""The two dynamic partition dimensions: one key for each table node that needs care, and one for each table that was ever compacted.

The state database gives a node its key once, and nobody makes it anew. A node becomes a partition when it needs care (`needs_care`), when
it is committed, or when a person names it. It stops being one when it is healthy and was not compacted for a week (`retirement`). A table
becomes a partition with its first record, or when a person names it, so that the pages show as missing only what is missing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta

import dagster as dg

from compaction_pipeline.core.fragmentation.health import HealthStatus
from compaction_pipeline.core.insight.overview import NodeOverview
from compaction_pipeline.defs.names import Names

OF_ALL_NODES = dg.AllPartitionMapping()
"""An asset without partitions tells of all nodes."""

OF_SOME_NODES: dg.SpecificPartitionsPartitionMapping = dg.SpecificPartitionsPartitionMapping([])
"""A table's record tells of nodes of this table. Dagster has no mapping that says so, and its own default would look for a node with the
key of the table. So a record depends on no partition that Dagster could name. A launch of nodes with all that is downstream then commits
them, and launches no record; and no record is called outdated because another table was compacted."""

CHUNK = 10_000
"""Keys that one request adds. Dagster's database adds them in one transaction."""

MOST_NODES = 25_000
"""The UI gets slow with more partitions. Nodes beyond this number are compacted too. They become partitions when others retire."""

QUIET = timedelta(days=7)
"""A node retires when it was not compacted for this long. A week covers loads that come once a week."""


def known_nodes(names: Names, instance: dg.DagsterInstance) -> frozenset[str]:
    """The keys of all nodes that are partitions. There may be 25,000, so ask for them only when they are needed."""
    return frozenset(instance.get_dynamic_partitions(str(names.table_nodes.name)))


def new_nodes(names: Names, known: frozenset[str], wanted: Iterable[str]) -> list[dg.AddDynamicPartitionsRequest]:
    """Requests that make partitions of these node keys, within the number that the UI can show. `known` are the present partitions."""
    return additions(names.table_nodes, wanted, known, MOST_NODES)


def new_tables(names: Names, instance: dg.DagsterInstance, wanted: Iterable[str]) -> list[dg.AddDynamicPartitionsRequest]:
    """Requests that make partitions of these keys of tables."""
    return additions(names.tables, wanted, instance.get_dynamic_partitions(str(names.tables.name)))


class KnownPartitions:
    """The partitions of both dimensions, for a run. It asks Dagster for all keys of a dimension once: there may be 25,000.

    Keys that others add meanwhile are missing here. To add such a key again changes nothing.
    """

    def __init__(self, names: Names, instance: dg.DagsterInstance) -> None:
        self._names = names
        self._instance = instance
        self._known: dict[str, frozenset[str]] = {}

    @property
    def nodes(self) -> frozenset[str]:
        """The keys of the nodes that are partitions."""
        return self._keys(self._names.table_nodes)

    def add_nodes(self, wanted: Iterable[str]) -> None:
        """Make partitions of these nodes, within the number that the UI can show."""
        self._add(self._names.table_nodes, wanted, MOST_NODES)

    def add_tables(self, wanted: Iterable[str]) -> None:
        """Make partitions of these keys of tables."""
        self._add(self._names.tables, wanted, None)

    def _keys(self, partitions: dg.DynamicPartitionsDefinition) -> frozenset[str]:
        name = str(partitions.name)
        if name not in self._known:
            self._known[name] = frozenset(self._instance.get_dynamic_partitions(name))
        return self._known[name]

    def _add(self, partitions: dg.DynamicPartitionsDefinition, wanted: Iterable[str], most: int | None) -> None:
        name, wanted = str(partitions.name), frozenset(wanted)
        if not wanted:
            return
        for request in additions(partitions, wanted, self._keys(partitions), most):
            self._instance.add_dynamic_partitions(name, list(request.partition_keys))
            self._known[name] |= frozenset(request.partition_keys)


def additions(
    partitions: dg.DynamicPartitionsDefinition, wanted: Iterable[str], known: Iterable[str], most: int | None = None
) -> list[dg.AddDynamicPartitionsRequest]:
    """Requests for the keys that are new, in chunks. Keys are sorted, so those of a table stand together.

    `most` is how many partitions there may be in all.
    """
    known = frozenset(known)
    new = sorted(frozenset(wanted) - known)
    if most is not None:
        new = new[: max(0, most - len(known))]
    return [partitions.build_add_request(new[start : start + CHUNK]) for start in range(0, len(new), CHUNK)]


def needs_care(node: NodeOverview) -> bool:
    """True when the node should be a partition, because there is work for it or because its work keeps failing."""
    return node.health in (HealthStatus.DUE, HealthStatus.WAITING, HealthStatus.FAILING)


def retirement(known: Iterable[str], nodes: Iterable[NodeOverview], carried: frozenset[str], now: datetime) -> list[str]:
    """The keys that retire: those of healthy and quiet nodes, and of nodes that no table holds any more.

    `carried` are the keys that queued and running runs work on. They never retire.
    """
    by_key = {node.key: node for node in nodes}
    return sorted(key for key in known if key not in carried and (key not in by_key or _is_quiet(by_key[key], now)))


def _is_quiet(node: NodeOverview, now: datetime) -> bool:
    return node.health is HealthStatus.HEALTHY and all(now - at > QUIET for at in node.last_done.values())


def keys_between(ordered: Sequence[str], start: str, end: str) -> Sequence[str]:
    """The keys of a contiguous range, with both ends. All keys, when an end is no longer among them."""
    if start not in ordered or end not in ordered:
        return ordered
    return ordered[ordered.index(start) : ordered.index(end) + 1]
