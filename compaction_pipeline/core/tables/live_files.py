"""The live files of a table: what a new head changes, and which node they belong to.

State keeps, per live file, the manifest that lists it. A new head is compared manifest list against manifest list, so
expiry, rollback, merged and rewritten manifests need no special case.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from compaction_pipeline.core.tables.data_file import LiveFile
from compaction_pipeline.core.tables.node import TableNode
from compaction_pipeline.core.tables.table import ManifestRef, TableIdentifier


@dataclass(frozen=True, slots=True)
class ManifestChanges:
    """Manifests whose files are to be forgotten, and manifests that are to be read."""

    removed: tuple[str, ...]
    added: tuple[ManifestRef, ...]

    def __bool__(self) -> bool:
        return bool(self.removed or self.added)


def manifest_changes(known: frozenset[str], head: Sequence[ManifestRef]) -> ManifestChanges:
    """What turns the index of the `known` manifests into that of `head`; both in a stable order, each manifest once."""
    by_path = {manifest.path: manifest for manifest in head}
    return ManifestChanges(
        removed=tuple(sorted(known - by_path.keys())),
        added=tuple(manifest for path, manifest in by_path.items() if path not in known),
    )


@dataclass(slots=True)
class NodeFiles:
    """The files of one node: those whose own spec and partition are the node's."""

    node: TableNode
    data: list[LiveFile]
    deletes: list[LiveFile]


def files_by_node(files: Iterable[LiveFile]) -> dict[TableNode, NodeFiles]:
    """Group files by node, in the order in which the nodes are met."""
    nodes: dict[TableNode, NodeFiles] = {}
    # Hashing a partition's values costs more than all the rest; files of one partition mostly share the tuple.
    met: dict[tuple[int, int], NodeFiles] = {}
    for file in files:
        identity = (file.spec_id, id(file.partition))
        group = met.get(identity)
        if group is None:
            node = file.node
            group = met[identity] = nodes.setdefault(node, NodeFiles(node, [], []))
        (group.data if file.is_data else group.deletes).append(file)
    return nodes


@dataclass(frozen=True, slots=True)
class TableFiles:
    """The live files of exactly one snapshot, fully read: data and delete files of every node.

    `sort_order_id` is the order that a FULL sorts by; 0: none.
    """

    table: TableIdentifier
    table_uuid: str
    snapshot_id: int
    sequence_number: int
    format_version: int
    schema_id: int
    default_spec_id: int
    unpartitioned_spec_ids: frozenset[int]
    files: tuple[LiveFile, ...]
    sort_order_id: int = 0
