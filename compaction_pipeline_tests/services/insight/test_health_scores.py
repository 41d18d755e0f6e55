"""The health score of a real table: low before its compaction, with the type that mends it, and high afterwards."""

from __future__ import annotations

from compaction_pipeline.core.fragmentation.health_score import HealthScore, ScoreParts
from compaction_pipeline.core.insight.checks.every_check import CHECKS
from compaction_pipeline.core.planning.plan import PlanRequest
from compaction_pipeline.core.work.kinds import CompactionType
from compaction_pipeline_tests.iceberg.lake import LakeTable
from compaction_pipeline_tests.services.house import House

HEALTHY = next(check for check in CHECKS if check.name == "tables_healthy")


def small_target(house: House) -> LakeTable:
    """12 files of about a kilobyte, where 6 kB are enough for a file."""
    return house.fragmented(files=12, self_optimizing__target_size="8000")


def score(house: House, table: LakeTable) -> HealthScore:
    house.services.one_table.refresh(table.identifier)
    return house.services.read_tables.table(table.identifier).overview.score


def parts(found: HealthScore) -> ScoreParts:
    assert found.parts is not None
    return found.parts


def test_deletes_and_small_files_lower_the_score_and_a_compaction_raises_it(house: House) -> None:
    table = small_target(house)
    small = parts(score(house, table))
    assert (small.equality_deletes, small.position_deletes) == (40, 20)
    assert small.small_files < 40
    # Each of 12 rows is in a file of its own. One is deleted by its position: 1/12 of the rows, and 2/10 cost all points.
    first, *_ = sorted(file.path for file in table.files())
    table.delete_positions((first, 0))
    assert parts(score(house, table)).position_deletes == 12
    table.delete_ids(5, 6)
    with_deletes = score(house, table)
    assert parts(with_deletes).equality_deletes == 0
    assert with_deletes.reason == "2 rows of equality deletes for 12 rows of data cost 40 of 40 points"
    [judged] = house.services.judge_compaction.judge([HEALTHY])
    assert "2 rows of equality deletes for 12 rows of data cost 40 of 40 points" in judged.judgement.text
    assert not judged.passed

    outcome = house.services.compact_tables.compact(table.identifier, PlanRequest(types=(CompactionType.FULL,), force=True))
    assert outcome.committed
    after = score(house, table)
    assert parts(after).total == 100
    [judged] = house.services.judge_compaction.judge([HEALTHY])
    assert judged.passed
