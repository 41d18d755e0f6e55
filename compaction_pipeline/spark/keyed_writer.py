"""Writes rows of a keyed table, changes or base rows, on Spark: each tree node's rows go to one Spark task, which writes their files.

Nothing is committed here. Spark may run a task twice; only the files that the accepted run names are used.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing

import pyarrow as pa
from pydantic import TypeAdapter
from pyspark import TaskContext
from pyspark.sql import DataFrame
from pyspark.sql.types import IntegerType, StructField, StructType

from compaction_pipeline.core.errors import CompactionError, ConfigError, MergeFailed
from compaction_pipeline.core.tables.data_file import OutputFile
from compaction_pipeline.merging.keyed.change_rows import ChangeWriterId, key_columns
from compaction_pipeline.merging.keyed.change_writer import StoreTarget
from compaction_pipeline.merging.keyed.key_hashes import key_hashes
from compaction_pipeline.merging.reading.file_access import FileAccess

RowsWriter = Callable[[StoreTarget, pa.Table, FileAccess, ChangeWriterId], list[OutputFile]]
"""Writes an Arrow table as files of a store. Spark sends it to its workers."""
_NODE = "_tree_node"
_FILES: TypeAdapter[Sequence[OutputFile]] = TypeAdapter(Sequence[OutputFile])
_RESULT_SCHEMA = "files string, problem string, kind string"


def write_on_spark(target: StoreTarget, frame: DataFrame, write: RowsWriter, file_io: Mapping[str, str]) -> list[OutputFile]:
    """Write the rows of a Spark DataFrame. Each Spark task writes the rows of its nodes with `write`. Returns the files.

    A Spark task holds the rows of its nodes in memory. Raises ConfigError when `write` does, and MergeFailed for another error of ours; the
    files that other tasks have written are deleted then.
    """
    located = frame.mapInArrow(_located(target), StructType([*frame.schema.fields, StructField(_NODE, IntegerType())]))
    spread = located.repartition(target.buckets, _NODE)
    results = spread.mapInArrow(_written(target, write, dict(file_io)), _RESULT_SCHEMA).collect()
    outputs = [output for result in results if result["files"] for output in _FILES.validate_json(result["files"])]
    problems = [(result["kind"], result["problem"]) for result in results if result["problem"]]
    if problems:
        files = FileAccess(file_io, target.shape.layout.location)
        with closing(files):
            files.written += [output.path for output in outputs]
            files.delete_written()
        kind, problem = problems[0]
        raise (ConfigError if kind == ConfigError.__name__ else MergeFailed)(problem)
    return outputs


def _located(target: StoreTarget) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Add the index of each row's node."""
    types = [str(target.schema.find_field(name).field_type) for name in target.key]

    def locate(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            indexes = key_hashes(key_columns(pa.Table.from_batches([batch]), target), types, batch.num_rows) & (target.buckets - 1)
            yield batch.append_column(_NODE, pa.array(indexes, pa.int32()))

    return locate


def _written(
    target: StoreTarget, write: RowsWriter, file_io: Mapping[str, str]
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def written(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        held = list(batches)
        rows = pa.Table.from_batches(held) if held else None
        if rows is None or not rows.num_rows:
            return
        context = TaskContext.get()
        writer = ChangeWriterId.of(context.partitionId(), context.taskAttemptId()) if context is not None else ChangeWriterId.alone()
        files = FileAccess(file_io, target.shape.layout.location)
        with closing(files):
            try:
                outputs = write(target, rows.drop_columns([_NODE]), files, writer)
                answer = {"files": _FILES.dump_json(outputs).decode(), "problem": None, "kind": None}
            except CompactionError as error:
                files.delete_written()
                answer = {"files": None, "problem": str(error), "kind": type(error).__name__}
            except BaseException:
                files.delete_written()
                raise
        yield pa.RecordBatch.from_pylist([answer], schema=pa.schema([(name, pa.string()) for name in answer]))

    return written
