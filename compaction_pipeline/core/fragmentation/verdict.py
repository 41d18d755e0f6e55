"""The values of what `core/planning/` decides about a node, and what the program remembers about a node from plan to plan."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import Enum

from compaction_pipeline.core.tables.figures import NodeMetrics
from compaction_pipeline.core.tables.node import TableNode
from compaction_pipeline.core.tables.table import TableIdentifier
from compaction_pipeline.core.work.kinds import CompactionType


@dataclass(frozen=True, slots=True)
class NodeHistory:
    """When things last happened to the nodes of a table.

    `last_done` is when work of a type was last committed on a node, by (node, type). `first_seen` is when a node was first seen; an
    interval counts from there when no work was done yet. `last_planned_at` is the time of the table's last plan that made tasks.
    `last_old_spec_delete_at` is when a delete of an old partition spec was last committed (`last_old_spec_delete` in
    `core/tables/index.py` also counts a change of the spec as one). `held_since` is since when work of a node has been NOT_READY.
    """

    last_done: Mapping[tuple[TableNode, CompactionType], datetime] = field(default_factory=dict)
    first_seen: Mapping[TableNode, datetime] = field(default_factory=dict)
    last_planned_at: datetime | None = None
    last_old_spec_delete_at: datetime | None = None
    held_since: Mapping[TableNode, datetime] = field(default_factory=dict)


class PlanReasonCode(str, Enum):
    """Why a plan has tasks or none, or why a node has work or none. `docs/operations.md` says what to do about each."""

    PLANNED = "PLANNED"
    """Work is due, and tasks were planned."""
    NOT_FRAGMENTED = "NOT_FRAGMENTED"
    """No trigger is due."""
    NO_GAIN = "NO_GAIN"
    """A trigger is due, but the work would leave as many files and deletes as before."""
    LIVE_TWICE = "LIVE_TWICE"
    """Work is due, but a file is live more than once, and a rewrite could not tell the copies apart."""
    MIN_PLAN_INTERVAL = "MIN_PLAN_INTERVAL"
    """The last plan that made tasks on the table is younger than `self-optimizing.min-plan-interval`."""
    FILES_IN_USE = "FILES_IN_USE"
    """Other tasks, or another process, hold the files."""
    OVER_BUDGET = "OVER_BUDGET"
    """Work is due, but the table's quota, or the limit on the bytes of its tasks, allows no more tasks now."""
    OVER_TEAM_BUDGET = "OVER_TEAM_BUDGET"
    """Work is due, but the team that pays for the table has reached a limit."""
    BELOW_BUDGET_CUT = "BELOW_BUDGET_CUT"
    """Work is due, but other nodes gain more for the GB-hours that the team has left today."""
    QUEUE_FULL = "QUEUE_FULL"
    """Work is due, but the queue of the table's group has no room for it."""
    NOT_REQUESTED = "NOT_REQUESTED"
    """The request names other nodes."""
    EMPTY_TABLE = "EMPTY_TABLE"
    """The table has no files."""
    DISABLED = "DISABLED"
    """A switch of the table is off: `self-optimizing.enabled`, or `compaction.enabled`. Or `self-optimizing.filter` leaves the node out, or
    a policy of the catalog forbids to compact."""
    PAUSED = "PAUSED"
    """A person paused the table, or all tables."""
    OBSERVED = "OBSERVED"
    """The table's catalog is only observed."""
    REFUSED = "REFUSED"
    """The program does not support this table or its files."""
    INVALID_PROPERTY = "INVALID_PROPERTY"
    """A property breaks its rule."""
    GROUP_MISSING = "GROUP_MISSING"
    """The resource group that the table names does not exist."""
    NO_ACCESS = "NO_ACCESS"
    """The storage or the catalog denies access."""
    BEING_READ = "BEING_READ"
    """The files are not completely read yet, or they changed while they were read."""
    FAILING = "FAILING"
    """Tasks of the node used up their attempts a short time ago."""
    NOT_READY = "NOT_READY"
    """A FULL is due and waits until its partition is ready, or a MAJOR waits until nobody writes to it any more."""
    OUTSIDE_WINDOW = "OUTSIDE_WINDOW"
    """A FULL or a MAJOR is due and waits for its window."""


ORDER = (
    PlanReasonCode.PLANNED,
    PlanReasonCode.MIN_PLAN_INTERVAL,
    PlanReasonCode.OVER_TEAM_BUDGET,
    PlanReasonCode.QUEUE_FULL,
    PlanReasonCode.OVER_BUDGET,
    PlanReasonCode.BELOW_BUDGET_CUT,
    PlanReasonCode.FILES_IN_USE,
    PlanReasonCode.FAILING,
    PlanReasonCode.NOT_READY,
    PlanReasonCode.OUTSIDE_WINDOW,
    PlanReasonCode.REFUSED,
    PlanReasonCode.LIVE_TWICE,
    PlanReasonCode.NO_GAIN,
    PlanReasonCode.NOT_FRAGMENTED,
)
"""The reasons of nodes, the weightiest first. The first of them that some node has is the reason of them all: of the nodes that are judged
together, and of the table. What holds back work of the whole table comes before what holds back a node."""


