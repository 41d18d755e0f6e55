"""Hypothesis strategies of core values, in one place."""

from __future__ import annotations

from hypothesis import strategies as st

from compaction_pipeline.core.planning.plan import PlanRequest
from compaction_pipeline.core.queue.open_work import InUse
from compaction_pipeline.core.tables.data_file import LiveFile
from compaction_pipeline.core.tables.keyed.tree import DataTreeNode
from compaction_pipeline.core.tables.live_files import TableFiles
from compaction_pipeline.core.tables.node import Partition, PartitionValue, TableNode
from compaction_pipeline.core.tables.properties import TableProperties
from compaction_pipeline.core.tables.table import TableIdentifier
from compaction_pipeline.core.work.kinds import CompactionType
from compaction_pipeline_tests import builders

_text = st.text(st.characters(codec="utf-8"), max_size=20)
names = _text.filter(bool) | st.sampled_from(["a.b", "a/b", "~", "null", "%2E", "=", "&"])
values = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | _text
value_texts = st.sampled_from(["null", "", ".", "..", "/", "~", "a~b", "=", "&", "%7E", "2024-01-01", "…", "日本"])
_BORDER_KB = [1, 10, 60, 124, 125, 126, 200, 300, 400, 500, 510, 700, 750, 751, 900, 1000, 1100, 1600, 2600]


@st.composite
def table_identifiers(draw: st.DrawFn) -> TableIdentifier:
    return TableIdentifier(draw(names), tuple(draw(st.lists(names, min_size=1, max_size=3))), draw(names))


@st.composite
def tree_nodes(draw: st.DrawFn, deepest: int = 20) -> DataTreeNode:
    mask = (1 << draw(st.integers(0, deepest))) - 1
    return DataTreeNode(mask, draw(st.integers(0, mask)))


@st.composite
def table_nodes(draw: st.DrawFn) -> TableNode:
    fields = draw(st.lists(st.tuples(names, values | value_texts), max_size=4))
    partition: Partition = tuple(PartitionValue(name, "string", value) for name, value in fields)
    return TableNode(draw(st.integers(0, 5)), partition, draw(tree_nodes(6)))


@st.composite
def live_files(draw: st.DrawFn, max_data: int = 14, max_deletes: int = 8) -> TableFiles:
    """A table with two partitions, files of an old spec, and global deletes. File sizes lie around the thresholds of `properties()`."""
    sizes = st.sampled_from(_BORDER_KB) | st.integers(1, 1500)
    places = st.sampled_from([(0, 1), (0, 1), (0, 1), (0, 2), (1, 1)])
    files: list[LiveFile] = []
    for number in range(draw(st.integers(0, max_data))):
        spec, day = draw(places)
        files.append(
            builders.data(f"d/{number:02}", draw(sizes), draw(st.integers(1, 6)), day=day, spec=spec, rows=draw(st.integers(1, 300)))
        )
    data = list(files)
    for number in range(draw(st.integers(0, max_deletes))):
        spec, day = draw(places)
        sequence, kb, rows = draw(st.integers(1, 7)), draw(st.sampled_from([1, 5, 200])), draw(st.integers(1, 60))
        kind = draw(st.sampled_from(["equality", "equality", "global", "one", "one", "one", "many", "bounded"]))
        path = f"x/{number:02}"
        if kind == "equality":
            files.append(builders.equality(path, sequence, kb=kb, day=day, spec=spec, rows=rows))
        elif kind == "global":
            files.append(builders.global_equality(path, sequence, kb=kb, rows=rows))
        elif kind == "one" and data:
            of = draw(st.sampled_from(data))
            files.append(builders.position(path, sequence, of=of.path, kb=kb, spec=of.spec_id, where=of.partition, rows=rows))
        else:
            bounds = ("d/00", "d/05") if kind == "bounded" else None
            files.append(builders.position(path, sequence, kb=kb, day=day, spec=spec, rows=rows, bounds=bounds))
    return builders.table_files(*draw(st.permutations(files)), sequence=7)


@st.composite
def in_use(draw: st.DrawFn, files: TableFiles) -> InUse:
    """Some data files are in running tasks, some in two Pending tasks, and sometimes a MAJOR runs on a node."""
    data = [file for file in files.files if file.is_data]
    if not data or draw(st.booleans()):
        return InUse()
    busy = draw(st.lists(st.sampled_from(data), max_size=3))
    waiting = draw(st.lists(st.sampled_from(data), max_size=4))
    nodes = draw(st.lists(st.sampled_from(data), max_size=1))
    paths = frozenset(file.path for file in busy)
    pending = {
        file.path: f"task-{index % 2} of {file.node.spec_id}/{file.node}" for index, file in enumerate(waiting) if file.path not in paths
    }
    return InUse(paths, frozenset(file.node for file in nodes if draw(st.booleans())), pending)


requests = st.sampled_from(
    [
        PlanRequest(),
        PlanRequest(),
        PlanRequest(force=True),
        PlanRequest((CompactionType.MINOR,)),
        *(PlanRequest((kind,), force=True) for kind in CompactionType),
        PlanRequest(tuple(CompactionType), force=True),
    ]
)


@st.composite
def table_properties(draw: st.DrawFn) -> TableProperties:
    return builders.properties(
        task_kb=draw(st.sampled_from([1000, 1000, 2000, 5000, 100_000])),
        minor_file_count=draw(st.sampled_from([2, 3, 5])),
        fragment_ratio=draw(st.sampled_from([2, 8])),
        min_target_size_ratio=draw(st.sampled_from([0.5, 0.75, 1.0])),
        major_duplicate_ratio=draw(st.sampled_from([0.05, 0.1, 0.5])),
        conversions_enabled=draw(st.sampled_from([True, True, False])),
    )
