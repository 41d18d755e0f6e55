"""The pictures at the top of the page of `table_health`, as metadata of Dagster.

Pure: it translates values of the core into the pictures of `defs/pictures.py`. Dagster shows Markdown of fewer than 1,000
characters at once, so each picture is an entry of its own. The entry `pictures` has all of them again, large and with every detail,
behind a button.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

import dagster as dg

from compaction_pipeline.core.fragmentation.health import HealthStatus
from compaction_pipeline.core.fragmentation.health_score import ALL_POINTS
from compaction_pipeline.core.insight.files_over_time import FilesPoint
from compaction_pipeline.core.insight.overview import TableOverview, worst_first, worst_score_first
from compaction_pipeline.core.words import bytes_text, count_text, duration_text
from compaction_pipeline.core.work.merged import MergedWork
from compaction_pipeline.core.work.work import Work
from compaction_pipeline.defs.markdown import LINE, fitting, plain, wrapped
from compaction_pipeline.defs.metadata import clipped
from compaction_pipeline.defs.pictures import TableBar, files_over_time, running_now, worst_tables
from compaction_pipeline.defs.svg import clipped_middle
from compaction_pipeline.services.insight.read_status import Status


def picture_metadata(status: Status, history: Sequence[FilesPoint]) -> dict[str, dg.MetadataValue]:
    """The pictures of `table_health`. `history` are the points up to now, oldest first."""
    return {
        **{name: dg.MetadataValue.md(text) for name, text in _pictures(status, history, whole=False).items()},
        "worst_now": dg.MetadataValue.md(_worst_in_words(status)),
        "tables_now": dg.MetadataValue.md(_tables_in_words(status)),
        "scores_now": dg.MetadataValue.md(_scores_in_words(status)),
    }


def large_pictures(status: Status, history: Sequence[FilesPoint]) -> dict[str, dg.MetadataValue]:
    """All pictures again, large and with every detail. Dagster shows them behind a button."""
    return {"pictures": dg.MetadataValue.md("\n\n".join(_pictures(status, history, whole=True).values()))}


def _pictures(status: Status, history: Sequence[FilesPoint], whole: bool) -> dict[str, str]:
    queue = status.queue
    tasks = [_task_lines(task, status) for task in status.executing]
    return {
        "files_over_time": files_over_time(history, status.at, whole=whole),
        "worst_tables": worst_tables(map(_table_bar, worst_first(status.tables)), whole=whole),
        "running_now": running_now(queue.pending, queue.executing, queue.prepared, tasks, whole=whole),
    }


def _worst_in_words(status: Status) -> str:
    """The worst nodes with their reasons, as many as Dagster shows at once. Lines of Markdown wrap; cells of Dagster's tables are cut."""
    ill = [node for node in status.worst if node.health is not HealthStatus.HEALTHY]
    if not ill:
        return "Every node is healthy."

    def listed(count: int) -> str:
        return "\n\n".join(
            f"{_heading(str(node.table), str(node.node))}\\\n{wrapped(f'{node.health.value}: {clipped(node.reason, 180)}')}"
            for node in ill[:count]
        )

    return fitting(listed, (6, 5, 4, 3, 2, 1))


def _heading(*names: str) -> str:
    """A table, and maybe a node of it, as one line when they fit. A long name gets a line of its own, with an ellipsis in its middle."""
    table, *node = [plain(clipped_middle(name, LINE)) for name in names]
    return (" " if len(" ".join(names)) <= LINE else "\\\n").join([f"**{table}**", *node])


def _tables_in_words(status: Status) -> str:
    """The worst tables with their reasons, as many as Dagster shows at once."""
    tables = worst_first(status.tables)
    if not tables:
        return "No table is known."

    def listed(count: int) -> str:
        return "\n\n".join(
            f"{_heading(str(table.table))}\\\n{wrapped(f'{table.health.value}: {clipped(table.reason, 180)}')}" for table in tables[:count]
        )

    return fitting(listed, (8, 7, 6, 5, 4, 3, 2, 1))


def _scores_in_words(status: Status) -> str:
    """The tables with the lowest health scores, with what costs the points and what to do, as many as Dagster shows at once."""
    read = [table for table in worst_score_first(status.tables) if table.is_read]
    losing = [table for table in read if table.score.parts != ALL_POINTS]
    if not losing:
        return "No table loses a point." if read else "No table was read yet."

    def listed(count: int) -> str:
        return "\n\n".join(f"{_heading(str(table.table))}\\\n{wrapped(clipped(table.score.text, 400))}" for table in losing[:count])

    return fitting(listed, (6, 5, 4, 3, 2, 1))


def _table_bar(table: TableOverview) -> TableBar:
    metrics = table.metrics
    return TableBar(str(table.table), metrics.small_data_files, metrics.equality_delete_files, metrics.position_delete_files)


def _task_lines(task: MergedWork[Work], status: Status) -> tuple[str, str]:
    """The name of a task, and its figures. A line of both would be too long for the picture."""
    since = max(status.at - task.started_at, timedelta(0)) if task.started_at is not None else timedelta(0)
    files, size = count_text(task.work.files_read, "file"), bytes_text(task.work.input_bytes)
    return f"{task.table} {task.work.node}", f"{files}, {size}, {duration_text(since)}"
