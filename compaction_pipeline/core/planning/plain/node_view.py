"""One node as the planner sees it: the data files that a plan may take, the deletes that reach them, and how they are packed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from compaction_pipeline.core.fragmentation.metrics import deleted_rows
from compaction_pipeline.core.planning.bin_packing import first_fit_decreasing, nearest_count, output_count
from compaction_pipeline.core.tables.data_file import LiveFile
from compaction_pipeline.core.tables.deletes.reach import DeleteReach
from compaction_pipeline.core.tables.live_files import NodeFiles
from compaction_pipeline.core.tables.node import TableNode
from compaction_pipeline.core.tables.properties import TableProperties
from compaction_pipeline.core.tables.sort_order import UNSORTED


@dataclass(frozen=True, slots=True)
class MergeBin:
    """The data files of one MERGE task, and how many files come out."""

    inputs: tuple[LiveFile, ...]
    outputs: int

    @property
    def input_bytes(self) -> int:
        return sum(file.file_size_bytes for file in self.inputs)

    @property
    def output_bytes(self) -> int:
        """The predicted size of each output. Deleted rows are not subtracted, because their number is only an estimate."""
        return -(-self.input_bytes // self.outputs)


@dataclass(frozen=True)
class NodeView:
    """A node's files, with the figures and properties that decide about them.

    `available` are the data files that a plan may take. `fragments` are the small ones among them; `undersized` are those that are
    larger, but too small to be left alone. `node_bytes` is the size of all data files of the node. `spread` and `table_rows` are as in
    `metrics.deleted_rows`. `sort_order_id` is the order by which a FULL sorts.
    """

    files: NodeFiles
    available: list[LiveFile]
    reach: DeleteReach
    properties: TableProperties
    spread: bool
    table_rows: int
    sort_order_id: int = UNSORTED

    @cached_property
    def node_bytes(self) -> int:
        return sum(file.file_size_bytes for file in self.files.data)

    @cached_property
    def fragments(self) -> list[LiveFile]:
        return [file for file in self.available if self.is_fragment(file)]

    @cached_property
    def undersized(self) -> list[LiveFile]:
        return [file for file in self.available if self.is_undersized(file.file_size_bytes)]

    def with_available(self, available: list[LiveFile]) -> NodeView:
        """Return the same node for a plan that may take only these of its data files."""
        return replace(self, available=available)

    @property
    def node(self) -> TableNode:
        return self.files.node

    def is_fragment(self, file: LiveFile) -> bool:
        """Return whether a data file is a fragment, which means small enough for a MINOR to merge."""
        return file.file_size_bytes <= self.properties.fragment_size_bytes

    def is_undersized(self, size_bytes: int) -> bool:
        """Return whether a data file of this size is undersized: larger than a fragment, but too small to be left alone."""
        return self.properties.fragment_size_bytes < size_bytes <= self.properties.undersized_bytes

    def deleted(self, data: Sequence[LiveFile]) -> dict[str, float]:
        """Return the estimated deleted rows of these data files, by path, as if the node had no other data files."""
        return deleted_rows(self.node, data, self.reach, self.spread, self.table_rows, count_same_sequence=False)

    @cached_property
    def _deleted_of_all(self) -> dict[str, float]:
        return self.deleted(self.files.data)

    def bytes_kept(self, data: Iterable[LiveFile]) -> int:
        """Return the estimated bytes of the rows of these data files that no delete deletes."""
        deleted = self._deleted_of_all
        shares = [(file.file_size_bytes, deleted.get(file.path, 0.0) / max(file.record_count, 1)) for file in data]
        return sum(round(size * (1 - share)) for size, share in shares)

    def loses_deletes(self, data: LiveFile, merged: frozenset[str]) -> bool:
        """Return whether a rewrite frees a data file from a delete, when the data files at the paths `merged` are rewritten too.

        One kind of delete does not count: a partition-scoped position delete with the same sequence number as the data file. A merge's
        output has the sequence number of its plan, so such a delete still seems to reach the output while another data file keeps
        the delete alive. To rewrite the output again would gain nothing.
        """
        if self.reach.any_equality(self.node, data):
            return True
        return any(
            delete.referenced_data_file is not None
            or delete.data_sequence_number > data.data_sequence_number
            or all(other.path in merged for other in self.reach.reached_by_position_delete(delete))
            for delete in self.reach.positions(data)
        )

    def pack(self, sizes: Sequence[int]) -> list[tuple[list[int], int]]:
        """Pack files of these sizes into bins, and return each bin as indexes of `sizes` with its number of outputs.

        Bins without a gain are still among them. A node that fits into one task is one bin. A larger node is packed into bins of the
        target size with one output each; the bins are packed into tasks later. In both cases packing the outputs again gains nothing:
        the choice depends on the node's bytes alone, and any two bins of the target size together hold more than the target. The law
        that a second plan finds nothing depends on this.
        """
        properties = self.properties
        target = properties.target_size_bytes
        if not sizes:
            return []
        if self.node_bytes <= properties.task_size_bytes:
            return [(list(range(len(sizes))), output_count(sum(sizes), target, properties.fragment_size_bytes))]
        return [(indexes, 1) for indexes in first_fit_decreasing(sizes, target)]

    def joins(self, sizes: Sequence[int]) -> bool:
        """Return whether packing files of these sizes lowers their number."""
        return any(outputs < len(indexes) for indexes, outputs in self.pack(sizes))

    def bins(self, pool: Sequence[LiveFile], alone: Callable[[LiveFile], bool], *, splits: bool = False) -> list[MergeBin]:
        """Return the bins of the MERGE tasks for a pool of data files, without bins that gain nothing.

        `alone` says of a file whether its rewrite is a gain even when it saves no file. With `splits`, the rewrite of an oversized file
        that becomes several files is a gain too.
        """
        ordered = sorted(pool, key=lambda file: (-file.file_size_bytes, file.path))
        sizes = [file.file_size_bytes for file in ordered]
        packed = self.pack(sizes)
        smallest = min((sum(sizes[index] for index in indexes) for indexes, _ in packed), default=0)
        kept = [
            (tuple(ordered[index] for index in indexes), outputs)
            for indexes, outputs in packed
            if outputs < len(indexes)
            or any(alone(ordered[index]) or (splits and self._is_split(ordered[index], smallest)) for index in indexes)
        ]
        if self.node_bytes <= self.properties.task_size_bytes:
            return [MergeBin(inputs, outputs) for inputs, outputs in kept]
        return self._tasks([inputs for inputs, _ in kept], smallest)

    def task_parts(self, files: Sequence[LiveFile]) -> list[tuple[LiveFile, ...]]:
        """Return data files that stay, in parts that are each small enough for one task."""
        ordered = sorted(files, key=lambda file: (-file.file_size_bytes, file.path))
        packed = first_fit_decreasing([file.file_size_bytes for file in ordered], self.properties.task_size_bytes)
        return [tuple(ordered[index] for index in indexes) for indexes in packed]

    def _is_split(self, file: LiveFile, smallest_bytes: int) -> bool:
        """Return whether a file is oversized and a rewrite makes several files of it. A file with one row cannot be split."""
        if file.file_size_bytes <= self.properties.oversized_bytes or file.record_count < 2:
            return False
        return self.node_bytes <= self.properties.task_size_bytes or self._pieces(file.file_size_bytes, smallest_bytes) > 1

    def _pieces(self, size_bytes: int, smallest_bytes: int) -> int:
        """Return how many files come out of a bin that is larger than the target, in a node of several tasks."""
        target = self.properties.target_size_bytes
        outputs = nearest_count(size_bytes, target)
        if outputs > 1 and size_bytes // outputs + smallest_bytes <= target:
            # The next plan would join pieces of this size with the smallest bin.
            outputs = max(size_bytes // target, 1)
        return outputs

    def _tasks(self, bins: Sequence[tuple[LiveFile, ...]], smallest_bytes: int) -> list[MergeBin]:
        """Pack the bins of a large node into tasks. A bin that is larger than the target size is a task of its own."""
        target = self.properties.target_size_bytes
        sums = [sum(file.file_size_bytes for file in inputs) for inputs in bins]
        tasks = []
        for inputs, size in zip(bins, sums, strict=True):
            if size > target:
                tasks.append(MergeBin(inputs, self._pieces(size, smallest_bytes)))
        normal = [(inputs, size) for inputs, size in zip(bins, sums, strict=True) if size <= target]
        for group in first_fit_decreasing([size for _, size in normal], self.properties.task_size_bytes):
            together = tuple(file for index in group for file in normal[index][0])
            tasks.append(MergeBin(together, nearest_count(sum(normal[index][1] for index in group), target)))
        return tasks
