"""Spark's own rewrites run beside ours on one table, while Spark also writes. Whichever wins, the rows stay exact."""

from __future__ import annotations

import re
from collections import Counter
from random import Random

import pytest

from compaction_pipeline_tests.interop.racing import Say, Tally, compact_while, working
from compaction_pipeline_tests.interop.warehouse import Compactions, Warehouse
from compaction_pipeline_tests.interop.written_by_spark import SparkUpserts

pytestmark = pytest.mark.interop

CALLS = (
    "CALL {c}.system.rewrite_data_files(table => 'db.t', options => map('rewrite-all', 'true'))",
    "CALL {c}.system.rewrite_position_delete_files(table => 'db.t', options => map('rewrite-all', 'true'))",
    "CALL {c}.system.rewrite_data_files(table => 'db.t', options => map('min-input-files', '2', 'remove-dangling-deletes', 'true'))",
    "CALL {c}.system.rewrite_manifests(table => 'db.t')",
)
LOST = re.compile(r"\b(ValidationException|CommitFailedException)\b")
"""How Java says that another commit came first."""


@pytest.mark.parametrize("seconds", [12, pytest.param(180, marks=[pytest.mark.long, pytest.mark.timeout(1800)])])
def test_rows_stay_exact_while_spark_rewrites_too(seconds: int, warehouse: Warehouse, lagging_compactions: Compactions, say: Say) -> None:
    upserts = SparkUpserts(warehouse, Random(seconds))
    for _ in range(3):
        upserts.write()
    rewrites: Counter[str] = Counter()

    def rewrite() -> None:
        call = CALLS[rewrites.total() % len(CALLS)]
        try:
            warehouse.sql(call)
            rewrites["won"] += 1
        except Exception as error:
            if not LOST.search(str(error)):
                raise
            rewrites["lost"] += 1

    def enough(tally: Tally) -> bool:
        return rewrites["won"] > 0 and tally.commits > 0

    with working(upserts.write, rewrite) as running:
        tally = compact_while(running, lagging_compactions, enough, seconds)
    say(f"{upserts.commits} statements ({upserts.overtaken} run again), Spark's rewrites: {dict(rewrites)}; ours: {tally}")
    assert enough(tally)
    warehouse.check(upserts.rows.values())
