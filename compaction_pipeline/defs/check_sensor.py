"""The sensor that judges while nothing happens: work that waits too long shows only because time passes."""

from __future__ import annotations

import json

import dagster as dg

from compaction_pipeline.bootstrap import Services
from compaction_pipeline.core.insight.checks.every_check import CHECKS, CheckResult
from compaction_pipeline.core.words import count_text
from compaction_pipeline.defs.check_events import evaluations_without_run
from compaction_pipeline.defs.checks import check_keys
from compaction_pipeline.defs.names import Names
from compaction_pipeline.defs.ticks import ticking

FROM_STATE = tuple(check for check in CHECKS if not check.needs_tables and not check.reads_rows)
"""The checks that read only the state database. The others ask a catalog for each table, or read rows."""

INTERVAL_SECONDS = 60
"""Seconds between two ticks. This is often enough, because the shortest limit of any check is some minutes."""


def check_sensor(names: Names) -> dg.SensorDefinition:
    """The sensor `check_sensor`."""
    return ticking(
        names,
        "check_sensor",
        _check_tick,
        events_of=tuple(dict.fromkeys(key.asset_key for key in check_keys(names))),
        every=INTERVAL_SECONDS,
        description=(
            "Evaluates the checks that read only the state database, and stores an evaluation when its outcome differs from that of the "
            "last tick. It starts no run."
        ),
    )


def _check_tick(names: Names, context: dg.SensorEvaluationContext, services: Services) -> dg.SensorResult:
    results = services.judge_compaction.judge(FROM_STATE)
    before = json.loads(context.cursor or "{}")
    now = {result.check.name: result.outcome for result in results}
    changed = [result for result in results if before.get(result.check.name) != now[result.check.name]]
    return dg.SensorResult(
        skip_reason=f"{_failing(results)}; {count_text(len(changed), 'outcome')} changed since the last tick",
        cursor=json.dumps(now),
        asset_events=evaluations_without_run(names, context.instance, changed),
    )


def _failing(results: tuple[CheckResult, ...]) -> str:
    failing = [f"{result.check.name}: {result.judgement.text}" for result in results if result.failed]
    return "; ".join(failing) or f"all {count_text(len(results), 'check')} pass"
