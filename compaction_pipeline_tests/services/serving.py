"""How a run of Dagster compacts: it serves every queue."""

from __future__ import annotations

from typing import Any

from compaction_pipeline.core.queue.drain import Beside
from compaction_pipeline.services.compaction.rounds import How


def serving(**named: Any) -> How:
    """What a run asks for that serves every queue, with these fields of `How`."""
    return How(Beside.EVERY_QUEUE, **named)
