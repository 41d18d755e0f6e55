"""Table nodes, the unit of fragmentation and planning, and their partition keys in Dagster.

A node is a partition (spec id and values) and, in keyed tables, one tree node in it. Its identity never depends on a
path text. The only module that makes or parses node keys.
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
    """One partition field's value: Iceberg type of the field's result and single-value JSON (spec, appendix D).

    NaN and the infinities, which JSON lacks, are the strings "NaN", "Infinity" and "-Infinity".
    """

    name: str
    type: str
    value: str | int | float | bool | None

    def __eq__(self, other: object) -> bool:
        # 1 == 1.0 == True and 0.0 == -0.0 in Python; two partitions are the same only when their text is. The type says nothing:
        # one spec has one at a time, and promoting its source column leaves every partition what it was.
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
    """The mask/index part of a node (keyed tables); the root is (0, 0)."""

    mask: int = 0
    index: int = 0


@dataclass(frozen=True, slots=True)
class TableNode:
    """One partition of one table, and in keyed tables one tree node of it."""

    spec_id: int
    partition: Partition = ()
    tree: DataTreeNode = DataTreeNode()

    def __str__(self) -> str:
        values = "/".join(str(value) for value in self.partition)
        return values or "unpartitioned"


def node_key(table: TableIdentifier, node: TableNode) -> str:
    """The Dagster partition key of a node: `<table>/<spec id>/<field>=<value>&…/<mask>-<index>`.

    At most 512 bytes of `A-Za-z0-9_-.=&/%~`; a longer one is cut and closed with `~` and 16 hex digits of its SHA-256,
    and only the state database can map it back.
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
    """What a node key says: values are texts (types are known to the table only); `None` is null."""

    table: TableIdentifier
    spec_id: int
    values: tuple[tuple[str, str | None], ...]
    tree: DataTreeNode


def parse_node_key(key: str) -> ParsedNodeKey | None:
    """Read a node key back; None for a key that was cut or that `node_key` never makes."""
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
    # `quote` leaves "." and "~" alone; both have a meaning in a key.
    return quote(text, safe="").replace(".", "%2E").replace("~", "%7E")
