"""A process that was thought dead goes on with its commit, while another process commits the same record again."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import get_args

import pytest

from compaction_pipeline.core.commit.ports import CommitState
from compaction_pipeline.core.commit.record import RECORD_ID_PROPERTY
from compaction_pipeline.core.planning.plan import PlanRequest
from compaction_pipeline.core.queue.open_work import InUse
from compaction_pipeline.core.work.kinds import CompactionType
from compaction_pipeline.iceberg.commit.committer import IcebergCommitter
from compaction_pipeline.iceberg.rewrite_files import CommitStep
from compaction_pipeline.merging.engine import InProcessMergeEngine
from compaction_pipeline_tests.reference_reader import bag_difference, reference_rows
from compaction_pipeline_tests.scenarios.modelled_compactions import ModelledCompactions
from compaction_pipeline_tests.scenarios.modelled_table import ModelledTable
from compaction_pipeline_tests.scenarios.soundness import faults


@pytest.mark.parametrize("step", get_args(CommitStep))
def test_a_record_committed_by_two_processes_at_once_goes_in_once_and_harms_no_manifest(step: str, tmp_path: Path) -> None:
    rng = Random(4)
    table = ModelledTable(tmp_path, rng, format_version=2, layout=())
    compactions = ModelledCompactions(table, InProcessMergeEngine())
    for _ in range(4):
        table.append(rng)
    table.upsert(rng)
    compactions.plan_and_merge(PlanRequest(types=(CompactionType.FULL,), force=True), InUse())
    tasks = tuple(compactions.prepared)
    assert tasks
    entered: list[str] = []

    def other_process(reached: str) -> None:
        if reached == step and not entered:
            entered.append(reached)
            assert compactions.committer().commit(table.identifier, "r1", tasks).state is CommitState.COMMITTED

    outcome = IcebergCommitter(compactions.catalogs, on_step=other_process, sleep=lambda seconds: None).commit(
        table.identifier, "r1", tasks
    )
    assert outcome.state is CommitState.COMMITTED
    assert set(outcome.committed) == {task.task_id for task in tasks}
    table.reload()
    assert bag_difference(reference_rows(table.table), table.expected()) == ""
    assert faults(table.table) == []
    ours = [
        one for one in table.table.metadata.snapshots if one.summary and one.summary.additional_properties.get(RECORD_ID_PROPERTY) == "r1"
    ]
    assert len(ours) == 1
