"""The health score: ten worked nodes beside Amoro's number, laws, and the sentences that stand beside the number."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import ceil

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compaction_pipeline.core.fragmentation.health import node_health
from compaction_pipeline.core.fragmentation.health_score import (
    ALL_POINTS,
    HealthScore,
    ScoredNode,
    ScoreParts,
    node_score,
    parts_after,
    score_parts,
    table_score,
)
from compaction_pipeline.core.fragmentation.metrics import measure
from compaction_pipeline.core.fragmentation.verdict import NodeVerdict, PlanReason, PlanReasonCode
from compaction_pipeline.core.planning.plain.prediction import predicted
from compaction_pipeline.core.planning.plan import PlanRequest
from compaction_pipeline.core.tables.data_file import FileContent, LiveFile
from compaction_pipeline.core.tables.deletes.reach import DeleteReach
from compaction_pipeline.core.tables.figures import NodeMetrics
from compaction_pipeline.core.tables.live_files import TableFiles, files_by_node
from compaction_pipeline.core.tables.properties import TableProperties
from compaction_pipeline.core.work.kinds import CompactionType
from compaction_pipeline_tests import strategies
from compaction_pipeline_tests.builders import data, equality, global_equality, node, planned, position, properties, table_files


def several(count: int, kb: float, rows: int = 100, name: str = "d") -> list[LiveFile]:
    return [data(f"{name}{number:02}", kb, rows=rows) for number in range(count)]


def vectors(of: Sequence[LiveFile], rows: int) -> list[LiveFile]:
    """Deletion vectors of these data files, in one Puffin file."""
    return [position("dv.puffin", of=file.path, rows=rows) for file in of]


# The target is 1,000 kB, so M = 750 kB is the size that is enough; 12 files make a MINOR due; 0.1 is the duplicate ratio.
# P = min(n, 12)/12 · min(B, M)/M; small = 40 - 40·P·(1 - min(a, M)/M); equality = 40 - 40·P·min(e, 0.1)/0.1;
# position = 20 - 20·P·min(p, 0.2)/0.2.
WORKED = {
    # n = 1, so there is no penalty.
    "one file with many deletes": ([data("a", 700), equality("e", rows=60)], (40, 40, 20), (40, 40, 20)),
    # P = 1 · 600/750 = 0.8; small = 40 - 40·0.8·(1 - 50/750) = 10.13.
    "12 small files": (several(12, 50), (11, 40, 20), (11, 40, 20)),
    # P = 6/12 · 60/750 = 0.04; small = 40 - 40·0.04·(1 - 10/750) = 38.42.
    "6 small files": (several(6, 10), (39, 40, 20), (39, 40, 20)),
    # Ours: n = 9, B = 3,060 kB, a = 340 kB, P = 9/12; small = 40 - 40·0.75·(1 - 340/750) = 23.6. Amoro's: as above.
    "6 small files beside 3 healthy ones": ([*several(6, 10), *several(3, 1000, name="h")], (24, 40, 20), (39, 40, 20)),
    # Ours: n = 24, a = 12,720/24 = 530 kB, P = 1; small = 40 - 40·(1 - 530/750) = 28.27.
    # Amoro's: n = 12, B = 720 kB, P = 0.96; small = 40 - 40·0.96·(1 - 60/750) = 4.67.
    "12 small files beside 12 healthy ones": ([*several(12, 60), *several(12, 1000, name="h")], (29, 40, 20), (5, 40, 20)),
    # P = 1; small = 40 - 40·(1 - 100/750) = 5.33; e = 60/1,200 = 0.05; equality = 40 - 40·0.5 = 20.
    "equality deletes of 5 % of the rows": ([*several(12, 100), equality("e", rows=60)], (6, 20, 20), (6, 20, 20)),
    # Ours: n = 4, P = 4/12, a = 1,000 kB, p = 20/400 = 0.05; position = 20 - 20/3·0.25 = 18.33. Amoro's: only d00 counts, so n = 1.
    "two delete files on one of 4 healthy files": (
        [*several(4, 1000), position("p", of="d00", rows=10), position("q", of="d00", rows=10)],
        (40, 40, 19),
        (40, 40, 20),
    ),
    # n = 3, P = 0.25, a = 500 kB; small = 40 - 10·(1 - 500/750) = 36.67. Ours: p = 90/300 = 0.3, so position = 20 - 20·0.25 = 15.
    # Amoro's: the second and third vector have the path of the first, so p = 30/300 = 0.1; position = 20 - 20·0.25·0.5 = 17.5.
    "deletion vectors in one Puffin file": ([*several(3, 500), *vectors(several(3, 500), 30)], (37, 40, 15), (37, 40, 18)),
    # P = 6/12 · 540/750 = 0.36; small = 40 - 40·0.36·(1 - 90/750) = 27.33; p = 24/240 = 0.1; position = 20 - 20·0.36·0.5 = 16.4.
    "one delete file for all files of the partition": ([*several(6, 90, rows=40), position("p", rows=24)], (28, 40, 17), (28, 40, 17)),
    # n = 2, P = 2/12, a = 600 kB; small = 40 - 40/6·(1 - 600/750) = 38.67. Ours: 20 rows of d00 are deleted, p = 20/500 = 0.04;
    # position = 20 - 20/6·0.2 = 19.33. Amoro's: p = 60/500 = 0.12; position = 20 - 20/6·0.6 = 18.
    "three delete files that name the same 20 rows": (
        [data("d00", 600, rows=20), data("d01", 600, rows=480), *(position(f"p{number}", of="d00", rows=20) for number in range(3))],
        (39, 40, 20),
        (39, 40, 18),
    ),
}


def amoros_parts(files: TableFiles, of: TableProperties) -> tuple[int, int, int]:
    """What Amoro 0.9 makes of the only node of these files: it counts only files that it would rewrite, and a delete file by its path."""
    nodes = files_by_node(files.files)
    [group] = nodes.values()
    reach = DeleteReach(nodes, files.unpartitioned_spec_ids)
    sizes, rows, counted = [], 0, {}
    for file in group.data:
        deletes = reach.of_all(group.node, [file])
        positions = [delete for delete in deletes if delete.content is FileContent.POSITION_DELETES]
        too_many = sum(delete.record_count for delete in positions) > file.record_count * of.major_duplicate_ratio
        if file.file_size_bytes <= of.undersized_bytes or too_many or deletes:
            sizes.append(file.file_size_bytes)
            rows += file.record_count
            for delete in deletes:
                counted.setdefault(delete.path, delete)
    of_kind = {kind: sum(each.record_count for each in counted.values() if each.content is kind) for kind in FileContent}
    weight = 0.0 if len(sizes) <= 1 else min(len(sizes) / 12, 1) * min(sum(sizes) / of.undersized_bytes, 1)
    average = min(sum(sizes) // len(sizes) / of.undersized_bytes, 1)
    eq = min(of_kind[FileContent.EQUALITY_DELETES] / rows, 0.1) / 0.1
    pos = min(of_kind[FileContent.POSITION_DELETES] / rows, 0.2) / 0.2
    return ceil(40 - weight * 40 * (1 - average)), ceil(40 - weight * 40 * eq), ceil(20 - weight * 20 * pos)


def parts_of(files: Sequence[LiveFile], of: TableProperties | None = None) -> ScoreParts:
    found = score_parts(measure(table_files(*files), of or properties())[node()], of or properties())
    assert found is not None
    return found


@pytest.mark.parametrize("name", WORKED)
def test_ten_worked_nodes_have_our_score_and_amoros(name: str) -> None:
    files, ours, amoros = WORKED[name]
    found = parts_of(files)
    assert (found.small_files, found.equality_deletes, found.position_deletes) == ours
    assert found.total == sum(ours)
    assert amoros_parts(table_files(*files), properties()) == amoros


@pytest.mark.parametrize("conversions", [True, False])
@pytest.mark.parametrize("name", [*(name for name in WORKED if "vectors" not in name), "undersized"])
def test_what_each_type_would_leave_of_the_worked_nodes_is_what_the_plan_of_this_type_predicts(name: str, conversions: bool) -> None:
    rules = properties(conversions_enabled=conversions)
    files = table_files(*(several(6, 400) if name == "undersized" else WORKED[name][0]))
    after = parts_after(measure(files, rules)[node()], rules)
    for kind in CompactionType:
        tasks = planned(files, PlanRequest((kind,), force=True), rules=rules).tasks
        assert after[kind] == score_parts(measure(predicted(files, tasks), rules)[node()], rules)


def test_a_minor_without_conversions_leaves_equality_deletes_of_large_files_and_its_share_of_deleted_positions() -> None:
    # 10 small files of 100 kB, and 2 of 130 kB, which have 260 of 1,260 kB and so of the deleted positions.
    files = [*several(10, 100), *several(2, 130, name="h"), equality("e", rows=300), position("p", rows=400)]
    rules = properties(conversions_enabled=False)
    metrics = measure(table_files(*files), rules)[node()]
    minor = replace(metrics, data_files=3, deleted_positions=ceil(metrics.deleted_positions * 260 / 1260))
    assert parts_after(metrics, rules)[CompactionType.MINOR] == score_parts(minor, rules)
    assert score_parts(minor, rules) != score_parts(replace(minor, deleted_positions=metrics.deleted_positions), rules)
    converted = parts_after(metrics, properties(conversions_enabled=True))[CompactionType.MINOR]
    taken = replace(minor, equality_delete_rows=0, deleted_positions=ceil(metrics.deleted_rows_estimate * 260 / 1260))
    assert converted == score_parts(taken, rules) != score_parts(replace(minor, equality_delete_rows=0), rules)


@given(strategies.live_files(), st.booleans())
def test_no_major_or_full_leaves_fewer_points_and_a_greater_type_leaves_as_many_at_least(files: TableFiles, conversions: bool) -> None:
    rules = properties(conversions_enabled=conversions)
    for metrics in measure(files, rules).values():
        now, after = score_parts(metrics, rules), parts_after(metrics, rules)
        minor, major, full = (after[kind].total for kind in CompactionType)
        assert now is not None
        assert minor <= major <= full <= 100
        assert major >= now.total
        assert (after[CompactionType.FULL].equality_deletes, after[CompactionType.FULL].position_deletes) == (40, 20)


def test_figures_that_do_not_tell_the_rows_of_deletes_tell_nothing_of_what_would_be_left() -> None:
    assert parts_after(NodeMetrics(data_files=3, data_bytes=10, rows=9, deleted_rows_estimate=1), properties()) == {}


def test_the_numbers_of_the_formula_are_the_tables_properties() -> None:
    files = [*several(6, 100), equality("e", rows=60)]
    assert parts_of(files) == ScoreParts.of(26.13, 24, 20)
    # P = 6/6 · 1; small = 40 - 40·(1 - 100/300) = 13.33; equality = 40 - 40·0.1/0.4 = 30.
    changed = properties(min_target_size_ratio=0.3, minor_file_count=6, major_duplicate_ratio=0.4)
    assert parts_of(files, changed) == ScoreParts.of(13.33, 30, 20)


def test_a_global_equality_delete_counts_with_the_nodes_share_of_the_rows() -> None:
    files = table_files(*several(6, 100), *(replace(file, path=f"o{file.path}") for file in (data("x", 100, day=2, rows=1800),)))
    whole = table_files(*files.files, global_equality("g", rows=240))
    metrics = measure(whole, properties())
    assert [metrics[node(day)].equality_delete_rows for day in (1, 2)] == [60, 180]


@given(strategies.live_files())
def test_a_score_is_from_0_to_100_and_its_parts_add_up(files: TableFiles) -> None:
    for metrics in measure(files, properties()).values():
        parts = score_parts(metrics, properties())
        assert parts is not None
        assert 0 <= parts.small_files <= 40
        assert 0 <= parts.equality_deletes <= 40
        assert 0 <= parts.position_deletes <= 20
        assert parts.total == parts.small_files + parts.equality_deletes + parts.position_deletes


@given(st.integers(751, 10**6), st.integers(1, 10**6))
def test_a_node_of_one_healthy_file_has_100_points(kb: int, rows: int) -> None:
    assert parts_of([data("a", kb, rows=rows)]).total == 100


@given(st.lists(st.tuples(st.integers(1, 1500), st.integers(1, 300)), min_size=2, max_size=40), st.data())
def test_merging_files_never_lowers_the_score(sizes: list[tuple[int, int]], draw: st.DataObject) -> None:
    files = [data(f"d{number}", kb, rows=rows) for number, (kb, rows) in enumerate(sizes)]
    merged = draw.draw(st.integers(2, len(files)))
    kb, rows = sum(kb for kb, _ in sizes[:merged]), sum(rows for _, rows in sizes[:merged])
    after = [*files[merged:], data("merged", kb, rows=rows)]
    assert parts_of(after).total >= parts_of(files).total


@given(strategies.live_files(), st.data())
def test_another_delete_never_raises_the_score(files: TableFiles, draw: st.DataObject) -> None:
    deletes = [file for file in files.files if not file.is_data]
    if not deletes:
        return
    gone = draw.draw(st.sampled_from(deletes))
    fewer = replace(files, files=tuple(file for file in files.files if file is not gone))
    before = measure(fewer, properties())
    for place, metrics in measure(files, properties()).items():
        with_it, without = score_parts(metrics, properties()), score_parts(before.get(place, NodeMetrics()), properties())
        assert with_it is not None
        assert without is not None
        assert with_it.total <= without.total


def test_figures_of_an_older_version_have_no_score_while_they_name_deletes() -> None:
    older = NodeMetrics(data_files=3, data_bytes=3_000_000, equality_delete_files=1, rows=300, deleted_rows_estimate=5)
    score = scored(older)
    assert (score.parts, score.total) == (None, None)
    assert score.text == (
        "not known: an older version of this program measured the files, and did not count the rows of deletes by kind; "
        "the score appears when the files change next"
    )
    # P = 3/12; equality = 40 - 40·0.25·(5/300)/0.1 = 38.33.
    assert scored(replace(older, equality_delete_rows=5)).total == 99
    assert scored(replace(older, equality_delete_files=0, deleted_rows_estimate=0)).total == 100


def scored(
    metrics: NodeMetrics, code: PlanReasonCode | None = PlanReasonCode.NOT_FRAGMENTED, kind: CompactionType | None = None
) -> HealthScore:
    verdict = NodeVerdict(node(), kind, PlanReason(code, "what the plan found"), metrics) if code is not None else None
    return node_score(metrics, properties(), verdict, node_health(verdict))


def measured(*files: LiveFile) -> NodeMetrics:
    return measure(table_files(*files), properties())[node()]


@pytest.mark.parametrize(
    ("files", "reason", "helping"),
    [
        (several(12, 50), "12 data files of 50.0 kB on average, where 750 kB are enough, cost 29 of 40 points", "MINOR"),
        (several(6, 300), "6 data files of 300 kB on average, where 750 kB are enough, cost 12 of 40 points", "MAJOR"),
        # They fill two files of the target size, and are two.
        (several(2, 600), "2 data files of 600 kB on average, where 750 kB are enough, cost 1 of 40 points", None),
        ([*several(6, 900), equality("e", rows=30)], "30 rows of equality deletes for 600 rows of data cost 10 of 40 points", "MINOR"),
        ([*several(6, 900), position("p", rows=60)], "60 deleted positions in 600 rows cost 5 of 20 points", "MAJOR"),
    ],
)
def test_the_sentences_name_what_costs_the_most_points_and_the_type_that_would_help(
    files: list[LiveFile], reason: str, helping: str | None
) -> None:
    score = scored(measured(*files))
    assert score.reason == reason
    would = f"; a {helping} would help, and `compact TABLE --type {helping.lower()}` forces it" if helping else ""
    assert score.remedy == f"nothing to do: what the plan found{would}"


def test_without_conversions_a_major_takes_the_equality_deletes_away() -> None:
    metrics, of = measured(*several(6, 900), equality("e", rows=30)), properties(conversions_enabled=False)
    verdict = NodeVerdict(node(), None, PlanReason(PlanReasonCode.NOT_FRAGMENTED, "why"), metrics)
    assert "; a MAJOR would help" in node_score(metrics, of, verdict, node_health(verdict)).remedy


@pytest.mark.parametrize(
    ("code", "kind", "remedy"),
    [
        (PlanReasonCode.PLANNED, CompactionType.MAJOR, "a MAJOR is due"),
        (PlanReasonCode.OVER_BUDGET, CompactionType.FULL, "a FULL is due, and waits"),
        (PlanReasonCode.FILES_IN_USE, None, "its tasks wait or run"),
        (PlanReasonCode.NO_GAIN, CompactionType.MINOR, "nothing to do: what the plan found"),
        (PlanReasonCode.LIVE_TWICE, None, "nothing to do: the program does not compact it as it is now"),
        (PlanReasonCode.INVALID_PROPERTY, None, "correct what makes its work fail"),
        (None, None, "`compaction-pipeline plan` says what is due"),
    ],
)
def test_the_remedy_follows_the_newest_verdict(code: PlanReasonCode | None, kind: CompactionType | None, remedy: str) -> None:
    assert scored(measured(*several(12, 50)), code, kind).remedy == remedy


def test_nothing_is_to_do_in_a_table_that_is_switched_off() -> None:
    off = properties(switched_on=False)
    for verdict in (None, NodeVerdict(node(), CompactionType.MINOR, PlanReason(PlanReasonCode.PLANNED, "old"), NodeMetrics())):
        score = node_score(measured(*several(12, 50)), off, verdict, node_health(verdict))
        assert score.remedy == "nothing to do: 'compaction.enabled' is false"


def test_a_node_that_loses_no_point_says_so() -> None:
    assert scored(measured(data("a", 10))).text == "100 of 100: one data file costs no point; nothing to do"
    assert scored(measured(*several(3, 900))).text == "100 of 100: 3 data files and their deletes cost no point; nothing to do"


def of(day: int, data_bytes: int, parts: ScoreParts | None, reason: str = "why") -> ScoredNode:
    return ScoredNode(node(day), data_bytes, HealthScore(parts, reason, f"remedy of {day}"))


def test_what_would_be_left_of_a_table_is_the_average_of_its_nodes_and_one_that_loses_no_point_keeps_its_own() -> None:
    files = table_files(*several(12, 50), data("h", 1000, day=2))
    scored = [
        ScoredNode(each, metrics.data_bytes, node_score(metrics, properties(), None, node_health(None)))
        for each, metrics in measure(files, properties()).items()
    ]
    assert [bool(each.score.after) for each in scored] == [True, False]
    found = table_score(scored)
    assert {kind: parts.total for kind, parts in found.after.items()} == dict.fromkeys(CompactionType, 100)
    assert found.text.endswith("; a MINOR would leave about 100 points, a MAJOR 100, a FULL 100")
    assert table_score(scored[1:]).text == "100 of 100: one data file costs no point; `compaction-pipeline plan` says what is due"


def test_a_tables_score_is_weighted_by_the_bytes_of_its_nodes() -> None:
    # Small: (40·900 + 10·100)/1,000 = 37; equality: (40·900 + 3·100)/1,000 = 36.3; position: 20.
    score = table_score([of(1, 900, ALL_POINTS), of(2, 100, ScoreParts.of(10, 3, 20), "12 files")])
    assert score.parts == ScoreParts.of(37, 37, 20)
    assert score.total == 94
    assert score.text == f"94 of 100 (small files 37/40, equality deletes 37/40, position deletes 20/20): {node(2)}: 12 files; remedy of 2"


def test_a_tables_sentences_are_those_of_the_node_that_costs_it_the_most() -> None:
    tiny_and_worst, large = of(1, 10, ScoreParts.of(0, 0, 0)), of(2, 1000, ScoreParts.of(20, 40, 20), "large")
    assert table_score([tiny_and_worst, large]).reason == f"{node(2)}: large"
    assert table_score([large]).reason == "large"


def test_a_table_of_several_nodes_that_lose_nothing_says_so() -> None:
    assert table_score([of(1, 10, ALL_POINTS), of(2, 90, ALL_POINTS)]).reason == "none of 2 nodes loses a point"


def test_nodes_without_a_score_are_counted_and_left_out() -> None:
    known, unknown = of(1, 10, ScoreParts.of(20, 40, 20)), of(2, 1000, None)
    score = table_score([known, unknown])
    assert score.total == 80
    assert "1 of 2 nodes do not count: an older version of this program measured the files" in score.reason
    assert table_score([unknown]).total is None


def test_a_table_without_files_has_all_points() -> None:
    assert table_score([]).text == "100 of 100: the table has no files; nothing to do"
    # The only files of its node are delete files.
    assert table_score([of(1, 0, ALL_POINTS)]).total == 100
