"""A sink hands the small files that it wrote to the process that merges: the same bytes as on storage, which nobody reads again."""

from __future__ import annotations

import itertools
import math
import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyiceberg.schema import Schema
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
    TimestampType,
    TimestamptzType,
    TimeType,
    UUIDType,
)

from compaction_pipeline.core.ids import TaskId
from compaction_pipeline.core.tables.data_file import LiveFile
from compaction_pipeline.core.tables.keyed.changes import Batch
from compaction_pipeline.core.tables.keyed.small_files import SmallFiles
from compaction_pipeline.core.tables.properties import resolve_properties
from compaction_pipeline.file_io.object_io import OBJECT_FILE_IO
from compaction_pipeline.iceberg.catalogs import SqlCatalog
from compaction_pipeline.iceberg.keyed.stores import load_stores
from compaction_pipeline.keyed import KeyedTable, MergingSink
from compaction_pipeline.keyed.append import append_rows
from compaction_pipeline.keyed.merging_sink import _live
from compaction_pipeline.keyed.sink_merges import SinkMerges, _file_io
from compaction_pipeline.merging.kernel import merge_task
from compaction_pipeline_tests.every_type import EVERY_PRIMITIVE
from compaction_pipeline_tests.keyed.written import table_of
from compaction_pipeline_tests.object_store import BUCKET, Fault, ObjectStore, object_store

_COLUMNS = {f"c{number}": kind for number, kind in enumerate(EVERY_PRIMITIVE, 2)}
_TEXT, _REAL = (next(name for name, kind in _COLUMNS.items() if isinstance(kind, of)) for of in (StringType, DoubleType))
_SCHEMA = Schema(
    NestedField(1, "id", LongType(), required=True),
    *[NestedField(number, name, kind) for number, (name, kind) in enumerate(_COLUMNS.items(), 2)],
    NestedField(
        30,
        "inner",
        StructType(NestedField(31, "x", DoubleType()), NestedField(32, "list", ListType(33, LongType(), element_required=False))),
    ),
    NestedField(40, "map", MapType(41, StringType(), 42, DoubleType(), value_required=False)),
)
_LONG = timedelta(hours=1)
_HOLD = 64 * 1024 * 1024


class OnStore:
    """A keyed table on an object store."""

    def __init__(self, folder: Path, store: ObjectStore) -> None:
        self.store = store
        warehouse = {"warehouse": f"s3://{BUCKET}/{folder.name}", "py-io-impl": OBJECT_FILE_IO, **store.properties}
        self.catalog = SqlCatalog("lake", uri=f"sqlite:///{folder}/catalog.db", **warehouse)
        self.catalog.create_namespace("db")
        self.table = KeyedTable.create(self.catalog, "db.t", _SCHEMA, ["id"], buckets=2, upsert=True, delta_rewrite=True)
        self.batches = itertools.count()

    def object(self, path: str) -> bytes:
        return self.store.objects[path.removeprefix(f"s3://{BUCKET}/")]

    def append(self, rows: Sequence[dict[str, Any]]) -> tuple[list[LiveFile], dict[str, bytes]]:
        stores = load_stores(self.catalog, ("db", "t"))
        batch = Batch("test", next(self.batches))
        appended = append_rows(stores, table_of([("INSERT", row) for row in rows], _SCHEMA), None, batch, {}, _HOLD)
        assert appended is not None
        return [_live(file, appended) for file in appended.files], dict(appended.contents)

    def merged(self, nodes: Any, held: dict[str, bytes], *, storage_has_inputs: bool) -> list[bytes]:
        """The outputs of a merge of these nodes. Their names are random."""
        stores = load_stores(self.catalog, ("db", "t"))
        properties = resolve_properties(stores.base.properties, {})
        merges = SinkMerges(lambda: stores, properties, _HOLD, lambda *_: [], lambda: None)
        outputs = []
        inputs = {file.path.removeprefix(f"s3://{BUCKET}/") for _, files in nodes for file in files}
        if not storage_has_inputs:
            self.store.fault = lambda method, key: Fault("status", 404, "NoSuchKey") if method == "GET" and key in inputs else None
        try:
            for number, (node, files) in enumerate(nodes):
                task = replace(merges._task(stores, node, files), task_id=TaskId(f"t{number}"))
                result = merge_task(task, _file_io(stores), held=held, sleep=lambda seconds: None)
                assert result.error is None, result.error
                outputs += [self.object(output.path) for output in result.outputs]
        finally:
            self.store.fault = lambda method, key: None
        return outputs


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OnStore]:
    with object_store() as store:
        yield OnStore(tmp_path_factory.mktemp("handed"), store)


