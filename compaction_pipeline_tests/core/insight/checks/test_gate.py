"""What stops a pipeline, and what the sentence of a judgement says."""

from __future__ import annotations

import pytest

from compaction_pipeline.core.insight.checks.commits import commits_on_time
from compaction_pipeline.core.insight.checks.every_check import CHECKS, CheckResult
from compaction_pipeline.core.insight.checks.gate import Checked
from compaction_pipeline.core.insight.checks.judgement import Failure, Judgement, Severity
from compaction_pipeline.core.insight.checks.merges import rows_preserved, target_file_size
from compaction_pipeline_tests.defs.values import MIB, NOW, ORDERS, ago, day, node_state, output, task

ILL = Judgement("nodes", 3, (Failure(ORDERS, day(1), "40 small data files"),))
WELL = Judgement("nodes", 3)


def checked(*failing: str, **unread: str) -> Checked:
    return Checked(tuple(CheckResult(check, ILL if check.name in failing else WELL) for check in CHECKS), unread)


def of(severity: Severity) -> str:
    return next(check.name for check in CHECKS if check.severity is severity)


@pytest.mark.parametrize(
    ("failing", "fail_on", "passes"),
    [
        ((), Severity.WARN, True),
        ((of(Severity.WARN),), Severity.ERROR, True),
        ((of(Severity.WARN),), Severity.WARN, False),
        ((of(Severity.ERROR),), Severity.ERROR, False),
        ((of(Severity.ERROR),), Severity.WARN, False),
    ],
)
def test_a_failed_check_stops_a_pipeline_when_it_is_bad_enough(failing: tuple[str, ...], fail_on: Severity, passes: bool) -> None:
    assert checked(*failing).passes(fail_on) is passes
    assert bool(checked(*failing).stopping(fail_on)) is not passes


def test_a_table_that_could_not_be_read_stops_every_pipeline() -> None:
    found = checked(orders="the catalog does not answer")
    assert not found.passes(Severity.ERROR)
    assert found.text(Severity.ERROR) == "orders could not be read: the catalog does not answer"


def test_the_sentence_names_what_stops_the_pipeline_and_what_only_warns() -> None:
    warning, error = of(Severity.WARN), of(Severity.ERROR)
    assert checked().text(Severity.ERROR) == f"all {len(CHECKS)} checks pass"
    assert checked(warning).text(Severity.ERROR) == f"no check fails that stops a pipeline; 1 warning: {warning}"
    assert checked(warning, error).text(Severity.ERROR) == f"{error} (ERROR): 1 of 3 nodes fail; {ORDERS} {day(1)}: 40 small data files"


def test_a_judgement_of_merges_counts_only_nodes_with_a_merge() -> None:
    nodes = [node_state(1, last_done=ago(hours=1)), node_state(2, last_done=ago(hours=1)), *(node_state(n) for n in range(3, 9))]
    assert rows_preserved(nodes, []).text == "all 2 nodes with a merge pass"
    assert rows_preserved(nodes[:1], []).text == "the only node with a merge passes"
    assert rows_preserved(nodes[2:], []).text == "none of 6 nodes was merged yet"
    assert target_file_size([task(outputs=[output(128 * MIB)])]).text == "the only node with a recent merge passes"


def test_a_judgement_of_commits_counts_only_tables_with_merged_tasks() -> None:
    intervals = {ORDERS: ago() - ago(minutes=5)}
    assert commits_on_time([], intervals, NOW).text == "no merged task waits for its commit"
    assert commits_on_time([(task(), ago(seconds=5))], intervals, NOW).text == "the only table with merged tasks passes"


def test_every_check_has_a_name_of_its_own_and_says_what_to_do() -> None:
    assert len({check.name for check in CHECKS}) == len(CHECKS)
    assert [check.name for check in CHECKS if "When this " not in check.description] == []
