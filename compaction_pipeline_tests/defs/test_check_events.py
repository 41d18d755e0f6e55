"""An evaluation that is stored without a run names the materialization that it judges."""

from __future__ import annotations

import dagster as dg

from compaction_pipeline.core.insight.checks.every_check import CHECKS, CheckResult
from compaction_pipeline.core.insight.checks.judgement import Judgement
from compaction_pipeline.defs.check_events import store_evaluations
from compaction_pipeline.defs.checks import evaluation


def test_a_stored_evaluation_is_tied_to_the_newest_materialization() -> None:
    # Dagster exports the class of this tie under no public name. When it moves, this test tells, and `_target` must follow.
    result = CheckResult(CHECKS[0], Judgement("nodes", 1, ()))
    with dg.DagsterInstance.ephemeral() as instance:
        asset = evaluation(result).asset_key
        instance.report_runless_asset_event(dg.AssetMaterialization(asset))
        store_evaluations(instance, [result], "a run")
        (newest,) = instance.fetch_materializations(asset, limit=1).records
        (stored,) = instance.event_log_storage.get_asset_check_execution_history(evaluation(result).asset_check_key, limit=2)
        assert stored.event is not None
        event = stored.event.dagster_event
        assert event is not None
        target = event.asset_check_evaluation_data.target_materialization_data
        assert target is not None
        assert (target.storage_id, target.run_id) == (newest.storage_id, newest.run_id)
