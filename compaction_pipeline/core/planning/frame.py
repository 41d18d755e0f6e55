"""Makes a plan of what was judged due. It is the same for every kind of table.

The planner of a kind judges nodes: it decides what is due, and which work that makes (`Judged`). This frame then holds the work back when
the last plan is too recent, cuts it to the budget, names the tasks that it replaces, and gives the reason of the whole plan. Only the kind
knows which open tasks its work replaces, what the table's files are afterwards, and how people speak of its nodes (`Kind`).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Generic, Protocol, TypeVar

from compaction_pipeline.core.fragmentation.clock import is_pausing
from compaction_pipeline.core.fragmentation.triggers import Trigger
from compaction_pipeline.core.fragmentation.verdict import NodeVerdict, PlanReason, PlanReasonCode, weightiest
from compaction_pipeline.core.ids import TaskId
from compaction_pipeline.core.planning.budget import W, limit_in_words, within_budget
from compaction_pipeline.core.planning.cost_cut import cut_by_cost
from compaction_pipeline.core.planning.plan import Budget, Circumstances, CompactionPlan, FilesAfter
from compaction_pipeline.core.tables.node import Place, TableNode
from compaction_pipeline.core.words import moment_text
from compaction_pipeline.core.work.kinds import CompactionType
from compaction_pipeline.core.work.work import Work

_W = TypeVar("_W", bound=Work, contravariant=True)

Verdicts = Mapping[TableNode, NodeVerdict]

EMPTY_TABLE = CompactionPlan.empty(PlanReasonCode.EMPTY_TABLE, "the table has no files")
NONE_ASKED_FOR = PlanReason(PlanReasonCode.NOT_REQUESTED, "none of the requested nodes has files")


@dataclass(frozen=True, slots=True)
class Judged(Generic[W]):
    """What the planner of a kind decided about the nodes of a table, before any limit counts.

    `works` is all work that is due. Works of one group, and those of the FULL of a node, are taken together or not at all. `due` has, for
    each node with due work, those of `works` that its verdict speaks of; there are none where parts of a table were planned and the budget
    left no room for them. `gains` is the gain of each node's work, which decides what goes first.

    A node that waits keeps the text of its verdict, and what it waits for is added. Of the nodes in `kept` only that text is kept. `waits`
    says of nodes which MAJOR is due and must wait, and for what.
    """

    verdicts: Verdicts
    works: Sequence[W]
    due: Mapping[TableNode, Sequence[W]]
    gains: Mapping[TableNode, int]
    kept: Mapping[TableNode, str] = field(default_factory=dict)
    waits: Mapping[TableNode, PlanReason] = field(default_factory=dict)


class Kind(Protocol[_W]):
    """What only a kind of table knows about its plans."""

    def replaced_by(self, work: _W) -> Collection[TaskId]:
        """Return the open tasks that must be canceled when this work is queued."""

    def after(self, planned: Sequence[_W]) -> FilesAfter:
        """Predict the files of the table when all this work is committed."""

    def said_of(self, planned: Sequence[_W], verdicts: Verdicts) -> str:
        """Say what is planned. `planned` is not empty."""

    def why_none(self, code: PlanReasonCode, verdicts: Verdicts) -> str:
        """Say why nothing is planned. `verdicts` are those of the nodes that were asked for, and `code` is the weightiest of them."""


def plan_of(judged: Judged[W], kind: Kind[W], of: Circumstances, budget: Budget) -> CompactionPlan:
    """Return the plan of what was judged. Pure: the same arguments give the same plan."""
    judged = replace(judged, verdicts=_not_ready(judged, of))
    pause = _pause(of)
    due = () if pause is not None else tuple(judged.works)
    judged, below = _cut_by_cost(judged, budget)
    planned = [] if pause is not None else within_budget(judged.works, budget, judged.gains)
    held = dict.fromkeys(_planned(judged.verdicts), pause) if pause is not None else {**_cut_off(judged, planned, budget), **below}
    verdicts = {node: _waiting(verdict, held.get(node), judged.kept.get(node)) for node, verdict in judged.verdicts.items()}
    after = kind.after(planned)
    return CompactionPlan(
        tasks=tuple(planned),
        reason=_reason(verdicts, planned, kind, of),
        verdicts=tuple(verdicts.values()),
        replaces=tuple(sorted({task_id for work in planned for task_id in kind.replaced_by(work)})),
        predicted_files=after.data_files,
        predicted_delete_files=after.delete_files,
        predicted_bytes=after.size_bytes,
        cut=_cut_in_part(judged, planned, budget),
        due=due,
    )


def _cut_by_cost(judged: Judged[W], budget: Budget) -> tuple[Judged[W], Mapping[TableNode, PlanReason]]:
    """Return what is judged without the work that the GB-hours of today do not reach, and why its nodes wait."""
    if budget.cost is None:
        return judged, {}
    works, below = cut_by_cost(judged.works, budget.cost)
    kept = {id(work) for work in works}
    # A node that parts of a table were planned for may have no work left, and waits for the quota.
    due = {node: [work for work in of_node if id(work) in kept] for node, of_node in judged.due.items() if node not in below}
    return replace(judged, works=works, due=due), below


def _pause(of: Circumstances) -> PlanReason | None:
    """Return why the last plan is too recent for another one; None when it is not. A forced request never waits."""
    last, least = of.history.last_planned_at, of.properties.min_plan_interval
    if of.request.force or last is None or not is_pausing(last, of.properties, of.now):
        return None
    # The reason is stored, and is read later. So it names times that stay true.
    planned, again = moment_text(last, of.now), moment_text(last + least, of.now)
    text = f"the table was planned at {planned}; the next plan may come from {again}"
    return PlanReason(PlanReasonCode.MIN_PLAN_INTERVAL, text)


def _not_ready(judged: Judged[W], of: Circumstances) -> Verdicts:
    """Return the verdicts, with those of nodes that would have work if it need not wait. All nodes of a partition wait together."""
    if not (of.waits.not_ready or of.waits.outside or judged.waits):
        return judged.verdicts
    waits: dict[Place, tuple[CompactionType, PlanReason]] = {}
    for node in judged.verdicts:
        full = of.full(node) if not of.request.force else Trigger(False, "")
        if full.waits is not None:
            waits[node.place] = CompactionType.FULL, PlanReason(full.waits, full.text)
        elif node in judged.waits:
            waits.setdefault(node.place, (CompactionType.MAJOR, judged.waits[node]))
    verdicts = dict(judged.verdicts)
    for node, verdict in judged.verdicts.items():
        if node.place in waits and verdict.reason.code in (PlanReasonCode.NOT_FRAGMENTED, PlanReasonCode.NO_GAIN):
            kind, reason = waits[node.place]
            verdicts[node] = replace(verdict, type=kind, reason=reason)
    return verdicts


def _planned(verdicts: Verdicts) -> list[TableNode]:
    return [node for node, verdict in verdicts.items() if verdict.reason.code is PlanReasonCode.PLANNED]


def _cut_off(judged: Judged[W], planned: Sequence[W], budget: Budget) -> Mapping[TableNode, PlanReason]:
    """Return the nodes whose work all exceeded the budget, or did not fit into the queue, with the limit."""
    taken = {id(work) for work in planned}
    limits: dict[TableNode, PlanReason] = {}
    for node, works in judged.due.items():
        if not any(id(work) in taken for work in works):
            code, limit = limit_in_words(budget, planned, works)
            limits[node] = PlanReason(code, f"it waits: {limit}")
    return limits


def _cut_in_part(judged: Judged[W], planned: Sequence[W], budget: Budget) -> frozenset[TableNode]:
    """Return the nodes of which a part is planned, while the queue has no room for the rest."""
    taken = {id(work) for work in planned}
    found = []
    for node, works in judged.due.items():
        rest = [work for work in works if id(work) not in taken]
        if 0 < len(rest) < len(works) and limit_in_words(budget, planned, rest)[0] is PlanReasonCode.QUEUE_FULL:
            found.append(node)
    return frozenset(found)


def _waiting(verdict: NodeVerdict, limit: PlanReason | None, kept: str | None) -> NodeVerdict:
    """Return the verdict of a node after its work was put off. What made the work due stays the beginning of the reason."""
    if limit is None:
        return verdict
    why = verdict.reason.text if kept is None else kept
    return replace(verdict, reason=PlanReason(limit.code, f"{why}; {limit.text}"))


def _reason(verdicts: Verdicts, planned: Sequence[W], kind: Kind[W], of: Circumstances) -> PlanReason:
    """Return the reason of the whole plan: what is planned, or the weightiest reason for planning nothing."""
    if planned:
        return PlanReason(PlanReasonCode.PLANNED, kind.said_of(planned, verdicts))
    asked = {node: verdict for node, verdict in verdicts.items() if verdict.reason.code is not PlanReasonCode.NOT_REQUESTED}
    if not asked:
        return NONE_ASKED_FOR
    if not of.properties.enabled:
        return PlanReason(PlanReasonCode.DISABLED, of.properties.disabled_by)
    # Dangling deletes of several nodes are dropped by one task. When it has to wait, the other nodes still say that it was planned.
    code = weightiest(verdict.reason.code for verdict in asked.values() if verdict.reason.code is not PlanReasonCode.PLANNED)
    return PlanReason(code, kind.why_none(code, asked))