_FLOATS = st.floats() | st.sampled_from([math.nan, -math.nan, 0.0, -0.0, math.inf, -math.inf, 5e-324, 1.7976931348623157e308])
_SINGLES = st.floats(width=32) | st.sampled_from([math.nan, 0.0, -0.0, math.inf, -math.inf, struct.unpack("<f", b"\1\0\0\0")[0]])
_MOMENTS = st.datetimes(datetime(1, 1, 1), datetime(9999, 12, 31)) | st.sampled_from(
    [datetime(1970, 1, 1), datetime(1969, 12, 31, 23, 59, 59, 999999), datetime(1, 1, 1), datetime(9999, 12, 31, 23, 59, 59, 999999)]
)
_TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
_VALUES_OF: dict[type, Callable[[Any], st.SearchStrategy[Any]]] = {
    BooleanType: lambda kind: st.booleans(),
    IntegerType: lambda kind: st.integers(-(2**31), 2**31 - 1) | st.sampled_from([-(2**31), 2**31 - 1]),
    LongType: lambda kind: st.integers(-(2**63), 2**63 - 1),
    FloatType: lambda kind: _SINGLES,
    DoubleType: lambda kind: _FLOATS,
    DecimalType: lambda kind: st.integers(1 - 10**kind.precision, 10**kind.precision - 1).map(
        lambda digits: Decimal(f"{digits}E-{kind.scale}")
    ),
    DateType: lambda kind: st.dates() | st.sampled_from([date.min, date.max]),
    TimeType: lambda kind: st.times() | st.sampled_from([time.min, time.max]),
    TimestampType: lambda kind: _MOMENTS,
    TimestamptzType: lambda kind: _MOMENTS.map(lambda moment: moment.replace(tzinfo=timezone.utc)),
    StringType: lambda kind: _TEXTS,
    UUIDType: lambda kind: st.binary(min_size=16, max_size=16),
    FixedType: lambda kind: st.binary(min_size=len(kind), max_size=len(kind)),
    BinaryType: lambda kind: st.binary(max_size=20),
}
_VALUES = {
    **{name: _VALUES_OF[type(kind)](kind) for name, kind in _COLUMNS.items()},
    "inner": st.fixed_dictionaries({"x": st.none() | _FLOATS, "list": st.none() | st.lists(st.none() | st.integers(-(2**63), 2**63 - 1))}),
    "map": st.dictionaries(_TEXTS, st.none() | _FLOATS, max_size=3).map(lambda pairs: list(pairs.items())),
}
_IDS = st.integers(0, 3) | st.integers(-(2**63), 2**63 - 1)
_ROWS = st.fixed_dictionaries({"id": _IDS, **{name: st.none() | values for name, values in _VALUES.items()}})


@given(st.lists(st.lists(_ROWS, min_size=1, max_size=4), min_size=2, max_size=3))
@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
def test_a_merge_of_handed_files_writes_what_a_merge_of_read_files_writes(table: OnStore, batches: list[list[dict[str, Any]]]) -> None:
    small, held = SmallFiles(_LONG, _HOLD, _HOLD), {}
    for rows in batches:
        files, contents = table.append(rows)
        small.add(files, datetime.now(timezone.utc))
        held.update(contents)
        assert {path: table.object(path) for path in contents} == contents
        assert set(contents) == {file.path for file in files}
    nodes = small.due(datetime.now(timezone.utc), ends=True)
    handed = table.merged(nodes, held, storage_has_inputs=False)
    read = table.merged(nodes, {}, storage_has_inputs=True)
    assert handed == read


def test_a_handed_file_of_another_size_is_read_from_storage(table: OnStore) -> None:
    small = SmallFiles(_LONG, _HOLD, _HOLD)
    for number in range(2):
        small.add(table.append([{"id": one, _TEXT: f"{number}"} for one in range(8)])[0], datetime.now(timezone.utc))
    nodes = small.due(datetime.now(timezone.utc), ends=True)
    wrong = {file.path: b"PAR1" for _, files in nodes for file in files}
    assert table.merged(nodes, wrong, storage_has_inputs=True) == table.merged(nodes, {}, storage_has_inputs=True)


def written_by_sink(table: OnStore, batches: int, room_bytes: int | None = None) -> tuple[MergingSink, list[tuple[str, str]]]:
    """A sink after so many batches and the merge at its end, and the requests for the small files."""
    table.store.counts()
    first = next(table.batches)
    with table.table.merging_sink("sink", interval=_LONG) as sink:
        if room_bytes is not None:
            sink._room_bytes = room_bytes
        for batch in range(first, first + batches):
            rows = [("INSERT", {"id": one, _TEXT: f"v{batch}", _REAL: -0.0}) for one in range(8)]
            sink.write_changes(table_of(rows, _SCHEMA), batch=batch)
            next(table.batches)
    of_data = [(method, key) for method, key in table.store.requests if "/data/" in key and "sink-" not in key]
    found = {row["id"]: row[_TEXT] for row in table.table.scan().to_arrow().select(["id", _TEXT]).to_pylist() if row["id"] in range(8)}
    assert found == dict.fromkeys(range(8), f"v{first + batches - 1}")
    return sink, of_data


def test_the_process_that_merges_reads_no_small_file_of_the_sink(table: OnStore) -> None:
    sink, requests = written_by_sink(table, 4)
    assert (sink.figures.merged_files, sink.figures.problem) == (len(requests), None)
    assert {method for method, _ in requests} == {"PUT"}
    assert not sink._held


def test_files_beyond_the_room_are_read_from_storage(table: OnStore) -> None:
    sink, requests = written_by_sink(table, 6, room_bytes=20_000)
    methods = [method for method, _ in requests]
    assert (sink.figures.merged_files, sink.figures.problem) == (methods.count("PUT"), None)
    assert 0 < methods.count("GET") < methods.count("PUT")
