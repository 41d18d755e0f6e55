"""The two dynamic partition dimensions: one key per table node that needs care, one per table.

Keys are made and parsed by `core.tables.node` only. A table's key is the first part of its nodes' keys, so both dimensions sort
alike. A node becomes a partition when it first needs care, or when a person names it; it is retired when it has been healthy
and quiet (`retirement`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta

import dagster as dg

from compaction_pipeline.core.fragmentation.health import HealthStatus
from compaction_pipeline.core.insight.overview import NodeOverview
from compaction_pipeline.core.tables.node import TableNode, node_key
from compaction_pipeline.core.tables.table import TableIdentifier

table_nodes = dg.DynamicPartitionsDefinition(name="table_nodes")
tables = dg.DynamicPartitionsDefinition(name="tables")

CHUNK = 10_000
"""Keys that are added in one request: one transaction of Dagster's database."""

MOST_NODES = 25_000
"""Partitions beyond which the UI gets slow; further nodes are compacted all the same, and become partitions when some retire."""

QUIET = timedelta(days=7)
"""A node is retired when it was not compacted for this long: a week covers weekly loads."""

_NO_NODE = TableNode(0)
_END_OF_TABLE = "/0//0-0"


def table_key(table: TableIdentifier) -> str:
    """The partition key of a table."""
    return node_key(table, _NO_NODE).removesuffix(_END_OF_TABLE)


def additions(
    partitions: dg.DynamicPartitionsDefinition, wanted: Iterable[str], known: Iterable[str], most: int | None = None
) -> list[dg.AddDynamicPartitionsRequest]:
    """Requests for the keys that are not there yet: sorted, so a table's stand together, in chunks, at most up to `most` in all."""
    known = frozenset(known)
    new = sorted(frozenset(wanted) - known)
    if most is not None:
        new = new[: max(0, most - len(known))]
    return [partitions.build_add_request(new[start : start + CHUNK]) for start in range(0, len(new), CHUNK)]


def needs_care(node: NodeOverview) -> bool:
    """Whether the node should be a partition: there is work for it, or it keeps failing."""
    return node.health in (HealthStatus.DUE, HealthStatus.WAITING, HealthStatus.FAILING)


def retirement(known: Iterable[str], nodes: Iterable[NodeOverview], carried: frozenset[str], now: datetime) -> list[str]:
    """The keys to retire: healthy and quiet nodes, and nodes that no table holds any more; never one that a run carries."""
    by_key = {node.key: node for node in nodes}
    return sorted(key for key in known if key not in carried and (key not in by_key or _is_quiet(by_key[key], now)))


def _is_quiet(node: NodeOverview, now: datetime) -> bool:
    return node.health is HealthStatus.HEALTHY and all(now - at > QUIET for at in node.last_done.values())


def keys_between(ordered: Sequence[str], start: str, end: str) -> Sequence[str]:
    """The keys of a contiguous range, both ends included; all of them when an end is not there any more."""
    if start not in ordered or end not in ordered:
        return ordered
    return ordered[ordered.index(start) : ordered.index(end) + 1]
