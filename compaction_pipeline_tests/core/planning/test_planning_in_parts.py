"""A plan that is made in parts equals the plan that is made at once. Parts let a table of a million files be planned in bounded memory."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compaction_pipeline.core.fragmentation.verdict import NodeHistory, PlanReasonCode
from compaction_pipeline.core.planning.plain import planner
from compaction_pipeline.core.planning.plain.planner import Planning, plan
from compaction_pipeline.core.planning.plan import Budget, CompactionPlan, PlanRequest
from compaction_pipeline.core.queue.open_work import InUse
from compaction_pipeline.core.tables.data_file import FileContent
from compaction_pipeline.core.tables.live_files import TableFiles, files_by_node
from compaction_pipeline.core.tables.node import TableNode
from compaction_pipeline.core.tables.ports.files import FileStore
from compaction_pipeline.core.tables.properties import TableProperties
from compaction_pipeline_tests import strategies
from compaction_pipeline_tests.builders import NOW, PLENTY, TABLE, UNPARTITIONED_SPEC, data, properties, table_files
from compaction_pipeline_tests.state import sqlite_stores

_NUMBERS = count()
"""Each plan has a table of its own in the one database of all examples."""


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FileStore]:
    stores = sqlite_stores(tmp_path_factory.mktemp("files"))
    yield stores.files
    stores.close()


@st.composite
def tables(draw: st.DrawFn) -> TableFiles:
    """Tables without global deletes, but with deletes that name files of other nodes, and with paths that are live in two nodes."""
    files = draw(strategies.live_files())
    kept = [file for file in files.files if not (file.content is FileContent.EQUALITY_DELETES and file.spec_id == UNPARTITIONED_SPEC)]
    nodes = sorted({file.node for file in kept}, key=str)
    moved = []
    for file in kept:
        if file.referenced_data_file is not None and draw(st.integers(0, 3)) == 0:
            node = draw(st.sampled_from(nodes))
            file = replace(file, spec_id=node.spec_id, partition=node.partition)
        moved.append(file)
        if file.is_data and draw(st.integers(0, 9)) == 0:
            node = draw(st.sampled_from(nodes))
            moved.append(replace(file, spec_id=node.spec_id, partition=node.partition))
    return replace(files, files=tuple(moved))


def in_parts(
    store: FileStore,
    files: TableFiles,
    in_use: InUse,
    rules: TableProperties,
    request: PlanRequest,
    budget: Budget,
    nodes_of_part: int = 1,
    by_figures: bool = False,
) -> CompactionPlan:
    table = replace(TABLE, name=f"t{next(_NUMBERS)}")
    store.apply(table, (), {"m": files.files})
    planning = Planning(in_use, rules, request, NodeHistory(), budget, NOW)
    nodes = list(files_by_node(files.files))
    if by_figures:
        figures = store.figures(table, rules.fragment_size_bytes, rules.undersized_bytes)
        paths = in_use.paths | in_use.pending.keys()
        needed = {*store.named_from_elsewhere(table), *(file.node for file in files.files if file.path in paths)}
        nodes = [node for node in nodes if node in needed or not planning.add_by_figures(node, figures[node])]
    for start in range(0, len(nodes), nodes_of_part):
        part = nodes[start : start + nodes_of_part]
        planning.add(replace(files, files=tuple(store.files(table, part))), frozenset(part))
    return planning.plan()


def shown(plan: CompactionPlan, files: TableFiles) -> tuple[object, ...]:
    """The content of a plan, without the order of its tasks and without the manifests of its files.

    For a node with a path that is live in several nodes, the type and the reason are left out, and the estimate of deleted rows is left
    out everywhere: a part knows only the deletes of its own nodes, so these may differ. No task takes a file of such a path.
    """
    nodes_of = defaultdict(set)
    for file in files.files:
        nodes_of[file.path].add(file.node)
    shared = {node for nodes in nodes_of.values() if len(nodes) > 1 for node in nodes}
    tasks = {
        (work.node, work.action, frozenset(f.path for f in work.inputs), frozenset(f.path for f in work.deletes), work.group, work.converts)
        for work in plan.tasks
    }
    figures = (plan.predicted_files, plan.predicted_delete_files, plan.predicted_bytes)
    verdicts = {
        (
            verdict.node,
            *((verdict.type, verdict.reason.code) if verdict.node not in shared else ()),
            replace(verdict.metrics, deleted_rows_estimate=0),
        )
        for verdict in plan.verdicts
    }
    return frozenset(tasks), verdicts, plan.reason.code, frozenset(plan.replaces), figures


@given(data=st.data(), files=tables(), rules=strategies.table_properties(), request=strategies.requests)
def test_parts_make_the_same_plan(
    store: FileStore, data: st.DataObject, files: TableFiles, rules: TableProperties, request: PlanRequest
) -> None:
    in_use = data.draw(strategies.in_use(files))
    whole = plan(files, in_use, rules, request, NodeHistory(), PLENTY, NOW)
    assert shown(in_parts(store, files, in_use, rules, request, PLENTY), files) == shown(whole, files)
    assert shown(in_parts(store, files, in_use, rules, request, PLENTY, nodes_of_part=2), files) == shown(whole, files)
    assert shown(in_parts(store, files, in_use, rules, request, PLENTY, by_figures=True), files) == shown(whole, files)


@given(files=tables(), rules=strategies.table_properties())
def test_a_node_judged_by_sums_is_left_alone_for_the_same_reason(store: FileStore, files: TableFiles, rules: TableProperties) -> None:
    # Each path is live once, because sums count copies of a path as files although no task takes them.
    files = replace(files, files=tuple({file.path: file for file in files.files}.values()))
    whole = plan(files, InUse(), rules, PlanRequest(), NodeHistory(), PLENTY, NOW)
    parts = in_parts(store, files, InUse(), rules, PlanRequest(), PLENTY, by_figures=True)
    assert frozenset(parts.verdicts) == frozenset(whole.verdicts)
    assert parts.reason.code is whole.reason.code


def crowded(days: int) -> TableFiles:
    return table_files(*(data(f"{day}-{number}", 10, day=day) for day in range(days) for number in range(12 + day)))


def test_tasks_over_the_budget_are_dropped_while_planning_with_a_reason(store: FileStore) -> None:
    files, budget = crowded(6), Budget(2, 1 << 60)
    whole = plan(files, InUse(), properties(), PlanRequest(), NodeHistory(), budget, NOW)
    before, planner._HELD_FILES = planner._HELD_FILES, 20
    try:
        parts = in_parts(store, files, InUse(), properties(), PlanRequest(), budget)
    finally:
        planner._HELD_FILES = before
    assert shown(parts, files) == shown(whole, files)
    codes = [verdict.reason.code for verdict in parts.verdicts]
    assert (codes.count(PlanReasonCode.PLANNED), codes.count(PlanReasonCode.OVER_BUDGET)) == (2, 4)
    assert {work.node for work in parts.tasks} == {node for node in files_by_node(files.files) if str(node) in ("dt=4", "dt=5")}


def test_without_a_free_slot_no_delete_files_are_dropped_in_place_of_tasks(store: FileStore) -> None:
    files = crowded(2)
    before, planner._HELD_FILES = planner._HELD_FILES, 1
    try:
        parts = in_parts(store, files, InUse(), properties(), PlanRequest(), Budget(0, 1 << 60))
    finally:
        planner._HELD_FILES = before
    assert (parts.tasks, parts.reason.code) == ((), PlanReasonCode.OVER_BUDGET)


def test_nodes_that_were_asked_for_and_are_gone_are_said_to_have_no_files() -> None:
    gone = PlanRequest(nodes=frozenset({TableNode(9)}))
    planning = Planning(InUse(), properties(), gone, NodeHistory(), PLENTY, NOW)
    assert planning.plan().reason.code is PlanReasonCode.NOT_REQUESTED
