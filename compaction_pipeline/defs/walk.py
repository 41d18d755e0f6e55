"""Walks over all partitions, 500 a tick, and tells of each node whose newest event of `delta_files` is outdated.

The sensor that finds changed nodes leaves some out: those beyond 500, those that were no partitions yet, and those that another process
read. When a walk has come round and nothing changed meanwhile, it rests. It begins again when a node or the newest partition changes, and
once a day, because a person may have deleted events or partitions.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from hashlib import sha256

import dagster as dg

from compaction_pipeline.core.insight.overview import NodeOverview
from compaction_pipeline.defs.file_events import DATA_VERSION_TAG, MOST_EVENTS, data_version, file_events
from compaction_pipeline.defs.names import Names
from compaction_pipeline.defs.partitions import known_nodes, needs_care, new_nodes


@dataclass(frozen=True, slots=True)
class Walk:
    """How far a walk has come: `after` is the last key that it looked at, and `left` is the number of keys that it must still look at.

    `seen` stands for the nodes and partitions as the last tick saw them.
    """

    seen: str = ""
    left: int = 0
    after: str = ""

    @classmethod
    def of(cls, text: str | None) -> Walk:
        """Read a walk from a cursor."""
        if not text:
            return cls()
        seen, left, after = text.split(" ", 2)
        return cls(seen, int(left), after)

    @property
    def text(self) -> str:
        """The walk as a cursor stores it."""
        return f"{self.seen} {self.left} {self.after}"


def walked(
    names: Names, instance: dg.DagsterInstance, walk: Walk, nodes: Sequence[NodeOverview], now: datetime, most: int = MOST_EVENTS
) -> tuple[Walk, list[dg.AddDynamicPartitionsRequest], list[dg.AssetMaterialization | dg.AssetObservation | dg.AssetCheckEvaluation]]:
    """Walk on. Return the walk, requests for nodes that should be partitions, and events for new partitions and for `most` others.

    `nodes` are all nodes, and those that need care most come first.
    """
    seen = _fingerprint(names, instance, nodes, now)
    if seen == walk.seen and not walk.left:
        return walk, [], []
    known = known_nodes(names, instance)
    new = new_nodes(names, known, (node.key for node in nodes if needs_care(node)))
    added = frozenset(key for request in new for key in request.partition_keys)
    page = next_keys(known, walk.after)[:most]
    left = walk.left if seen == walk.seen else len(known)
    wanted = added.union(page)
    found = [node for node in nodes if node.key in wanted]
    late = untold(names, instance, (node for node in found if node.key not in added))
    events = file_events(names, [*(node for node in found if node.key in added), *late], wanted)
    return Walk(seen, max(0, left - len(page)), page[-1] if page else ""), new, [*events]


def untold(names: Names, instance: dg.DagsterInstance, nodes: Iterable[NodeOverview]) -> list[NodeOverview]:
    """Those of these nodes whose newest event is of another snapshot, and those that have no event yet. Ask for at most 500 nodes."""
    by_key = {node.key: node for node in nodes}
    told = instance.event_log_storage.get_latest_tags_by_partition(
        names.delta_files, dg.DagsterEventType.ASSET_MATERIALIZATION, [DATA_VERSION_TAG], list(by_key)
    )
    return [node for key, node in by_key.items() if told.get(key, {}).get(DATA_VERSION_TAG) != data_version(node)]


def next_keys(partitions: Iterable[str], after: str) -> list[str]:
    """All keys, in sorted order from the one that follows `after`. After the last key the first one follows again."""
    keys = sorted(partitions)
    start = bisect_right(keys, after)
    return [*keys[start:], *keys[:start]]


def _fingerprint(names: Names, instance: dg.DagsterInstance, nodes: Iterable[NodeOverview], now: datetime) -> str:
    """16 hex digits, which are equal while there is nothing new to tell: the nodes, the newest partition, and the day."""
    newest = instance.get_paginated_dynamic_partitions(str(names.table_nodes.name), limit=1, ascending=False)
    parts = [f"{now:%Y-%m-%d}", newest.cursor, *newest.results]
    parts += [f"{node.key} {data_version(node)} {needs_care(node)}" for node in nodes]
    return sha256("\n".join(parts).encode()).hexdigest()[:16]
