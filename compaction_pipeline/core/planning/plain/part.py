"""One part of a plain table: the files of some nodes, and what is computed from them once, whatever is decided about them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence

from compaction_pipeline.core.fragmentation.metrics import node_metrics
from compaction_pipeline.core.planning.plain.node_view import NodeView
from compaction_pipeline.core.tables.data_file import LiveFile
from compaction_pipeline.core.tables.deletes.reach import DeleteReach
from compaction_pipeline.core.tables.figures import NodeMetrics
from compaction_pipeline.core.tables.live_files import NodeFiles, TableFiles, files_by_node
from compaction_pipeline.core.tables.node import TableNode
from compaction_pipeline.core.tables.properties import TableProperties


class Part:
    """A part of a table. `decided` are the nodes to decide: those in `wanted`, or all nodes of the part when that is None.

    `duplicates` and `duplicate_deletes` are the paths of data files and of delete files that are live more than once, with the manifests
    that list them. `under_duplicates` are the paths of data files that such a delete file reaches. `table_rows` and `spread` are as in
    `metrics.deleted_rows`.
    """

    def __init__(self, files: TableFiles, properties: TableProperties, wanted: Collection[TableNode] | None) -> None:
        self.files, self.properties = files, properties
        self.nodes = files_by_node(files.files)
        self.reach = DeleteReach(self.nodes, files.unpartitioned_spec_ids)
        self.duplicates = _duplicates(file for file in files.files if file.is_data)
        self.duplicate_deletes = _duplicates(file for file in files.files if not file.is_data)
        # A commit rejects a task that applied a delete file which is live twice. The data files under such a delete are not planned,
        # because the same plan would be made and rejected again for ever.
        self.under_duplicates = frozenset(
            file.path
            for node, group in (self.nodes.items() if self.duplicate_deletes else ())
            for file in group.data
            if any(delete.path in self.duplicate_deletes for delete in self.reach.of_all(node, [file]))
        )
        self._apart = self.duplicates.keys() | self.under_duplicates
        self.table_rows = sum(file.record_count for group in self.nodes.values() for file in group.data)
        self.spread = sum(1 for group in self.nodes.values() if group.data) > 1
        self.metrics: Mapping[TableNode, NodeMetrics] = {
            node: node_metrics(group, self.reach, self.properties, self.spread, self.table_rows) for node, group in self.nodes.items()
        }
        self.decided = {node: group for node, group in self.nodes.items() if wanted is None or node in wanted}

    def view(self, group: NodeFiles, blocked: Collection[str]) -> NodeView:
        """Return a node of which a plan must not take the data files at the paths `blocked`, nor those that nobody can tell apart."""
        available = [file for file in group.data if file.path not in blocked and file.path not in self._apart]
        return NodeView(group, available, self.reach, self.properties, self.spread, self.table_rows, sort_order_id=self.files.sort_order_id)

    def opened_deletes(self, view: NodeView) -> Sequence[LiveFile]:
        """Return the delete files that a reader of the node opens: its own, and global ones of other nodes that reach its data files."""
        if not self.reach.everywhere.deletes or not view.files.data:
            return view.files.deletes
        oldest = min(view.files.data, key=lambda file: file.data_sequence_number)
        foreign = [file for file in self.reach.everywhere.of(oldest) if file.node != view.node]
        return [*view.files.deletes, *foreign]


def _duplicates(of: Iterable[LiveFile]) -> Mapping[str, Mapping[str, int]]:
    """Return the paths of files that are live more than once, and for each path how often each manifest lists it."""
    files = list(of)
    paths = [file.path for file in files]
    if len(set(paths)) == len(paths):
        return {}
    duplicates: dict[str, dict[str, int]] = {path: {} for path, count in Counter(paths).items() if count > 1}
    for file in files:
        if file.path in duplicates:
            manifests = duplicates[file.path]
            manifests[file.manifest_path] = manifests.get(file.manifest_path, 0) + 1
    return duplicates
