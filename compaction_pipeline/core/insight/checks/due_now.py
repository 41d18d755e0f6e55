"""Judges whether tables have due work at this moment, by their files alone. It needs no history, so it works on a new machine."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from compaction_pipeline.core.fragmentation.verdict import NodeVerdict
from compaction_pipeline.core.insight.checks.judgement import Failure, Judgement
from compaction_pipeline.core.tables.table import TableIdentifier


@dataclass(frozen=True, slots=True)
class LookedAt:
    """What a look at the files of a table found: a verdict for each node, or why nobody could look."""

    table: TableIdentifier
    verdicts: tuple[NodeVerdict, ...] | str


def due_now(tables: Iterable[LookedAt]) -> Judgement:
    """Fail each node with work that is due by the number, the size or the deletes of its files. Intervals make nothing due here.

    The node with the most small files and delete files comes first.
    """
    judged, unjudged = 0, []
    due: list[tuple[int, Failure]] = []
    for looked in tables:
        if isinstance(looked.verdicts, str):
            unjudged.append(Failure(looked.table, None, f"nobody could look at its files: {looked.verdicts}"))
            continue
        judged += len(looked.verdicts)
        for verdict in looked.verdicts:
            if verdict.is_due and verdict.type is not None:
                weight = verdict.metrics.small_data_files + verdict.metrics.delete_files
                due.append((-weight, Failure(looked.table, verdict.node, f"{verdict.type.value}: {verdict.reason.text}")))
    due.sort(key=lambda each: (each[0], each[1].name))
    failures = tuple(failure for _, failure in due)
    return Judgement("nodes", judged, failures, "with files", "no table that is compacted has files", unjudged=tuple(unjudged))
