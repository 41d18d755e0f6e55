"""Plans the nodes of a keyed table with delta-rewrite: which of them have change files to merge with each other, and when a MAJOR is due.

A MINOR merges small change files with each other until they are small no more. A MAJOR then merges them into the base store: it is due when
the large change files of a node reach the limits that make a MINOR due elsewhere, or when deletes reach enough rows of its base files.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from compaction_pipeline.core.fragmentation.keyed_metrics import bucket_of
from compaction_pipeline.core.fragmentation.triggers import Trigger
from compaction_pipeline.core.fragmentation.verdict import NodeHistory, PlanReason, PlanReasonCode, weightiest
from compaction_pipeline.core.planning.keyed.delta_rewrite import DeltaRewrite, NodeRewrites, plan_delta_rewrites
from compaction_pipeline.core.tables.data_file import LiveFile
from compaction_pipeline.core.tables.keyed.keyed_files import KeyedFiles
from compaction_pipeline.core.tables.keyed.merge_on_read import partitions_to_read
from compaction_pipeline.core.tables.node import TableNode
from compaction_pipeline.core.tables.properties import TableProperties
from compaction_pipeline.core.words import bytes_text, count_text
from compaction_pipeline.core.work.kinds import CompactionType
from compaction_pipeline.core.work.work import RewriteChanges


@dataclass(frozen=True, slots=True)
class NodeAnswer:
    """What is to be merged in one node, and the reason for it or for nothing."""

    reason: PlanReason
    tasks: Sequence[RewriteChanges] = ()

    @property
    def is_due(self) -> bool:
        """Whether there is work that is to be done, now or later."""
        return bool(self.tasks) or self.reason.code is PlanReasonCode.FILES_IN_USE


def plan_node_rewrites(
    files: KeyedFiles,
    held: Collection[str],
    mask: int,
    properties: TableProperties,
    history: NodeHistory,
    now: datetime,
    *,
    force: bool,
) -> dict[TableNode, NodeAnswer]:
    """Plan each node that has change files. A tree node that is deeper than the buckets, whose mask is `mask`, counts in its bucket.

    `held` are the paths of change files that open tasks read. Raises TableRefused as `plan_delta_rewrites` does.
    """
    by_bucket: dict[TableNode, list[NodeRewrites]] = defaultdict(list)
    for found in plan_delta_rewrites(files, held, properties, history, now, mask, force=force):
        by_bucket[_in_bucket(found.node, mask)].append(found)
    return {node: _answer(parts, properties) for node, parts in by_bucket.items()}


def _answer(parts: Sequence[NodeRewrites], properties: TableProperties) -> NodeAnswer:
    """The answer about a bucket, by those about its tree nodes. The weightiest of their reasons is its reason."""
    code = weightiest(part.reason.code for part in parts)
    return NodeAnswer(
        next(part.reason for part in parts if part.reason.code is code),
        [_work(rewrite, properties) for part in parts for rewrite in part.rewrites],
    )


def _work(rewrite: DeltaRewrite, properties: TableProperties) -> RewriteChanges:
    return RewriteChanges(
        node=rewrite.node,
        type=CompactionType.MINOR,
        inputs=rewrite.files,
        output_spec_id=rewrite.node.spec_id,
        target_size_bytes=properties.task_size_bytes,
        fragment_size_bytes=properties.fragment_size_bytes,
        predicted_files=sum(1 for kind in (rewrite.inserts, rewrite.deletes) if kind),
        predicted_bytes=sum(file.file_size_bytes for file in rewrite.files),
    )


def _in_bucket(node: TableNode, mask: int) -> TableNode:
    return TableNode(node.spec_id, node.partition, bucket_of(node.tree, mask))


# ---- when a MAJOR is due ---------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Unmerged:
    """The change files of a node that no MINOR touches, and the rows that deletes may reach."""

    inserts: list[LiveFile] = field(default_factory=list)
    deletes: list[LiveFile] = field(default_factory=list)
    delete_rows: int = 0
    segment_rows: int = 0

    def add(self, kind: str, file: LiveFile, small_bytes: int) -> None:
        """Count a base, insert or delete file."""
        is_large = file.file_size_bytes > small_bytes
        if kind == "deletes":
            self.delete_rows += file.record_count
        if kind == "base":
            self.segment_rows += file.record_count if is_large else 0
        elif is_large:
            (self.inserts if kind == "inserts" else self.deletes).append(file)


def major_triggers(files: KeyedFiles, mask: int, properties: TableProperties) -> dict[TableNode, Trigger]:
    """Decide for each node whether a MAJOR is due. Raises TableRefused as `partitions_to_read` does."""
    nodes: dict[TableNode, _Unmerged] = defaultdict(_Unmerged)
    for read in partitions_to_read(files.base, files.changes, files.sequences):
        for kind in ("base", "inserts", "deletes"):
            for each in getattr(read, kind):
                node = TableNode(read.spec_id, read.partition, bucket_of(each.named.node, mask))
                nodes[node].add(kind, each.file, properties.fragment_size_bytes)
    return {node: _major(found, properties) for node, found in nodes.items()}


def _major(found: _Unmerged, properties: TableProperties) -> Trigger:
    for word, large in (("insert", found.inserts), ("delete", found.deletes)):
        size = sum(file.file_size_bytes for file in large)
        if len(large) >= properties.minor_file_count:
            return Trigger(True, f"{count_text(len(large), f'large {word} file')}, and {properties.minor_file_count} make a MAJOR due")
        if size >= properties.minor_total_size_bytes:
            most = bytes_text(properties.minor_total_size_bytes)
            return Trigger(True, f"{bytes_text(size)} in {count_text(len(large), f'large {word} file')}, and {most} make a MAJOR due")
    if found.segment_rows and found.delete_rows >= properties.major_duplicate_ratio * found.segment_rows:
        share = f"{found.delete_rows} deletes for {found.segment_rows} rows of its large base files"
        return Trigger(True, f"{share}, and a share of {properties.major_duplicate_ratio:g} makes a MAJOR due")
    return Trigger(False, "")
