"""The asset checks: those of `core/insight/checks/`, as events and definitions of Dagster.

Each one judges all nodes or tables at once, so a good one never hides a bad one. The checks are not partitioned, because Dagster would show
only the evaluation of the last partition. They block nothing: the digest of each merge does that before the commit. Ops, assets and sensors
log the same evaluations after their materializations.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import dagster as dg

from compaction_pipeline.core.insight.checks.every_check import CHECKS, About, Check, CheckResult
from compaction_pipeline.core.insight.checks.judgement import Judgement, Severity
from compaction_pipeline.defs.metadata import table_of
from compaction_pipeline.defs.names import Names
from compaction_pipeline.defs.resources import services_of
from compaction_pipeline.defs.runs import is_followed

_SEVERITIES: Mapping[Severity, dg.AssetCheckSeverity] = {
    Severity.ERROR: dg.AssetCheckSeverity.ERROR,
    Severity.WARN: dg.AssetCheckSeverity.WARN,
}


def check_keys(names: Names) -> tuple[dg.AssetCheckKey, ...]:
    """The keys of all checks."""
    return tuple(dg.AssetCheckKey(_asset(names, check), check.name) for check in CHECKS)


def _asset(names: Names, check: Check) -> dg.AssetKey:
    return {
        About.FILES: names.compacted_files,
        About.RECORDS: names.compaction_records,
        About.QUEUES: names.compaction_queues,
        About.CAPACITY: names.compaction_capacity,
    }[check.about]


def evaluation(names: Names, result: CheckResult) -> dg.AssetCheckEvaluation:
    """The event for one result with an answer, which any op or sensor may log."""
    return dg.AssetCheckEvaluation(
        asset_key=_asset(names, result.check),
        check_name=result.check.name,
        passed=result.passed,
        metadata=judgement_metadata(result.judgement),
        severity=_SEVERITIES[result.check.severity],
        description=result.judgement.text,
    )


def judgement_metadata(judgement: Judgement) -> dict[str, dg.MetadataValue]:
    """Counts for plots, the judgement in one sentence, and the failures by name."""
    metadata: dict[str, dg.MetadataValue] = {
        f"judged_{judgement.subject}_count": dg.MetadataValue.int(judgement.judged),
        f"failing_{judgement.subject}_count": dg.MetadataValue.int(len(judgement.failures)),
        "reason": dg.MetadataValue.text(judgement.text),
        **{name: dg.MetadataValue.float(float(figure)) for name, figure in judgement.figures},
    }
    if judgement.failures:
        metadata["failing"] = table_of(
            judgement.failures,
            (
                ("table", "string", "catalog.namespace.table", lambda failure: failure.place),
                ("node", "string", "partition values", lambda failure: None if failure.node is None else str(failure.node)),
                ("reason", "string", "why", lambda failure: failure.reason),
            ),
        )
    return metadata


def definitions_of(names: Names, checks: Iterable[Check] = CHECKS) -> Sequence[dg.AssetChecksDefinition]:
    """The same checks as definitions, which a job or a person can run."""
    return [_definition(names, check) for check in checks]


def _judged_in(instance: dg.DagsterInstance, run_id: str) -> frozenset[dg.AssetCheckKey]:
    """The checks of which this run has logged an evaluation. Its step that compacts judges all of them at its end."""
    records = instance.get_records_for_run(run_id, of_type=dg.DagsterEventType.ASSET_CHECK_EVALUATION).records
    events = (record.event_log_entry.dagster_event for record in records)
    return frozenset(event.asset_check_evaluation_data.asset_check_key for event in events if event is not None)


def _definition(names: Names, check: Check) -> dg.AssetChecksDefinition:
    """A check that reads no output of its asset. `@asset_check` would make its step depend on the asset's step.

    That step hands no output on, because each node gets an event of its own. So Dagster would skip the check in every run.
    """
    asset = _asset(names, check)

    # Not required: nothing is stored for a check without an answer, nor for one that somebody else judges.
    @dg.op(
        name=f"{asset.to_python_identifier()}_{check.name}",
        out={"result": dg.Out(dg.Any, is_required=False)},
        required_resource_keys={names.compaction},
    )
    def judged() -> Iterator[dg.AssetCheckResult]:
        context = dg.OpExecutionContext.get()
        if is_followed(context.instance, context.run):
            context.log.info("a later run of this backfill judges this check")
            return
        if dg.AssetCheckKey(asset, check.name) in _judged_in(context.instance, context.run.run_id):
            context.log.info(f"the step of {asset.to_user_string()} has judged this check")
            return
        (result,) = services_of(names, context).judge_compaction.judge([check])
        if not result.evaluated:
            context.log.info(result.judgement.text)
            return
        event = evaluation(names, result)
        yield dg.AssetCheckResult(passed=event.passed, metadata=event.metadata, severity=event.severity, description=event.description)

    spec = dg.AssetCheckSpec(check.name, asset=asset, description=check.description)
    made: dg.AssetChecksDefinition = dg.AssetChecksDefinition.create(
        keys_by_input_name={}, node_def=judged, check_specs_by_output_name={"result": spec}, can_subset=False
    )
    return made
