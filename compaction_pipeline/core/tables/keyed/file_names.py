"""The names of the files of a keyed table (Amoro: `FileNameRules`).

A name tells the tree node, the type and the transaction of a file; nothing else does. For example
`9-ED-17-00001-0-5132886235797133601-00006.parquet` holds deletes of node 9 from transaction 17. Files that other programs added have other
names, and each store has a rule for them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum

from compaction_pipeline.core.errors import TableRefused
from compaction_pipeline.core.tables.keyed.tree import ROOT, DataTreeNode

# Java's \d and \w know ASCII only, and its dot does not match the ends of lines.
_NAME = re.compile(r"\.?(\d+)-(\w+)-(\d+)-(\d+)-(\d+)-[^\n\r\x85\u2028\u2029]*", re.ASCII)
_MOST = (1 << 63) - 1


class KeyedFileType(str, Enum):
    """What a file of a keyed table holds. The value is the short name that file names have."""

    BASE = "B"
    INSERT = "I"
    EQUALITY_DELETE = "ED"
    """Deleted rows of the change store, each with all its columns. For Iceberg it is a data file."""
    POSITION_DELETE = "PD"
    ICEBERG_EQUALITY_DELETE = "IED"
    LOG = "L"


@dataclass(frozen=True, slots=True)
class KeyedFile:
    """What the name of a file says: its node, its type, and the transaction that all its rows belong to."""

    node: DataTreeNode
    type: KeyedFileType
    transaction_id: int


@dataclass(frozen=True, slots=True)
class KeyedFileNames:
    """Makes the names of the files of one writer. `operation_id` is random, so two writers never use the same name.

    It is a number, as in Amoro's names, or a text without slashes and ends of lines. `writer` is the number of the writer among those of a
    job, and `task_id` that of its task. A transaction of 0 means that the files' data sequence number is their transaction.
    """

    transaction_id: int
    writer: int
    task_id: int
    operation_id: int | str

    def name(self, node: DataTreeNode, kind: KeyedFileType, number: int, extension: str = "parquet") -> str:
        """The name of the writer's file with this number. Numbers begin at 1."""
        parts = f"{node.id}-{kind.value}-{self.transaction_id}-{self.writer:05d}-{self.task_id}-{self.operation_id}-{number:05d}"
        return f"{parts}.{extension}"


def parse_name(path: str) -> KeyedFile | None:
    """What the name at the end of a path says; None when it does not follow the rules of names.

    Raises TableRefused for a name that follows them, but names a node or a transaction that cannot be.
    """
    name = path[path.rfind("/") + 1 :]
    found = _NAME.fullmatch(name)
    if found is None or found[2] not in _TYPES:
        return None
    node_id, transaction_id = int(found[1]), int(found[3])
    if not 1 <= node_id <= _MOST or transaction_id > _MOST:
        raise TableRefused(
            f"file {path} of a keyed table names the tree node {node_id} and the transaction {transaction_id}: a node's id is at least 1, "
            "and both are at most 2⁶³ − 1, so it is unknown which rows the file belongs to; find out who wrote it"
        )
    return KeyedFile(DataTreeNode.of_id(node_id), _TYPES[found[2]], transaction_id)


def base_file(path: str) -> KeyedFile:
    """What a file of the base store is. A file with another name, as Spark or Hive writes it, has transaction 0 and all nodes' rows."""
    parsed = parse_name(path)
    if parsed is None:
        return KeyedFile(ROOT, KeyedFileType.BASE, 0)
    if parsed.type is KeyedFileType.INSERT:
        # The file came from the change store as it is.
        return KeyedFile(parsed.node, KeyedFileType.BASE, parsed.transaction_id)
    return parsed


def change_file(path: str, data_sequence_number: int) -> KeyedFile:
    """What a file of the change store is. A file with another name holds inserts of all nodes.

    The transaction is the file's data sequence number when its name has another form or the transaction 0, as Flink writes it.
    """
    parsed = parse_name(path)
    if parsed is None:
        return KeyedFile(ROOT, KeyedFileType.INSERT, data_sequence_number)
    return KeyedFile(parsed.node, parsed.type, parsed.transaction_id or data_sequence_number)


def is_delete_file(path: str) -> bool:
    """Whether a file of the change store holds deletes, by its name."""
    parsed = parse_name(path)
    return parsed is not None and parsed.type is KeyedFileType.EQUALITY_DELETE


_TYPES = {kind.value: kind for kind in KeyedFileType}
