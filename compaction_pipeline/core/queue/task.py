"""A CompactionTask: a row of the queue. It holds the work that is handed to Spark, and says who does it and how far it is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum

from compaction_pipeline.core.capacity.ledger import Used
from compaction_pipeline.core.ids import AttemptId, RecordId, TaskId
from compaction_pipeline.core.tables.table import TableIdentifier, TableLayout
from compaction_pipeline.core.work.ends import EndReason
from compaction_pipeline.core.work.merge_input import MergeInput
from compaction_pipeline.core.work.prediction import Prediction
from compaction_pipeline.core.work.result import MergeResult
from compaction_pipeline.core.work.work import Work


class TaskStatus(str, Enum):
    """The states of a task. `core.queue.transitions` says which may follow which.

    INIT exists only inside the transaction that inserts a plan. COMMITTED and CANCELED are final. FAILED is final unless the task has a
    `retry_at`.
    """

    INIT = "INIT"
    PENDING = "PENDING"
    EXECUTING = "EXECUTING"
    PREPARED = "PREPARED"
    COMMITTED = "COMMITTED"
    FAILED = "FAILED"
    CANCELED = "CANCELED"


@dataclass(frozen=True, slots=True)
class CompactionTask:
    """A planned task and its state.

    `snapshot_id`, `sequence_number` and `schema_id` are those of the one snapshot that the plan was made from. A merged file gets this
    sequence number as its data sequence number. (For a REWRITE_CHANGES task `schema_id` is that of the change store, and a merged file gets
    the highest sequence number of the task's inputs.) `attempt` is the number of the last attempt, from 1; it is 0 before the first.
    `owner` holds the current attempt until `lease_expires_at`. `end_reason` and `reason` say why the task, or its last attempt, ended.
    `failures` and `losses` count ends of attempts, as `core.queue.attempts` says. `waiting_since` is when the task began to wait for a
    worker; None means `created_at`. `started_at` and `failed_at` are those of the last attempt that began and of the last one that failed.
    A FAILED task with a `retry_at` waits: it is tried again from that time on. `ended_at` is set once the task has ended.
    `result` is that of the attempt that merged the task. `record_id` is the record of the commit that claimed the task.
    `snapshot_properties` go into the summaries of the snapshots with which the task is committed, whoever commits it. `prediction` is what
    its plan predicted of it.
    """

    task_id: TaskId
    plan_id: str
    table: TableIdentifier
    table_uuid: str
    snapshot_id: int
    sequence_number: int
    schema_id: int
    queue: str
    priority: int
    max_attempts: int
    memory_bytes: int
    created_at: datetime
    # The stored and sent JSON names its kind as `action`.
    work: Work = field(metadata={"discriminator": "action"})
    status: TaskStatus = TaskStatus.PENDING
    attempt: int = 0
    attempt_id: AttemptId | None = None
    owner: str | None = None
    lease_expires_at: datetime | None = None
    started_at: datetime | None = None
    ended_at: datetime | None = None
    end_reason: EndReason | None = None
    reason: str | None = None
    result: MergeResult | None = None
    record_id: RecordId | None = None
    snapshot_properties: Mapping[str, str] = field(default_factory=dict)
    prediction: Prediction = field(default_factory=Prediction)
    failures: int = 0
    losses: int = 0
    waiting_since: datetime | None = None
    failed_at: datetime | None = None
    retry_at: datetime | None = None
    prepared_at: datetime | None = None
    committed_at: datetime | None = None

    @property
    def times(self) -> Mapping[str, datetime | None]:
        """The times of the task's life by name, in the order in which they mostly come. A time that has not come is None."""
        return {
            "created_at": self.created_at,
            "waiting_since": self.waiting_since or self.created_at,
            "started_at": self.started_at,
            "failed_at": self.failed_at,
            "retry_at": self.retry_at,
            "prepared_at": self.prepared_at,
            "committed_at": self.committed_at,
            "ended_at": self.ended_at,
        }

    @property
    def is_final(self) -> bool:
        """Whether the task has ended and never changes again."""
        if self.status is TaskStatus.FAILED:
            return self.retry_at is None
        return self.status in (TaskStatus.COMMITTED, TaskStatus.CANCELED)

    @property
    def waits_for_retry(self) -> bool:
        """Whether the last attempt failed and the task waits to be tried again. It still holds its files."""
        return self.status is TaskStatus.FAILED and self.retry_at is not None

    @property
    def is_to_be_merged(self) -> bool:
        """Whether the task waits for a worker, is being merged, or waits to be tried again."""
        return self.status in (TaskStatus.PENDING, TaskStatus.EXECUTING) or self.waits_for_retry

    def merge_input(self, layout: TableLayout) -> MergeInput[Work]:
        """What the present attempt merges. `layout` is that of the task's table."""
        return MergeInput(self.task_id, self.current_attempt_id, self.work, layout, self.schema_id, self.memory_bytes)

    @property
    def current_attempt_id(self) -> AttemptId:
        """The id of the attempt that holds the task; "" when none does."""
        return self.attempt_id or AttemptId("")


@dataclass(frozen=True, slots=True)
class TaskAttempt:
    """One try of a task: who held it, and why it ended.

    `claimed` is the end that its optimizer reported, when nobody else had seen it and the attempt therefore counts as FAILED.
    `application` is the id of the Spark application that it ran in, as its worker says; "" when none is known. `used` is what it was
    charged for; while it runs, what its worker told last. It is None when nothing is known.
    """

    attempt_id: AttemptId
    task_id: TaskId
    number: int
    owner: str
    started_at: datetime
    ended_at: datetime | None = None
    end_reason: EndReason | None = None
    reason: str | None = None
    claimed: EndReason | None = None
    application: str = ""
    used: Used | None = None
