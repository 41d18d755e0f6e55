"""What a plan takes from the stored state of a table and of its nodes, and what it leaves out of its decisions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from compaction_pipeline.core.errors import CompactionError
from compaction_pipeline.core.fragmentation.verdict import NodeHistory, NodeState, NodeVerdict, PlanReason, PlanReasonCode
from compaction_pipeline.core.planning.plan import CompactionPlan
from compaction_pipeline.core.planning.ports import TableState
from compaction_pipeline.core.queue.task import CompactionTask, EndReason
from compaction_pipeline.core.tables.data_file import LiveFile
from compaction_pipeline.core.tables.live_files import TableFiles
from compaction_pipeline.core.tables.node import TableNode
from compaction_pipeline.core.tables.properties import TableProperties, resolve_properties
from compaction_pipeline.core.tables.sort_order import order_of_full
from compaction_pipeline.core.words import count_text

_WAITING = (
    PlanReasonCode.MIN_PLAN_INTERVAL,
    PlanReasonCode.OVER_BUDGET,
    PlanReasonCode.FILES_IN_USE,
    PlanReasonCode.PLANNED,
    PlanReasonCode.FAILING,
)


def what_waits(nodes: Sequence[NodeState]) -> PlanReason | None:
    """What the nodes' own verdicts say of those that are due and not done, in one sentence; None when there are none."""
    reasons = [(node.node, node.verdict.reason) for node in nodes if node.verdict is not None]
    for code in _WAITING:
        held = [(node, reason) for node, reason in reasons if reason.code is code]
        if held:
            node, reason = held[0]
            # What was planned has its tasks by now.
            told = PlanReasonCode.FILES_IN_USE if code is PlanReasonCode.PLANNED else code
            return PlanReason(told, f"{count_text(len(held), 'node')} held back; {node}: {reason.text}")
    return None


def properties_or_defaults(state: TableState, of_catalog: Mapping[str, str]) -> TableProperties:
    """The properties in force; the defaults for a table that has one out of bounds: its plan says what is wrong, and the table shows it."""
    try:
        return resolve_properties(state.layout.properties if state.layout is not None else {}, of_catalog)
    except CompactionError:
        return TableProperties()


def how_failed(task: CompactionTask) -> str:
    """How the last task of a node failed, in words."""
    if task.end_reason is EndReason.REFUSED:
        return "was refused, and no further attempt can merge it as it is"
    return f"failed {task.attempt} time(s)"


def failing_text(verdict: NodeVerdict) -> str | None:
    """Why a node is left alone after failures; None when it is not."""
    return verdict.reason.text if verdict.reason.code is PlanReasonCode.FAILING else None


def same_index(before: TableState, after: TableState) -> bool:
    """Whether two looks at a table's state show the same index, and it is whole."""
    return (
        after.complete
        and before.known_snapshot_id == after.known_snapshot_id
        and before.refreshed_at == after.refreshed_at
        and before.table_uuid == after.table_uuid
    )


def table_files(state: TableState, files: Sequence[LiveFile]) -> TableFiles:
    """The files as the planner takes them, with what the state says of the table's snapshot."""
    assert state.layout is not None
    assert state.known_snapshot_id is not None
    assert state.table_uuid is not None
    return TableFiles(
        state.table,
        state.table_uuid,
        state.known_snapshot_id,
        state.known_sequence_number,
        state.layout.format_version,
        state.layout.schema_id,
        state.layout.default_spec_id,
        state.layout.unpartitioned_spec_ids,
        tuple(files),
        order_of_full(state.layout),
    )


def node_history(state: TableState, nodes: Sequence[NodeState]) -> NodeHistory:
    """When work was last done on these nodes, and when they were first seen."""
    return NodeHistory(
        last_done={(node.node, kind): at for node in nodes for kind, at in node.last_done.items()},
        first_seen={node.node: node.first_seen for node in nodes if node.first_seen is not None},
        last_planned_at=state.last_planned_at,
        last_old_spec_delete_at=state.last_old_spec_delete_at,
    )


def empty_plan(code: PlanReasonCode, text: str) -> CompactionPlan:
    """A plan without tasks, for this reason."""
    return CompactionPlan((), PlanReason(code, text))


def without_failing(decided: CompactionPlan, failing: Mapping[TableNode, PlanReason]) -> CompactionPlan:
    """The plan less the nodes that keep failing; whole groups go, as a conversion needs all of its tasks."""
    groups = {task.group for task in decided.tasks if task.group and task.node in failing}
    kept = tuple(task for task in decided.tasks if task.node not in failing and task.group not in groups)
    verdicts = tuple(
        replace(verdict, type=None, reason=failing[verdict.node]) if verdict.node in failing else verdict for verdict in decided.verdicts
    )
    reason = decided.reason
    if decided.tasks and not kept:
        reason = next(iter(failing.values()))
    return replace(decided, tasks=kept, verdicts=verdicts, reason=reason)
