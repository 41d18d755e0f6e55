"""What a plan is made from, and what it contains. `core.planning.frame` makes it of what the planner of a kind of table judged."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

from compaction_pipeline.core.fragmentation.triggers import Trigger, full_trigger
from compaction_pipeline.core.fragmentation.verdict import NodeHistory, NodeVerdict, PlanReason, PlanReasonCode
from compaction_pipeline.core.ids import TaskId
from compaction_pipeline.core.planning.waits import NOTHING_WAITS, Waits
from compaction_pipeline.core.queue.group import QueueRoom
from compaction_pipeline.core.tables.data_file import LiveFile
from compaction_pipeline.core.tables.node import TableNode
from compaction_pipeline.core.tables.properties import TableProperties
from compaction_pipeline.core.words import count_text
from compaction_pipeline.core.work.kinds import CompactionType
from compaction_pipeline.core.work.prediction import Prediction
from compaction_pipeline.core.work.work import Work


@dataclass(frozen=True, slots=True)
class PlanRequest:
    """What somebody wants to be planned.

    `types` are the allowed types; None allows all that are due. `nodes` are the nodes to plan; None means all. With `force` thresholds
    and intervals are ignored, but work must still gain something. `snapshot_properties` go into the summaries of the snapshots with
    which the plan is committed.
    """

    types: tuple[CompactionType, ...] | None = None
    nodes: frozenset[TableNode] | None = None
    force: bool = False
    snapshot_properties: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Circumstances:
    """What every plan depends on besides the files and the open tasks: the rules of the table, the wish, the past, the time, and what work
    must wait for."""

    properties: TableProperties
    request: PlanRequest
    history: NodeHistory
    now: datetime
    waits: Waits = NOTHING_WAITS

    @property
    def types(self) -> frozenset[CompactionType]:
        """The types that may be planned. A forced request without a type means MINOR and MAJOR: nobody asked to rewrite partitions."""
        if self.request.types is not None:
            return frozenset(self.request.types)
        return frozenset(CompactionType) - ({CompactionType.FULL} if self.request.force else set())

    def full(self, node: TableNode) -> Trigger:
        """Whether a FULL of a node is due by its interval, and may be planned. A forced request asks for no interval."""
        if CompactionType.FULL not in self.types:
            return Trigger(False, "")
        full = full_trigger(node, self.history, self.properties, self.now)
        missing = self.waits.full(node) if full.due else None
        return full if missing is None else Trigger(False, f"{full.text}; {missing.text}", missing.code)

    def major(self, node: TableNode, due: str, files: Iterable[LiveFile]) -> Trigger:
        """Whether a MAJOR of a node that is due, as `due` says, may be planned. `files` are the live files of the node."""
        added_by = frozenset(file.added_snapshot_id for file in files)
        missing = None if self.request.force else self.waits.major(node, added_by, self.history, self.properties, self.now)
        return Trigger(True, due) if missing is None else Trigger(False, f"{due}; {missing.text}", missing.code)


@dataclass(frozen=True, slots=True)
class FilesAfter:
    """How many data files and delete files a whole table has after a plan, and the bytes of both together."""

    data_files: int
    delete_files: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class CostLimit:
    """The GB-hours that the team of a table has left today for new tasks, and the nodes that these reach: no other one is planned.

    `costs` are the predicted GB-hours of the nodes that were compared with those of the team's other tables (`core.planning.cost_cut`).
    """

    team: str
    left: float
    reached: frozenset[TableNode] = frozenset()
    costs: Mapping[TableNode, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Budget:
    """How many tasks, and how many input bytes, a plan may add to the Pending and Executing tasks of its table.

    `room` says how full the queue of the table's group is; None when that does not matter. `team_held` says why the team that pays for the
    table may begin nothing more; None while it may. `cost` says how many GB-hours the plan may take; None when that does not matter.
    """

    task_slots: int
    input_bytes: int
    room: QueueRoom | None = None
    team_held: str | None = None
    cost: CostLimit | None = None

    @property
    def is_used_up(self) -> bool:
        """Whether not even one task may be added."""
        if self.team_held is not None:
            return True
        return self.task_slots <= 0 or self.input_bytes <= 0 or (self.room is not None and not self.room.free)


@dataclass(frozen=True, slots=True)
class CompactionPlan:
    """The tasks of a plan, the reason for them or for having none, a verdict for each node, and a prediction.

    `replaces` are Pending tasks that must be canceled in the transaction that inserts the new tasks. The fields `predicted_*` are the
    data files, the delete files and the bytes of both in the whole table after the plan. `cut` are the nodes of which a part is planned,
    while the queue has no room for the rest. `predictions` has what each task is predicted to write and to cost, in the order of `tasks`;
    it is empty where nobody looked at past attempts. `due` is all work that could begin now if no budget bounded the plan.
    """

    tasks: tuple[Work, ...]
    reason: PlanReason
    verdicts: tuple[NodeVerdict, ...] = ()
    replaces: tuple[TaskId, ...] = ()
    predicted_files: int = 0
    predicted_delete_files: int = 0
    predicted_bytes: int = 0
    cut: frozenset[TableNode] = frozenset()
    predictions: tuple[Prediction, ...] = ()
    due: tuple[Work, ...] = field(default=(), repr=False)

    @property
    def predicted_tasks(self) -> Sequence[tuple[Work, Prediction]]:
        """Each task with what it is predicted to write and to cost. Where nobody looked at past attempts, the plan's own bytes count."""
        return tuple(zip(self.tasks, self.predictions or [Prediction(work.predicted_bytes) for work in self.tasks], strict=True))

    @property
    def lacks_room(self) -> bool:
        """Whether due work waits because the queue is full."""
        return self.reason.code is PlanReasonCode.QUEUE_FULL or bool(self.without_room)

    @property
    def without_room(self) -> frozenset[TableNode]:
        """The nodes of which all work, or a part of it, is due but waits because the queue is full."""
        return self.cut | {verdict.node for verdict in self.verdicts if verdict.reason.code is PlanReasonCode.QUEUE_FULL}

    def files_after(self, request: PlanRequest) -> str:
        """Say how many data files and delete files there are after this plan of `request`.

        It is known only of all tasks together: a delete file goes when no data file needs it any more, and several tasks may apply it.
        """
        # A plan of some nodes may have looked only at these. Then its figures are those of these nodes.
        only = request.nodes is not None and all(verdict.reason.code is not PlanReasonCode.NOT_REQUESTED for verdict in self.verdicts)
        where = " in the nodes asked for" if only else ""
        data, deletes = count_text(self.predicted_files, "data file"), count_text(self.predicted_delete_files, "delete file")
        return f"after it{where}: {data}, {deletes}"

    def judged_again(self, later: CompactionPlan) -> CompactionPlan:
        """This plan with the verdicts of a later one, on the nodes that the later one was asked about."""
        newer = {verdict.node: verdict for verdict in later.verdicts if verdict.reason.code is not PlanReasonCode.NOT_REQUESTED}
        return replace(self, verdicts=tuple(newer.get(verdict.node, verdict) for verdict in self.verdicts))

    @classmethod
    def empty(cls, code: PlanReasonCode, text: str) -> CompactionPlan:
        """A plan without tasks, for this reason."""
        return cls((), PlanReason(code, text))
