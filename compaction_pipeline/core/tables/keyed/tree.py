"""The tree of hash buckets that the rows of a keyed table are divided into.

Amoro's `DataTreeNode` is the model. A table with 2ⁿ buckets puts a row into the node (2ⁿ − 1, hash of its key & (2ⁿ − 1)). The number of
buckets of a table may change, so its files may lie in nodes of several depths. Rows with one key lie on one path from the root downwards.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class DataTreeNode:
    """One node of the tree: the rows whose key has `hash & mask == index`. The root is (0, 0) and has all rows.

    `mask` is 2ⁿ − 1, where n is the depth of the node. Raises ValueError for another mask, and for an index that is not in 0..mask.
    """

    mask: int = 0
    index: int = 0

    def __post_init__(self) -> None:
        if self.mask < 0 or self.mask & (self.mask + 1):
            raise ValueError(f"the mask of a tree node is {self.mask} but must be a power of two minus 1, as 0, 1, 3 or 7")
        if not 0 <= self.index <= self.mask:
            raise ValueError(f"the index of a tree node is {self.index} but must be in 0..{self.mask}, its mask")

    def __str__(self) -> str:
        return f"{self.mask}-{self.index}"

    @classmethod
    def of_id(cls, node_id: int) -> DataTreeNode:
        """The node with this id. Raises ValueError for an id below 1."""
        if node_id < 1:
            raise ValueError(f"the id of a tree node is {node_id} but must be at least 1, the id of the root")
        mask = (1 << (node_id.bit_length() - 1)) - 1
        return cls(mask, node_id - mask - 1)

    @classmethod
    def of_hash(cls, mask: int, key_hash: int) -> DataTreeNode:
        """The node with this mask that holds the rows whose key has this hash."""
        return cls(mask, key_hash & mask)

    @property
    def id(self) -> int:
        """The number of the node in file names. Each node has its own."""
        return self.mask + 1 + self.index

    @property
    def left(self) -> DataTreeNode:
        """The child that holds the rows whose next bit of the hash is 0."""
        return DataTreeNode(2 * self.mask + 1, self.index)

    @property
    def right(self) -> DataTreeNode:
        """The child that holds the rows whose next bit of the hash is 1."""
        return DataTreeNode(2 * self.mask + 1, self.index + self.mask + 1)

    @property
    def parent(self) -> DataTreeNode:
        """The node one level higher. Raises ValueError for the root."""
        if self.mask == 0:
            raise ValueError("the root of the tree has no parent")
        above = self.mask >> 1
        return DataTreeNode(above, self.index & above)

    def is_within(self, other: DataTreeNode) -> bool:
        """Whether all rows of this node are rows of `other`: the two are equal, or `other` lies above this node. Amoro: `isSonOf`."""
        return self.mask >= other.mask and self.index & other.mask == other.index

    def shares_rows_with(self, other: DataTreeNode) -> bool:
        """Whether a row may lie in both nodes: one of them is within the other."""
        return self.is_within(other) or other.is_within(self)


ROOT = DataTreeNode()
"""The node that has all rows."""
