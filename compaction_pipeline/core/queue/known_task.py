"""What planning, checks and whoever waits for a task need to know of it: its work, and how far it is. Who holds it is left out."""

from __future__ import annotations

from datetime import datetime
from typing import Protocol

from compaction_pipeline.core.ids import RecordId
from compaction_pipeline.core.queue.task import TaskStatus
from compaction_pipeline.core.work.ends import EndReason
from compaction_pipeline.core.work.merged import MergedWork
from compaction_pipeline.core.work.work import Work


class KnownTask(MergedWork[Work], Protocol):
    """A task of the queue for those who only look at it. The fields mean what they mean in `CompactionTask`."""

    @property
    def queue(self) -> str: ...

    @property
    def status(self) -> TaskStatus: ...

    @property
    def attempt(self) -> int: ...

    @property
    def record_id(self) -> RecordId | None: ...

    @property
    def prepared_at(self) -> datetime | None: ...

    @property
    def ended_at(self) -> datetime | None: ...

    @property
    def end_reason(self) -> EndReason | None: ...

    @property
    def reason(self) -> str | None: ...

    @property
    def is_final(self) -> bool: ...

    @property
    def waits_for_retry(self) -> bool: ...

    @property
    def is_to_be_merged(self) -> bool: ...
