"""Table nodes, which are the unit of fragmentation and of planning, and node keys, which are their partition keys in Dagster.

A node is one partition of a table (spec id and partition values). Keyed tables are Amoro's Mixed-Iceberg tables with a primary key, which
are not supported yet. In such a table the rows of a partition are divided by the hash of their key, and each division, a tree node, is a
node. The identity of a node never depends on the text of a path. Only this module makes or parses node keys.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from urllib.parse import quote, unquote

from compaction_pipeline.core.tables.table import TableIdentifier

MAX_KEY_BYTES = 512
_HASH_DIGITS = 16


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


@dataclass(frozen=True, slots=True)
class DataTreeNode:
    """The tree part of a node in a keyed table: the rows whose key has `hash & mask == index`. The root is (0, 0)."""

    mask: int = 0
    index: int = 0


@dataclass(frozen=True, slots=True)
class TableNode:
    """One partition of one table; in a keyed table one tree node of a partition."""

    spec_id: int
    partition: Partition = ()
    tree: DataTreeNode = DataTreeNode()

    def __str__(self) -> str:
        values = "/".join(str(value) for value in self.partition)
        return values or "unpartitioned"


def node_key(table: TableIdentifier, node: TableNode) -> str:
    """Return the Dagster partition key of a node: `<table>/<spec id>/<field>=<value>&…/<mask>-<index>`.

    A key has at most 512 bytes of `A-Za-z0-9_-.=&/%~`. A longer one is cut, and ends with `~` and 16 hex digits of the SHA-256 of the
    whole key. Only the state database can find the node of a cut key.
    """
    levels = ".".join(_encoded(level) for level in table.levels)
    values = "&".join(
        _encoded(value.name) if value.value is None else f"{_encoded(value.name)}={_encoded(_text(value.value))}"
        for value in node.partition
    )
    key = f"{levels}/{node.spec_id}/{values}/{node.tree.mask}-{node.tree.index}"
    if len(key) <= MAX_KEY_BYTES:
        return key
    digest = hashlib.sha256(key.encode()).hexdigest()[:_HASH_DIGITS]
    return f"{key[: MAX_KEY_BYTES - _HASH_DIGITS - 1]}~{digest}"


@dataclass(frozen=True, slots=True)
class ParsedNodeKey:
    """The parts of a node key. Values are texts, because a key does not hold their types; None is null."""

    table: TableIdentifier
    spec_id: int
    values: tuple[tuple[str, str | None], ...]
    tree: DataTreeNode


def parse_node_key(key: str) -> ParsedNodeKey | None:
    """Return the parts of a node key; None for a key that was cut or that `node_key` never makes."""
    if "~" in key:
        return None
    parts = key.split("/")
    tree = re.fullmatch(r"([0-9]+)-([0-9]+)", parts[-1])
    if len(parts) != 4 or tree is None or re.fullmatch("[0-9]+", parts[1]) is None:
        return None
    levels = [unquote(level) for level in parts[0].split(".")]
    if len(levels) < 3:
        return None
    values = []
    for pair in parts[2].split("&") if parts[2] else []:
        name, has_value, value = pair.partition("=")
        values.append((unquote(name), unquote(value) if has_value else None))
    return ParsedNodeKey(
        TableIdentifier(levels[0], tuple(levels[1:-1]), levels[-1]),
        int(parts[1]),
        tuple(values),
        DataTreeNode(int(tree[1]), int(tree[2])),
    )


def _text(value: str | int | float | bool) -> str:
    return value if isinstance(value, str) else repr(value).lower() if isinstance(value, bool) else repr(value)


def _encoded(text: str) -> str:
    # `quote` does not encode "." and "~", but both have a meaning in a key.
    return quote(text, safe="").replace(".", "%2E").replace("~", "%7E")
