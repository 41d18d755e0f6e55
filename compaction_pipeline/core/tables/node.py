"""Table nodes, which are the unit of fragmentation and of planning.

A node is one partition of a table (spec id and partition values). Keyed tables are Amoro's Mixed-Iceberg tables with a primary key. In such
a table the rows of a partition are divided by the hash of their key, and each division, a tree node, is a node. The identity of a node
never depends on the text of a path.
"""

from __future__ import annotations

from dataclasses import dataclass

from compaction_pipeline.core.tables.keyed.tree import ROOT, DataTreeNode


@dataclass(frozen=True, slots=True)
class PartitionValue:
    """The value of one partition field: the field's name, the Iceberg type of its result, and single-value JSON (spec, appendix D).

    JSON has no NaN and no infinities; they are the strings "NaN", "Infinity" and "-Infinity".
    """

    name: str
    type: str
    value: str | int | float | bool | None

    def __eq__(self, other: object) -> bool:
        # In Python 1 == 1.0 == True and 0.0 == -0.0, but two partitions are the same only when their texts are. The type is not
        # compared: a field of a spec has one type at a time, and when its source column is promoted the partitions stay the same.
        return isinstance(other, PartitionValue) and self._identity == other._identity

    def __hash__(self) -> int:
        return hash(self._identity)

    @property
    def _identity(self) -> tuple[str, str]:
        return (self.name, repr(self.value))

    def __str__(self) -> str:
        return f"{self.name}={'null' if self.value is None else self.value}"


Partition = tuple[PartitionValue, ...]
Place = tuple[int, Partition]
"""A partition of a table: its spec id and its values."""


@dataclass(frozen=True, slots=True)
class TableNode:
    """One partition of one table; in a keyed table one tree node of a partition."""

    spec_id: int
    partition: Partition = ()
    tree: DataTreeNode = ROOT

    @property
    def place(self) -> Place:
        """The partition that the node is, or that its tree node divides."""
        return self.spec_id, self.partition

    def __str__(self) -> str:
        values = "/".join(str(value) for value in self.partition) or "unpartitioned"
        return values if self.tree == ROOT else f"{values} node {self.tree}"
