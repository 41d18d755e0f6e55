"""Decides about one node of a plain table: which type of work it is due for, and which of its data files that work takes.

CONTRACT.md in `core/planning/` has the order of the decisions.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from compaction_pipeline.core.fragmentation.triggers import Trigger, minor_trigger
from compaction_pipeline.core.fragmentation.verdict import PlanReason, PlanReasonCode
from compaction_pipeline.core.planning.plain.full import full_bins, keeps_old_spec
from compaction_pipeline.core.planning.plain.major import high_delete_ratios, joins_undersized, major_bins, minor_grows_into_major
from compaction_pipeline.core.planning.plain.minor import minor_bins
from compaction_pipeline.core.planning.plain.node_view import MergeBin, NodeView
from compaction_pipeline.core.planning.plain.part import Part
from compaction_pipeline.core.planning.plan import Circumstances
from compaction_pipeline.core.tables.node import TableNode
from compaction_pipeline.core.words import count_text
from compaction_pipeline.core.work.kinds import CompactionType

_MINOR, _MAJOR, _FULL = CompactionType.MINOR, CompactionType.MAJOR, CompactionType.FULL
_FORCED = "a person asked for this work, so no threshold counts"
"""The reason for work on a node when a forced request names its type."""


@dataclass(slots=True)
class NodeDecision:
    """The decision about one node: the type that is due, the reason, and the chosen bins.

    When `minor_due` is True, data files of the node that no bin takes may be converted. `output_spec_id` is the partition spec to which
    rows move; None when they stay in theirs. `waits` says which MAJOR is due and must wait, and for what; None when none must.
    """

    code: PlanReasonCode
    text: str
    type: CompactionType | None = None
    bins: list[MergeBin] = field(default_factory=list)
    minor_due: bool = False
    output_spec_id: int | None = None
    waits: PlanReason | None = None


class NodePlanner:
    """Decides about the nodes of one part, one by one.

    `busy` are the paths of data files of running tasks, and `pending` those of Pending tasks. On `exclusive` nodes a MAJOR or FULL runs.
    """

    def __init__(
        self, part: Part, of: Circumstances, busy: Collection[str], pending: Collection[str], exclusive: Collection[TableNode]
    ) -> None:
        self._part, self._busy, self._pending, self._exclusive = part, busy, pending, exclusive
        self._request, self._properties, self._history, self._now, self._types = of.request, of.properties, of.history, of.now, of.types
        self._of = of

    def decide(self, view: NodeView) -> NodeDecision:
        """Decide about one node: whether it is left alone, which type is due, and which bins that makes."""
        node, request = view.node, self._request
        if request.nodes is not None and node not in request.nodes:
            return NodeDecision(PlanReasonCode.NOT_REQUESTED, "the request does not name this node")
        if not self._properties.enabled:
            return NodeDecision(PlanReasonCode.DISABLED, self._properties.disabled_by)
        if node in self._exclusive:
            return self._decide_exclusive(view)
        minor, full = self.triggers(view)
        decision = NodeDecision(PlanReasonCode.NOT_FRAGMENTED, minor.text, minor_due=minor.due)
        if full.due:
            self._choose_full(view, decision, full)
        if not decision.bins and _MAJOR in self._types:
            self._choose_major(view, decision, minor)
        if not decision.bins and minor.due:
            bins = minor_bins(view)
            decision.type, decision.text = decision.type or _MINOR, minor.text
            decision.bins = bins
        return decision

    def _decide_exclusive(self, view: NodeView) -> NodeDecision:
        """Leave a node alone while a MAJOR or FULL runs on it. The reason says whether newer files make it due again."""
        held = {*self._busy, *self._pending}
        since = [file for file in view.files.data if file.path not in held]
        due = minor_trigger(view.node, since, (), self._history, self._properties, self._now)
        text = "a MAJOR or FULL runs on it"
        return NodeDecision(PlanReasonCode.FILES_IN_USE, f"{text}; {due.text}" if due.due else text, _MINOR if due.due else None)

    def triggers(self, view: NodeView) -> tuple[Trigger, Trigger]:
        """Return whether a MINOR and a FULL are due. Files of Pending tasks do not count, because an earlier plan decided about them."""
        if self._request.force:
            return Trigger(_MINOR in self._types, _FORCED), Trigger(_FULL in self._types, _FORCED)
        data = [file for file in view.available if file.path not in self._pending] if self._pending else view.available
        minor = minor_trigger(view.node, data, self._part.opened_deletes(view), self._history, self._properties, self._now)
        if _MINOR not in self._types:
            minor = Trigger(False, minor.text)
        return minor, self._of.full(view.node)

    def _choose_full(self, view: NodeView, decision: NodeDecision, full: Trigger) -> None:
        """Put the bins of a FULL into the decision, and move the rows to the current partition spec when they may move."""
        text = full.text
        moves = view.node.spec_id != self._part.files.default_spec_id
        if moves and (stays := keeps_old_spec(self._history, self._properties, self._now)) is not None:
            moves, text = False, f"{full.text}; {stays}"
        bins = full_bins(view, moves)
        decision.type, decision.text, decision.bins = _FULL, text, bins
        if moves:
            decision.output_spec_id = self._part.files.default_spec_id
            if bins:
                decision.text += f"; rows move from partition spec {view.node.spec_id} to {self._part.files.default_spec_id}"

    def _choose_major(self, view: NodeView, decision: NodeDecision, minor: Trigger) -> None:
        """Put the bins of a MAJOR into the decision when a MAJOR is due."""
        forced = self._request.force
        segments = high_delete_ratios(view, forced)
        joins = joins_undersized(view)
        if segments:
            text = f"{count_text(len(segments), 'data file')} with up to {max(segments.values()):.0%} deleted rows"
        elif joins:
            text = f"{len(view.undersized)} undersized data files can be joined"
        elif minor.due and minor_grows_into_major(view, forced):
            text = f"{minor.text}; the merged files would make a MAJOR due at once"
        elif forced:
            text = _FORCED
        else:
            return
        major = self._of.major(view.node, text, (*view.files.data, *view.files.deletes))
        if major.waits is not None:
            decision.waits = PlanReason(major.waits, major.text)
            return
        decision.bins = major_bins(view, forced, alone_too=not (minor.due and self._properties.conversions_enabled))
        if decision.bins or forced:
            decision.type, decision.text = decision.type or _MAJOR, text
            if decision.bins:
                decision.type = _MAJOR
