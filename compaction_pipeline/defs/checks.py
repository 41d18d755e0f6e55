"""The asset checks. Each one judges all nodes or tables at once, so a good one never hides a bad one.

The checks are not partitioned, because Dagster would show only the evaluation of the last partition. They block nothing: the digest
of each merge does that before the commit. Ops, assets and sensors log the same evaluations after their materializations.
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
    """A check: its asset, how bad a failure is, the function that judges, and what to do when it is red."""

    name: str
    asset: dg.AssetKey
    severity: dg.AssetCheckSeverity
    judge: Callable[[JudgeCompaction], Judgement]
    description: str

    def evaluation(self, judge: JudgeCompaction) -> dg.AssetCheckEvaluation:
        """Judge now, and return an event that any op or sensor may log."""
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
        "The rows that each merge wrote have the same digest as the rows that it read. When this is red, nothing was committed and no row "
        "is lost. But the node is not compacted until a merge of it succeeds. Keep its files, and report the task's reason.",
    ),
    Check(
        "small_files_left",
        COMPACTED_FILES,
        dg.AssetCheckSeverity.WARN,
        JudgeCompaction.small_files_left,
        "No node holds so many small files that a MINOR is due. When this stays red, launch the listed nodes, or look at `table_health`: "
        "the queue, the commit interval or a pause may hold them back.",
    ),
    Check(
        "target_file_size",
        COMPACTED_FILES,
        dg.AssetCheckSeverity.WARN,
        JudgeCompaction.target_file_size,
        "The newest merges of each node wrote files of the size that the table asks for. When this is red, check "
        "'self-optimizing.target-size' and 'self-optimizing.max-task-size-bytes' of the table.",
    ),
)
ON_RECORDS = (
    Check(
        "commits_on_time",
        COMPACTION_RECORDS,
        dg.AssetCheckSeverity.WARN,
        JudgeCompaction.commits_on_time,
        "No merged task waits longer than twice its table's 'self-optimizing.commit.interval'. When this is red, see that `commit_sensor` "
        "is on. To commit now, materialize the table's partition of `compaction_records`.",
    ),
    Check(
        "record_matches_table",
        COMPACTION_RECORDS,
        dg.AssetCheckSeverity.ERROR,
        JudgeCompaction.record_matches_table,
        "The newest record of each table agrees with the table's own metadata. When this is red, the table was rolled back, or another "
        "tool replaced its history. Compare `compaction-pipeline record show` with the table's snapshots.",
    ),
)
CHECKS = (*ON_FILES, *ON_RECORDS)


def evaluations(judge: JudgeCompaction, checks: Iterable[Check] = CHECKS) -> list[dg.AssetCheckEvaluation]:
    """Judge now. The caller must log these events after the materializations that they judge, or the UI calls them outdated."""
    return [check.evaluation(judge) for check in checks]


def judgement_metadata(judgement: Judgement) -> dict[str, dg.MetadataValue]:
    """Counts for plots, the judgement in one sentence, and the failures by name."""
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
    """The same checks as definitions, which a job or a person can run."""
    return [_definition(check) for check in checks]


def _definition(check: Check) -> dg.AssetChecksDefinition:
    @dg.asset_check(asset=check.asset, name=check.name, description=check.description)
    def judged(compaction: Compaction) -> dg.AssetCheckResult:
        evaluation = check.evaluation(compaction.services().judge_compaction)
        return dg.AssetCheckResult(
            passed=evaluation.passed, metadata=evaluation.metadata, severity=evaluation.severity, description=evaluation.description
        )

    return judged
