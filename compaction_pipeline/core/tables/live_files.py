"""The live files of a table: which of them a new head of the table changes, and which node each belongs to.

The index in the state database keeps each live file with the manifest that lists it. A new head is compared by its manifest list:
files of manifests that are gone are removed, and new manifests are read. Expired snapshots, rollbacks, and merged or rewritten
manifests therefore need no special case.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from compaction_pipeline.core.tables.data_file import LiveFile
from compaction_pipeline.core.tables.node import TableNode
from compaction_pipeline.core.tables.table import ManifestRef, TableIdentifier


@dataclass(frozen=True, slots=True)
class ManifestChanges:
    """The paths of manifests whose files leave the index, and the manifests that must be read into it."""

    removed: tuple[str, ...]
    added: tuple[ManifestRef, ...]


def manifest_changes(known: frozenset[str], head: Sequence[ManifestRef]) -> ManifestChanges:
    """Return what turns the index of the `known` manifests into the index of `head`.

    Both parts are in a stable order and name each manifest once.
    """
    by_path = {manifest.path: manifest for manifest in head}
    return ManifestChanges(
        removed=tuple(sorted(known - by_path.keys())),
        added=tuple(manifest for path, manifest in by_path.items() if path not in known),
    )


@dataclass(slots=True)
class NodeFiles:
    """The files of one node: those with the node's spec and partition."""

    node: TableNode
    data: list[LiveFile]
    deletes: list[LiveFile]


def files_by_node(files: Iterable[LiveFile]) -> dict[TableNode, NodeFiles]:
    """Group files by node. The nodes come in the order of their first files."""
    nodes: dict[TableNode, NodeFiles] = {}
    # To hash a partition's values costs more than everything else here, and files of one partition mostly share one tuple.
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
    """The live data and delete files of one snapshot, with what a plan needs of the snapshot's metadata.

    All files are of this one snapshot. `unpartitioned_spec_ids` are the partition specs whose equality deletes are global.
    `sort_order_id` is the order by which a FULL sorts; 0 when it does not sort.
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
