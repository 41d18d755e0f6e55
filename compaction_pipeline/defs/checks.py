"""The asset checks. Each judges all nodes or tables at once, so a good one never hides a bad one.

Not partitioned and not blocking (per-partition evaluations are last-one-wins): what blocks is the kernel's digest, before a
commit. Ops, asset bodies and sensors log the same evaluations after their materializations (`evaluations`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import dagster as dg

from compaction_pipeline.defs.keys import COMPACTED_FILES, COMPACTION_RECORDS
from compaction_pipeline.defs.metadata import table_of
from compaction_pipeline.defs.resources import Compaction
from compaction_pipeline.services.insight.judge_compaction import JudgeCompaction, Judgement


@dataclass(frozen=True, slots=True)
class Check:
    """A check: where it stands, how bad a failure is, who judges, and what to do when it is red."""

    name: str
    asset: dg.AssetKey
    severity: dg.AssetCheckSeverity
    judge: Callable[[JudgeCompaction], Judgement]
    description: str

    def evaluation(self, judge: JudgeCompaction) -> dg.AssetCheckEvaluation:
        """The check's judgement of now, as an event that any op or sensor may log."""
        judgement = self.judge(judge)
        return dg.AssetCheckEvaluation(
            asset_key=self.asset,
            check_name=self.name,
            passed=judgement.passed,
            metadata=judgement_metadata(judgement),
            severity=self.severity,
            description=judgement.text,
        )


ON_FILES = (
    Check(
        "rows_preserved",
        COMPACTED_FILES,
        dg.AssetCheckSeverity.ERROR,
        JudgeCompaction.rows_preserved,
        "The digest of the rows that a merge read equals that of the rows that it wrote. Red: nothing was committed and no row is "
        "lost, but the node is not compacted until a merge of it succeeds; keep its files and report the task's reason.",
    ),
    Check(
        "small_files_left",
        COMPACTED_FILES,
        dg.AssetCheckSeverity.WARN,
        JudgeCompaction.small_files_left,
        "No node holds as many small files as make a minor due. Red for long: launch the nodes listed, or look at `table_health` for what "
        "holds them back (queue, commit interval, pause).",
    ),
    Check(
        "target_file_size",
        COMPACTED_FILES,
        dg.AssetCheckSeverity.WARN,
        JudgeCompaction.target_file_size,
        "The files that each node's newest merges wrote are as large as the table wants. Red: check 'self-optimizing.target-size' and "
        "'self-optimizing.max-task-size-bytes' of the table.",
    ),
)
ON_RECORDS = (
    Check(
        "commits_on_time",
        COMPACTION_RECORDS,
        dg.AssetCheckSeverity.WARN,
        JudgeCompaction.commits_on_time,
        "No merged task waits longer than twice its table's 'self-optimizing.commit.interval'. Red: is `commit_sensor` on? Materialize "
        "the table's partition of `compaction_records` to commit now.",
    ),
    Check(
        "record_matches_table",
        COMPACTION_RECORDS,
        dg.AssetCheckSeverity.ERROR,
        JudgeCompaction.record_matches_table,
        "The newest record of each table is what the table's own metadata says. Red: the table was rolled back, or another tool "
        "replaced its history; compare `compaction-pipeline record show` with the table's snapshots.",
    ),
)
CHECKS = (*ON_FILES, *ON_RECORDS)


def evaluations(judge: JudgeCompaction, checks: Iterable[Check] = CHECKS) -> list[dg.AssetCheckEvaluation]:
    """Judge now. Log them after the materializations that they are about, or the UI calls them outdated."""
    return [check.evaluation(judge) for check in checks]


def judgement_metadata(judgement: Judgement) -> dict[str, dg.MetadataValue]:
    """Counts that are plotted, the sentence, and the failures by name."""
    metadata: dict[str, dg.MetadataValue] = {
        f"judged_{judgement.subject}_count": dg.MetadataValue.int(judgement.judged),
        f"failing_{judgement.subject}_count": dg.MetadataValue.int(len(judgement.failures)),
        "reason": dg.MetadataValue.text(judgement.text),
    }
    if judgement.failures:
        metadata["failing"] = table_of(
            [
                {"table": str(failure.table), "node": None if failure.node is None else str(failure.node), "reason": failure.reason}
                for failure in judgement.failures
            ],
            (("table", "string", "catalog.namespace.table"), ("node", "string", "partition values"), ("reason", "string", "why")),
        )
    return metadata


def definitions_of(checks: Sequence[Check] = CHECKS) -> list[dg.AssetChecksDefinition]:
    """The same checks as definitions that a checks job, or a person, runs."""
    return [_definition(check) for check in checks]


def _definition(check: Check) -> dg.AssetChecksDefinition:
    @dg.asset_check(asset=check.asset, name=check.name, description=check.description)
    def judged(compaction: Compaction) -> dg.AssetCheckResult:
        evaluation = check.evaluation(compaction.services().judge_compaction)
        return dg.AssetCheckResult(
            passed=evaluation.passed, metadata=evaluation.metadata, severity=evaluation.severity, description=evaluation.description
        )

    return judged