def weightiest(codes: Iterable[PlanReasonCode]) -> PlanReasonCode:
    """Return the first of these codes in `ORDER`. Raises ValueError when there is none, or one that no node can have."""
    return min(codes, key=ORDER.index)


NOT_ADMITTED = frozenset(
    {
        PlanReasonCode.REFUSED,
        PlanReasonCode.PAUSED,
        PlanReasonCode.OBSERVED,
        PlanReasonCode.DISABLED,
        PlanReasonCode.INVALID_PROPERTY,
        PlanReasonCode.GROUP_MISSING,
        PlanReasonCode.NO_ACCESS,
    }
)
"""With these reasons nobody looked at the table's files, and a person who asked for work on the table must do something first."""

NOTHING_TO_DO = frozenset({PlanReasonCode.NOT_FRAGMENTED, PlanReasonCode.NO_GAIN, PlanReasonCode.EMPTY_TABLE})
"""Reasons which say that no work is left; the others say why work is not done."""
_NOT_DUE = NOTHING_TO_DO | {PlanReasonCode.LIVE_TWICE, PlanReasonCode.NOT_REQUESTED}


@dataclass(frozen=True, slots=True)
class PlanReason:
    """A code for programs, and a text with numbers for people."""

    code: PlanReasonCode
    text: str


@dataclass(frozen=True, slots=True)
class NodeVerdict:
    """What a plan decided about one node, and why. `type` is the type that is due or planned; None when none is.

    `since` is when a plan first found the work that is due now; None when none is. `held_since` is since when work of the node has been
    NOT_READY or OUTSIDE_WINDOW, also while other work on it goes on. The plan itself leaves both out, and `since_first_due` adds them
    before the verdict is stored.
    """

    node: TableNode
    type: CompactionType | None
    reason: PlanReason
    metrics: NodeMetrics
    since: datetime | None = None
    held_since: datetime | None = None

    @property
    def is_due(self) -> bool:
        """Whether work on the node would gain something, even if something holds it back."""
        # FILES_IN_USE without a type says that tasks hold the node's files, and FAILING that they failed.
        in_work = self.reason.code in (PlanReasonCode.FILES_IN_USE, PlanReasonCode.FAILING)
        return in_work or (self.type is not None and self.reason.code not in _NOT_DUE)

    @property
    def failing(self) -> str | None:
        """Why the node is left alone after failures; None when it is not."""
        return self.reason.text if self.reason.code is PlanReasonCode.FAILING else None


def since_first_due(verdict: NodeVerdict, before: NodeState, now: datetime) -> NodeVerdict:
    """Return the verdict with `since` filled in, when its work is due, and with `held_since`. `before` is the stored state of the node.

    The time is that of the stored verdict. It is `now` when that verdict had none, or when work was committed after it.
    """
    verdict = replace(verdict, held_since=_held_since(verdict, before, now))
    if not verdict.is_due:
        return verdict
    since = before.verdict.since if before.verdict is not None else None
    if since is None or (before.last_work is not None and before.last_work > since):
        since = now
    return replace(verdict, since=since)


def _held_since(verdict: NodeVerdict, before: NodeState, now: datetime) -> datetime | None:
    """A MINOR changes nothing about it: it may go on while a MAJOR waits, again and again."""
    since = before.verdict.held_since if before.verdict is not None else None
    # A MAJOR that may not wait for ever for its writers also waits while its window is closed.
    if verdict.reason.code in (PlanReasonCode.NOT_READY, PlanReasonCode.OUTSIDE_WINDOW):
        return now if since is None else since
    goes_on = verdict.is_due and verdict.type not in (CompactionType.MAJOR, CompactionType.FULL)
    return since if goes_on else None


@dataclass(frozen=True, slots=True)
class NodeState:
    """What is stored about a node.

    `key` is the key that the node was given (`NodeKeyStore`). A refresh writes `metrics`, `first_seen`, `changed_snapshot_id`,
    `overlap_depth` (as in `MeasuredNode`) and `small_since`: the time since when the node has had enough small files for a MINOR, by the
    table's own history (None while it has not). A plan writes `verdict` and `failing`, the reason why the node's last task failed (None
    when it did not). A commit writes `last_done`, by type.
    """

    table: TableIdentifier
    node: TableNode
    key: str
    metrics: NodeMetrics
    verdict: NodeVerdict | None = None
    first_seen: datetime | None = None
    last_done: Mapping[CompactionType, datetime] = field(default_factory=dict)
    changed_snapshot_id: int | None = None
    failing: str | None = None
    small_since: datetime | None = None
    overlap_depth: int | None = None

    @property
    def last_work(self) -> datetime | None:
        """When work of any type was last committed on the node."""
        return max(self.last_done.values(), default=None)


def history_of(nodes: Sequence[NodeState], last_planned_at: datetime | None, last_old_spec_delete_at: datetime | None) -> NodeHistory:
    """Return what is remembered of these nodes, and of their table."""
    return NodeHistory(
        last_done={(node.node, kind): at for node in nodes for kind, at in node.last_done.items()},
        first_seen={node.node: node.first_seen for node in nodes if node.first_seen is not None},
        last_planned_at=last_planned_at,
        last_old_spec_delete_at=last_old_spec_delete_at,
        held_since={node.node: since for node in nodes if node.verdict is not None and (since := node.verdict.held_since) is not None},
    )
