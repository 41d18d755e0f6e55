"""Stores evaluations of checks in Dagster, so that each one stays in the history of its check.

Dagster keeps one row for each check and run, and a later evaluation in the same run replaces it. A row without a run is never replaced. So
a run that judges again and again stores its evaluations without a run, and links to the run in their metadata.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any, cast

import dagster as dg

from compaction_pipeline.core.insight.checks.every_check import CheckResult
from compaction_pipeline.defs.checks import evaluation
from compaction_pipeline.defs.names import Names

if TYPE_CHECKING:
    from dagster._core.definitions.asset_checks.asset_check_evaluation import AssetCheckEvaluationTargetMaterializationData as Target


_LAST_ANSWER = "last_answer"
_LATEST = 10
"""So many of the latest rows of a check are looked through for its last answer. Rows of runs that only announced it have none."""


def log_evaluation(context: dg.OpExecutionContext | dg.AssetExecutionContext, event: dg.AssetCheckEvaluation) -> None:
    """Log an evaluation as an event of the run. Dagster takes it since 1.12, but its annotation does not name it yet."""
    cast("Any", context).log_event(event)


def store_evaluations(names: Names, instance: dg.DagsterInstance, results: Iterable[CheckResult], run_id: str) -> None:
    """Store an evaluation of each result, which judges the newest materialization of its asset. `run_id` is the run that judged."""
    for event in evaluations_without_run(names, instance, results, {"run": dg.MetadataValue.dagster_run(run_id)}):
        instance.report_runless_asset_event(event)


def evaluations_without_run(
    names: Names, instance: dg.DagsterInstance, results: Iterable[CheckResult], metadata: Mapping[str, dg.MetadataValue] | None = None
) -> list[dg.AssetCheckEvaluation]:
    """The events of these results, which judge the newest materializations of their assets. They belong to no run.

    A check without an answer has no event: Dagster goes on to show its last one.

    A sensor that also materializes the asset in the same tick lists these events last. No run is named by either, so Dagster takes the
    evaluation for one of the newest materialization then, too.
    """
    events = [
        _on_demand(names, instance, result) if result.on_demand else evaluation(names, result) for result in results if result.evaluated
    ]
    targets = {asset: _newest(instance, asset) for asset in dict.fromkeys(event.asset_key for event in events)}
    return [
        dg.AssetCheckEvaluation(
            asset_key=event.asset_key,
            check_name=event.check_name,
            passed=event.passed,
            metadata={**event.metadata, **(metadata or {})},
            target_materialization_data=targets[event.asset_key],
            severity=event.severity,
            description=event.description,
        )
        for event in events
    ]


def _on_demand(names: Names, instance: dg.DagsterInstance, result: CheckResult) -> dg.AssetCheckEvaluation:
    """The event of a check that nobody judged now. It repeats the last answer, with its time: a failure fails until somebody looks again.

    Without an event Dagster would show the check as not evaluated, and count it as one that did not pass.
    """
    event = evaluation(names, result)
    last, answer = _last_answer(instance, event.asset_check_key)
    return dg.AssetCheckEvaluation(
        asset_key=event.asset_key,
        check_name=event.check_name,
        passed=last,
        metadata={**event.metadata, _LAST_ANSWER: dg.MetadataValue.text(answer)},
        severity=event.severity,
        description=f"{event.description}; {answer}",
    )


def _last_answer(instance: dg.DagsterInstance, check: dg.AssetCheckKey) -> tuple[bool, str]:
    """Whether a check passed when it was last judged, and a sentence about that. One that was never judged did not fail."""
    for record in instance.event_log_storage.get_asset_check_execution_history(check, limit=_LATEST):
        if record.status.value not in ("SUCCEEDED", "FAILED") or record.event is None or record.event.dagster_event is None:
            continue
        last = record.event.dagster_event.asset_check_evaluation_data
        repeated = last.metadata.get(_LAST_ANSWER)
        if repeated is not None:
            return last.passed, str(repeated.value)
        at = datetime.fromtimestamp(record.event.timestamp, timezone.utc)
        return (
            last.passed,
            f"when it was last judged, at {at:%Y-%m-%d %H:%M} UTC, it {'passed' if last.passed else 'failed'}: {last.description}",
        )
    return True, "it was never judged"


def checks_planned_in(instance: dg.DagsterInstance, run_id: str) -> frozenset[dg.AssetCheckKey]:
    """The checks that a run announced when it was created. Until the run logs their evaluations, Dagster shows them as skipped."""
    planned = instance.get_records_for_run(run_id, of_type=dg.DagsterEventType.ASSET_CHECK_EVALUATION_PLANNED).records
    events = (record.event_log_entry.dagster_event for record in planned)
    return frozenset(event.asset_check_planned_data.asset_check_key for event in events if event is not None)


def _newest(instance: dg.DagsterInstance, asset: dg.AssetKey) -> Target | None:
    records = instance.fetch_materializations(asset, limit=1).records
    return _target(records[0].storage_id, records[0].run_id, records[0].timestamp) if records else None


def _target(storage_id: int, run_id: str, timestamp: float) -> Target:
    """What ties an evaluation to the materialization that it judges. Without it Dagster compares their times.

    SQLite keeps these in whole seconds, so Dagster would call an evaluation of the same second outdated. The class is a field of the public
    `AssetCheckEvaluation`, but Dagster exports it under no public name. It is imported here, so that the definitions still load when it
    moves. A test tells then.
    """
    from dagster._core.definitions.asset_checks.asset_check_evaluation import AssetCheckEvaluationTargetMaterializationData

    return AssetCheckEvaluationTargetMaterializationData(storage_id=storage_id, run_id=run_id, timestamp=timestamp)
