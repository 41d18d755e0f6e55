"""What the sensors say of the status: why no run was asked for."""

from __future__ import annotations

from compaction_pipeline.core.insight.open_tasks import open_tasks_text
from compaction_pipeline.core.words import count_text
from compaction_pipeline.services.insight.read_status import Status


def why_no_run(status: Status, serving: str | None, *, by_optimizers: bool = False) -> str:
    """Say with numbers why nothing has to be started now.

    `serving` is the id of the run that serves the queue, if there is one. `by_optimizers` is True when optimizers take all tasks that wait.
    """
    queue = status.queue
    if queue.open:
        served = f"run {serving[:8]} serves the queue" if serving else "no run serves the queue yet"
        served = "optimizers serve the queue" if by_optimizers else served
        return "; ".join([open_tasks_text(queue.open_tasks), *([served] if queue.pending else [])])
    if not status.tables:
        return "no registered catalog has a table"
    return "; ".join(
        [
            f"nothing is due on {count_text(len(status.tables), 'table')} with {count_text(status.nodes, 'node')}",
            *_worst_node(status),
            *_held_back(status),
        ]
    )


def _worst_node(status: Status) -> list[str]:
    if not status.worst:
        return []
    worst = status.worst[0]
    return [
        f"worst {worst.table} {worst.node}: {worst.metrics.small_files} small of {count_text(worst.metrics.files, 'file')}, {worst.reason}"
    ]


def _held_back(status: Status) -> list[str]:
    held = [table for table in status.tables if table.is_held_back]
    return [f"{count_text(len(held), 'table')} held back, e.g. {held[0].table}: {held[0].reason}"] if held else []
