"""Chooses the files that a plan of a table reads. It reads them in parts, so that a million files need not be in memory at once."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from compaction_pipeline.core.fragmentation.verdict import NodeState
from compaction_pipeline.core.planning.admission import Admitted
from compaction_pipeline.core.planning.plain.planner import Planning
from compaction_pipeline.core.tables.live_files import TableFiles
from compaction_pipeline.core.tables.node import TableNode
from compaction_pipeline.core.tables.ports.files import FileStore
from compaction_pipeline.core.tables.table import TableIdentifier, TableLayout

PART_FILES = 50_000
"""At most this many files are in memory while a table is planned. A node with more files is a part of its own."""
FEW_NODES = 500
"""Up to this many nodes are looked up one by one. For more nodes the whole table is read through, which costs less."""

Part = tuple[TableFiles, Collection[TableNode] | None]
"""Files, and the nodes that a plan decides from them. None means every node that holds one of the files."""


class TableParts:
    """Reads the index of files for a plan."""

    def __init__(self, files: FileStore) -> None:
        self._files = files

    def parts(
        self,
        table: TableIdentifier,
        admitted: Admitted,
        nodes: Sequence[NodeState],
        worked: Collection[TableNode],
        planning: Planning,
        *,
        force: bool,
    ) -> Iterator[Part]:
        """The files of these nodes, in parts that fit in memory.

        Most nodes need no files: `planning` decides them by sums over their files, except with `force`. `worked` are the nodes of open
        tasks, whose files are always read.
        """
        read = admitted.read
        if self._files.has_global_deletes(table, read.loaded.layout.unpartitioned_spec_ids):
            # Whether such a delete may be dropped depends on the data files of every node.
            yield read.files_of(table, self._files.files(table)), None
            return
        part: list[TableNode] = []
        held = 0
        for node in nodes if force else self._not_decided_by_figures(table, admitted, nodes, worked, planning):
            if part and held + node.metrics.files > PART_FILES:
                yield read.files_of(table, self._files.files(table, part)), frozenset(part)
                part, held = [], 0
            part.append(node.node)
            held += node.metrics.files
        if part:
            yield read.files_of(table, self._files.files(table, part)), frozenset(part)

    def reached_from_elsewhere(self, table: TableIdentifier, layout: TableLayout) -> bool:
        """Return whether deletes of an unpartitioned spec reach nodes of other specs. For a table with one spec this costs no query."""
        unpartitioned = layout.unpartitioned_spec_ids
        return len(layout.specs) > 1 and bool(unpartitioned) and self._files.has_global_deletes(table, unpartitioned)

    def _not_decided_by_figures(
        self,
        table: TableIdentifier,
        admitted: Admitted,
        nodes: Sequence[NodeState],
        worked: Collection[TableNode],
        planning: Planning,
    ) -> Sequence[NodeState]:
        """The nodes whose files must be read. The others have been decided in `planning`."""
        some = [node.node for node in nodes] if len(nodes) <= FEW_NODES else None
        properties = admitted.properties
        figures = self._files.figures(table, properties.fragment_size_bytes, properties.undersized_bytes, some)
        by_files = {*worked, *self._files.named_from_elsewhere(table, some)}
        return [
            node
            for node in nodes
            if node.node in by_files
            or (sums := figures.get(node.node)) is None
            or sums.max_sequence_number > admitted.read.sequence_number
            or not planning.add_by_figures(node.node, sums)
        ]
