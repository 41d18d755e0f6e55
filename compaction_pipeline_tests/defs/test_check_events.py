"""An evaluation that is stored without a run names the materialization that it judges."""

from __future__ import annotations

import dagster as dg

from compaction_pipeline.core.insight.checks.every_check import CHECKS, CheckResult
from compaction_pipeline.core.insight.checks.judgement import Failure, Judgement
from compaction_pipeline.core.insight.checks.unique_keys import on_demand
from compaction_pipeline.defs.check_events import store_evaluations
from compaction_pipeline.defs.checks import evaluation
from compaction_pipeline_tests.plain_names import NAMES


def test_a_stored_evaluation_is_tied_to_the_newest_materialization() -> None:
    # Dagster exports the class of this tie under no public name. When it moves, this test tells, and `_target` must follow.
    result = CheckResult(CHECKS[0], Judgement("nodes", 1, ()))
    with dg.DagsterInstance.ephemeral() as instance:
        asset = evaluation(NAMES, result).asset_key
        instance.report_runless_asset_event(dg.AssetMaterialization(asset))
        store_evaluations(NAMES, instance, [result], "a run")
        (newest,) = instance.fetch_materializations(asset, limit=1).records
        (stored,) = instance.event_log_storage.get_asset_check_execution_history(evaluation(NAMES, result).asset_check_key, limit=2)
        assert stored.event is not None
        event = stored.event.dagster_event
        assert event is not None
        target = event.asset_check_evaluation_data.target_materialization_data
        assert target is not None
        assert (target.storage_id, target.run_id) == (newest.storage_id, newest.run_id)


def test_a_check_on_demand_repeats_its_last_answer_until_somebody_looks_again() -> None:
    check = next(check for check in CHECKS if check.reads_rows)
    nobody_looked = CheckResult(check, on_demand(), on_demand=True)
    failed = CheckResult(check, Judgement("nodes", 3, (Failure(None, None, "key 7 has 2 live rows", "g"),)))
    with dg.DagsterInstance.ephemeral() as instance:

        def told(result: CheckResult) -> tuple[bool, str]:
            store_evaluations(NAMES, instance, [result], "a run")
            (stored, *_) = instance.event_log_storage.get_asset_check_execution_history(evaluation(NAMES, result).asset_check_key, limit=1)
            assert stored.event is not None
            assert stored.event.dagster_event is not None
            event = stored.event.dagster_event.asset_check_evaluation_data
            return event.passed, event.description or ""

        passed, text = told(nobody_looked)
        assert passed
        assert text.startswith("on demand: nothing was judged now, because ")
        assert text.endswith("; it was never judged")
        assert told(failed)[0] is False
        # A commit after that does not make it green, however often nobody looks.
        for _ in range(2):
            passed, text = told(nobody_looked)
            assert not passed
            assert text.startswith("on demand: nothing was judged now, because ")
            assert text.endswith(" UTC, it failed: 1 of 3 nodes fail; group g: key 7 has 2 live rows")
            assert text.count("when it was last judged") == 1
        told(CheckResult(check, Judgement("nodes", 3)))
        passed, text = told(nobody_looked)
        assert passed
        assert text.endswith(" UTC, it passed: all 3 nodes pass")
