"""Which nodes of an upsert table are read to see whether each key has one row, and what such a look found."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from compaction_pipeline.core.tables.figures import NodeMetrics
from compaction_pipeline.core.tables.keyed.creation import AMORO_UPSERT_KEY, UPSERT_KEY
from compaction_pipeline.core.tables.keyed.merge_on_read import NodeRead
from compaction_pipeline.core.tables.node import Place, TableNode

MOST_ROWS = 5_000_000
"""How many stored rows one look at a table reads, at most."""
CHEAP_ROWS = 100_000
CHEAP_FILES = 50
"""The keys of tables with at most so many rows and files together are read after every commit: that takes less than a second or two."""


@dataclass(frozen=True, slots=True)
class RepeatedKey:
    """A key of a node that has several live rows. `key` is in words, for example `id=7`."""

    node: TableNode
    key: str
    rows: int


@dataclass(frozen=True, slots=True)
class KeyReading:
    """What a look at the keys of a table found.

    `nodes` are those that were read, and `of_nodes` is the number of all. `on_base` counts those of `nodes` whose changes are all merged:
    their rows are those of the base store alone. `rows` is the number of live rows. `repeated` has at most one key of each node.
    """

    nodes: tuple[TableNode, ...]
    of_nodes: int
    on_base: int
    rows: int
    repeated: tuple[RepeatedKey, ...]


def is_upsert(change_properties: Mapping[str, str]) -> bool:
    """Whether at most one row of each key is live, by the properties of the change store."""
    return any(change_properties.get(name, "").lower() == "true" for name in (UPSERT_KEY, AMORO_UPSERT_KEY))


def is_cheap(tables: Iterable[NodeMetrics]) -> bool:
    """Whether the keys of all nodes with these figures may be read again and again."""
    figures = tuple(tables)
    return sum(each.rows for each in figures) <= CHEAP_ROWS and sum(each.files for each in figures) <= CHEAP_FILES


def related(nodes: Sequence[NodeRead]) -> tuple[tuple[NodeRead, ...], ...]:
    """Group the nodes whose rows may have one key: those of one partition of which one is within the other. Most groups have one node."""
    groups: dict[Place, list[list[NodeRead]]] = defaultdict(list)
    # A node above another has the lower id, so the first node of a group is above all others of it.
    for read in sorted(nodes, key=lambda read: read.node.tree.id):
        of_place = groups[read.node.place]
        group = next((group for group in of_place if read.node.tree.is_within(group[0].node.tree)), None)
        if group is None:
            of_place.append([read])
        else:
            group.append(read)
    return tuple(tuple(group) for of_place in groups.values() for group in of_place)


def stored_rows(group: Sequence[NodeRead]) -> int:
    """The rows of the data files of these nodes, deleted ones too."""
    return sum(each.file.record_count for read in group for each in (*read.base, *read.inserts, *read.deletes))


def chosen(groups: Sequence[tuple[NodeRead, ...]], day: int, most_rows: int) -> tuple[tuple[NodeRead, ...], ...]:
    """The groups to read on this day: as many as have `most_rows` stored rows together. Each day begins with another group."""
    first = day % len(groups) if groups else 0
    left, found = most_rows, []
    for group in (*groups[first:], *groups[:first]):
        rows = stored_rows(group)
        if rows <= left:
            found.append(group)
            left -= rows
    return tuple(found)
