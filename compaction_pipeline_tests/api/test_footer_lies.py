"""Lies in files: what a footer says falsely, and files that are no files. The report itself is true to the file.

Each is refused through both doors, and all rows stay. What only the pages show has a list of its own.
"""

from __future__ import annotations

import os
import tracemalloc
from collections.abc import Callable, Mapping
from copy import deepcopy
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from pydantic import TypeAdapter

from compaction_pipeline.core.errors import MergeRefused, OutputUnusable
from compaction_pipeline.core.queue.task import TaskStatus
from compaction_pipeline.core.tables.data_file import OutputFile
from compaction_pipeline.core.work.ends import EndReason
from compaction_pipeline.core.work.kinds import TaskAction
from compaction_pipeline.core.work.result import MergeResult
from compaction_pipeline.formats.parquet.thrift import BINARY, DOUBLE, I32, I64, LIST, STRUCT, Struct
from compaction_pipeline.merging.reading.file_access import FileAccess
from compaction_pipeline.merging.reported.describe import MOST_FOOTER_VALUES
from compaction_pipeline_tests.api.liars import (
    DOORS,
    ID,
    KEY,
    NAME,
    PRICE,
    ROWS,
    OverHttp,
    OwnProcess,
    as_report,
    check_rows,
    check_that_nobody_was_harmed,
    commit,
    merged,
)
from compaction_pipeline_tests.api.served import Served
from compaction_pipeline_tests.api.tampered import (
    LONG_5,
    ONLY_PAGES_SHOW,
    FooterLie,
    bounds,
    chunk,
    column,
    groups,
    in_statistics,
    local,
    nothing,
    rewritten,
    statistics,
    tampered,
)
from compaction_pipeline_tests.iceberg.lake import LakeTable
from compaction_pipeline_tests.merging.files import Table, long
from compaction_pipeline_tests.works import judge, merge_task

TAGS = 7
"""The column of lists, whose elements have the id `TAG`."""


def element(meta: Struct, number: int) -> Struct:
    """A `SchemaElement`. The root has number 0."""
    found: Struct = meta[2][1][1][number]
    return found


def in_group(field: int, value: Any) -> FooterLie:
    return lambda meta: groups(meta)[0].update({field: value})


def in_column(number: int, field: int, value: Any) -> FooterLie:
    return lambda meta: column(meta, number).update({field: value})


def in_chunk(number: int, field: int, value: Any) -> FooterLie:
    return lambda meta: chunk(meta, number).update({field: value})


def in_element(number: int, field: int, value: Any) -> FooterLie:
    return lambda meta: element(meta, number).update({field: value})


def twice(rows: int, again: int) -> FooterLie:
    """The one row group stands in the footer twice."""

    def lie(meta: Struct) -> None:
        other = deepcopy(groups(meta)[0])
        groups(meta)[0][3], other[3] = (I64, rows), (I64, again)
        groups(meta).append(other)

    return lie


def swapped(meta: Struct) -> None:
    elements = meta[2][1][1]
    elements[1], elements[2] = elements[2], elements[1]


FOOTERS: Mapping[str, FooterLie] = {
    "fewer rows": lambda meta: (meta.update({3: (I64, ROWS - 1)}), groups(meta)[0].update({3: (I64, ROWS - 1)})),
    "rows that do not add up": lambda meta: meta.update({3: (I64, ROWS - 1)}),
    "a row group twice": twice(ROWS // 2, ROWS // 2),
    "a row group without rows": twice(ROWS, 0),
    "a row group of fewer than no rows": twice(ROWS + 5, -5),
    "no row groups": lambda meta: meta.update({4: (LIST, (STRUCT, [])), 3: (I64, 0)}),
    "a row group without columns": in_group(1, (LIST, (STRUCT, []))),
    "a column less": lambda meta: groups(meta)[0][1][1][1].pop(),
    "a row group of another size": in_group(6, (I64, 2**40)),
    "a row group of another size before compression": in_group(2, (I64, 1)),
    "a row group elsewhere": in_group(5, (I64, 2**40)),
    "a row group of another number": in_group(7, (I32, 3)),
    "a row group that is said to be sorted": in_group(4, (LIST, (STRUCT, []))),
    "another id": in_element(1, 9, (I32, 99)),
    "ids exchanged": lambda meta: (element(meta, 1).update({9: (I32, 2)}), element(meta, 2).update({9: (I32, 1)})),
    "no id": lambda meta: element(meta, 1).pop(9),
    "columns exchanged": swapped,
    "another name": in_element(1, 4, (BINARY, b"other")),
    "another type": in_element(1, 1, (I32, 1)),
    "another annotation": lambda meta: element(meta, 2).pop(10),
    "an optional column that is required": in_element(1, 3, (I32, 1)),
    "a repeated column": in_element(2, 3, (I32, 2)),
    "a column more": lambda meta: (meta[2][1][1].append(dict(element(meta, 1))), element(meta, 0).update({5: (I32, 12)})),
    "a type of a column that is not the schema's": in_chunk(ID, 1, (I32, 1)),
    "a path of a column that is not the schema's": in_chunk(ID, 3, (LIST, (BINARY, [b"name"]))),
    "pages of another column": lambda meta: chunk(meta, NAME).update({9: chunk(meta, ID)[9]}),
    "a column that begins in the bytes of the one before": lambda meta: chunk(meta, NAME).update(
        {number: (I64, chunk(meta, NAME)[number][1] - 1) for number in (9, 11) if number in chunk(meta, NAME)}
    ),
    "a column outside of the file": in_chunk(ID, 9, (I64, 2**40)),
    "a column in the magic bytes": in_chunk(ID, 9, (I64, 0)),
    "a column of a negative length": in_chunk(ID, 7, (I64, -1)),
    "a column of no length": in_chunk(ID, 7, (I64, 0)),
    "a column as long as the file": in_chunk(ID, 7, (I64, 2**40)),
    "a dictionary behind the data": lambda meta: chunk(meta, ID).update({11: chunk(meta, ID)[9]}),
    "no dictionary where one is": lambda meta: chunk(meta, ID).pop(11),
    "a page index": in_column(ID, 6, (I64, 4)),
    "an offset index": in_column(ID, 4, (I64, 4)),
    "a bloom filter": in_chunk(ID, 14, (I64, 4)),
    "pages of an index": in_chunk(ID, 10, (I64, 4)),
    "keys and values of a column": in_chunk(ID, 8, (LIST, (STRUCT, []))),
    "another file": in_column(ID, 1, (BINARY, b"other.parquet")),
    "an encrypted column": in_column(ID, 8, (STRUCT, {1: (STRUCT, {})})),
    "an encrypted file": lambda meta: meta.update({8: (STRUCT, {1: (STRUCT, {})})}),
    "keys and values": lambda meta: meta.update({5: (LIST, (STRUCT, [{1: (BINARY, b"ARROW:schema"), 2: (BINARY, b"x")}]))}),
    "a codec that nobody has": in_chunk(ID, 4, (I32, 3)),
    "an encoding that nobody has": in_chunk(ID, 2, (LIST, (I32, [77]))),
    "fewer values than rows": in_chunk(ID, 5, (I64, ROWS - 1)),
    "more values than rows": in_chunk(ID, 5, (I64, ROWS + 1)),
    "more NULLs than values": in_statistics(NAME, 3, (I64, ROWS + 1)),
    "fewer than no NULLs": in_statistics(NAME, 3, (I64, -1)),
    "NULLs of a required column": in_statistics(ID, 3, (I64, 1)),
    "old bounds that differ": in_statistics(ID, 2, (BINARY, LONG_5)),
    "statistics of another kind": in_statistics(ID, 4, (I64, 1)),
    # Other readers pass over a field of another kind, as if it was not there. So its value would count for the manifest alone.
    "a bound that other readers do not see": lambda meta: statistics(meta, ID).update({5: (DOUBLE, LONG_5), 6: (DOUBLE, LONG_5)}),
    "a number of NULLs that other readers do not see": in_statistics(NAME, 3, (I32, ROWS)),
    "a number of NULLs of more than 64 bits": in_statistics(NAME, 3, (I64, 2**64 + 1)),
    "statistics that other readers do not see": lambda meta: chunk(meta, ID).update({12: (LIST, (STRUCT, [chunk(meta, ID)[12][1]]))}),
    "an encoding of more than 32 bits": in_chunk(ID, 13, (LIST, (STRUCT, [{1: (I32, 0), 2: (I32, 2**32), 3: (I32, 1)}]))),
    "a number of rows that other readers do not see": in_group(3, (I32, ROWS)),
    "encodings of another kind": in_chunk(ID, 2, (LIST, (I64, [0, 3]))),
    "a root with a type": in_element(0, 1, (I32, 2)),
    "no version": lambda meta: meta.pop(1),
    "no place of a column": lambda meta: column(meta, ID).pop(2),
    "no size before compression": lambda meta: groups(meta)[0].pop(2),
    "an element's bound that is no text": bounds(TAGS, b"\xff", b"\xff\xff"),
    "a UUID's bound of 4 bytes": bounds(KEY, b"\0\0\0\0", b"\0\0\0\0"),
    "a UUID's lower bound above the upper one": bounds(KEY, b"\1" * 16, b"\0" * 16),
    "an upper zero that leaves out the positive one": bounds(PRICE, bytes.fromhex("000000000000f0bf"), bytes.fromhex("0000000000000080")),
    "a zero that leaves out the negative one": bounds(PRICE, bytes(8), b"\0" * 6 + b"\x28\x40"),
    "NaN as a bound": bounds(PRICE, bytes.fromhex("000000000000f87f"), bytes.fromhex("000000000000f87f")),
    "a lower bound above the upper one": bounds(ID, (9).to_bytes(8, "little"), LONG_5),
    "a bound that is no text": bounds(NAME, b"\xff", b"\xff\xff"),
    "a long of 4 bytes": bounds(ID, b"\0\0\0\0", b"\0\0\0\0"),
    "no order of the bounds": lambda meta: meta.pop(7),
    "an order that nobody knows": lambda meta: meta.update({7: (LIST, (STRUCT, [{9: (STRUCT, {})}] * 11))}),
    "a writer with known faults": lambda meta: meta.update({6: (BINARY, b"parquet-cpp-arrow version 1.0.0")}),
    "another writer": lambda meta: meta.update({6: (BINARY, b"parquet-mr version 1.2.0")}),
    "no writer": lambda meta: meta.pop(6),
}


BYTES: Mapping[str, Callable[[bytes], bytes]] = {
    "bytes behind the footer": lambda footer: footer + b"\0" * 10,
    "half a footer": lambda footer: footer[: len(footer) // 2],
    "a field twice": lambda footer: b"\x15\x04" + b"\x05\x02\x04" + footer[2:],
    "no Thrift": lambda footer: b"\xff" * len(footer),
    "nothing but stops": lambda footer: b"\0" * len(footer),
    "lists in lists": lambda footer: b"\x19\xfc\xff\xff\xff\xff\x0f" + footer,
    "a list of 2³² elements": lambda footer: b"\x15\x04\x19\xfc\x80\x80\x80\x80\x10" + footer,
}


def refused(told: TaskStatus | None) -> bool:
    """Whether an attempt ended without a merge: the task waits for another one."""
    return told is TaskStatus.PENDING


def test_a_rewritten_footer_alone_is_no_lie(served: Served, table: LakeTable) -> None:
    """This shows that the other tests are refused for their lies, and not because the file was written again."""
    door = OverHttp(served)
    taken = door.take()
    assert door.tell(taken.attempt_id, rewritten(merged(taken), tampered(nothing))) is TaskStatus.PREPARED
    assert commit(served) == ["COMMITTED"]
    check_rows(table)


LIES_OF_FILES: Mapping[str, Callable[[bytes], bytes]] = {**{name: tampered(lie) for name, lie in FOOTERS.items()}, **BYTES}
"""A footer lies in the file, and both doors bring only its path. So one of them brings every lie, and the other one each eighth."""


@pytest.mark.parametrize(("way", "each"), [("in this process", 1), ("over HTTP", 8), pytest.param("over HTTP", 1, marks=pytest.mark.long)])
def test_every_false_footer_is_refused_and_harms_nothing(served: Served, table: LakeTable, way: str, each: int) -> None:
    door, believed = DOORS[way](served), []
    for name, lie in list(LIES_OF_FILES.items())[::each]:
        taken = door.take()
        if not refused(door.tell(taken.attempt_id, rewritten(merged(taken), lie))):
            believed.append(name)
            break
    assert believed == []
    check_that_nobody_was_harmed(door, table)


@pytest.mark.parametrize("lie", [bounds(1, b"a", b"b"), bounds(1, b"", b"\x7f"), in_statistics(1, 3, (I64, 1))])
def test_other_paths_in_a_file_of_positions_are_refused(tmp_path: Path, lie: FooterLie) -> None:
    """A reader that looks for another path would leave the row group out, and the deleted rows would be back."""
    table = Table(tmp_path)
    table.append([{"id": 1, "name": "a"}, {"id": 2, "name": "b"}])
    delete = table.delete_equal([{"id": 1}], [long(1, "id")])
    task, layout = table.task(action=TaskAction.CONVERT, converts=[delete]), table.layout()
    report = as_report(merge_task(task, layout, {}))
    adapter = TypeAdapter(MergeResult)
    assert judge(task, adapter.validate_python(rewritten(report, tampered(nothing))), layout, {}).outputs[0].lower_bounds
    with pytest.raises(MergeRefused, match=r"bounds of the paths|is said to hold NULLs"):
        judge(task, adapter.validate_python(rewritten(report, tampered(lie))), layout, {})


@pytest.mark.parametrize("name", ONLY_PAGES_SHOW)
def test_these_footers_are_believed_today(served: Served, table: LakeTable, name: str) -> None:
    door = OverHttp(served)
    taken = door.take()
    assert door.tell(taken.attempt_id, rewritten(merged(taken), tampered(ONLY_PAGES_SHOW[name]))) is TaskStatus.PREPARED


# ---- files that are no files -------------------------------------------------------------------------------------------


def _other(path: Path) -> None:
    data = path.read_bytes()
    path.unlink()
    other = path.with_name("other")
    other.write_bytes(data)
    path.symlink_to(other)


FILES: Mapping[str, Callable[[Path], object]] = {
    "nothing": lambda path: path.unlink(),
    "a folder": lambda path: (path.unlink(), path.mkdir()),
    "a pipe, which nobody writes into": lambda path: (path.unlink(), os.mkfifo(path)),
    "a link": _other,
    "a link to itself": lambda path: (path.unlink(), path.symlink_to(path)),
    "a file without bytes": lambda path: path.write_bytes(b""),
    "a file of a few bytes": lambda path: path.write_bytes(b"PAR1"),
    "a shorter file": lambda path: path.write_bytes(path.read_bytes()[:-1]),
    "a longer file": lambda path: path.write_bytes(path.read_bytes() + b"PAR1"),
    "a file of zeros": lambda path: path.write_bytes(b"\0" * path.stat().st_size),
    "an encrypted file": lambda path: path.write_bytes(path.read_bytes()[:-4] + b"PARE"),
}


@pytest.mark.parametrize(
    ("way", "name"),
    [
        *(("in this process", name) for name in FILES),
        *(("over HTTP", name) for name in ("a pipe, which nobody writes into", "a shorter file")),
        *(pytest.param("over HTTP", name, marks=pytest.mark.long) for name in FILES),
    ],
)
def test_what_is_no_file_of_its_own_ends_its_attempt_alone(served: Served, table: LakeTable, way: str, name: str) -> None:
    door = DOORS[way](served)
    taken = door.take()
    report = merged(taken)
    FILES[name](local(report["outputs"][0]["path"]))
    assert refused(door.tell(taken.attempt_id, report))
    check_that_nobody_was_harmed(door, table)


def test_a_file_that_was_removed_blames_nobody(served: Served, table: LakeTable) -> None:
    """Somebody else may have removed it."""
    door = OverHttp(served)
    taken = door.take()
    report = merged(taken)
    local(report["outputs"][0]["path"]).unlink()
    assert door.tell(taken.attempt_id, report) is TaskStatus.PENDING
    [attempt] = served.house.services.stores.tasks.attempts(taken.task.task_id)
    assert attempt.end_reason is EndReason.FAILED
    assert "cannot be opened" in (attempt.reason or "")
    assert not door.worker.touch()["drain"]


def test_a_file_that_is_replaced_after_its_report_is_not_committed(served: Served, table: LakeTable) -> None:
    door = OverHttp(served)
    taken = door.take()
    report = merged(taken)
    assert door.tell(taken.attempt_id, report) is TaskStatus.PREPARED
    path = local(report["outputs"][0]["path"])
    data = bytearray(path.read_bytes())
    data[100] ^= 1
    path.write_bytes(data)
    os.utime(path, ns=(1, 1))
    commit(served)
    task = served.house.services.stores.tasks.task(taken.task.task_id)
    assert task.status is TaskStatus.FAILED
    assert "was replaced after it was merged" in (task.reason or "")
    check_rows(table)


ANSWERS: Mapping[str, tuple[Exception, bool]] = {
    "busy": (OSError("SlowDown: please reduce your request rate, HTTP status 503"), True),
    "silent": (TimeoutError("timed out"), True),
    "a broken connection": (ConnectionResetError(104, "Connection reset by peer"), True),
    "denied": (PermissionError(13, "Access Denied"), False),
    "no such bucket": (OSError("NoSuchBucket: the bucket does not exist"), False),
    "an expired key": (OSError("ExpiredToken: the token has expired"), False),
    "absent": (FileNotFoundError(2, "NoSuchKey"), False),
    "a fault of a library": (RuntimeError("it happens"), False),
    "a wrong type": (TypeError("Cannot get file info"), False),
    "an odd number": (ValueError("invalid literal"), False),
}


@pytest.mark.parametrize("name", ANSWERS)
def test_a_storage_that_does_not_answer_ends_no_attempt(served: Served, table: LakeTable, name: str) -> None:
    error, passes = ANSWERS[name]
    door = OverHttp(served)
    taken = door.take()
    report = merged(taken)
    with mock.patch.object(FileAccess, "tail", side_effect=error):
        answer = door.worker.complete(taken.attempt_id, report)
    task = served.house.services.stores.tasks.task(taken.task.task_id)
    if passes:
        assert (answer.status_code, task.status) == (503, TaskStatus.EXECUTING)
        assert door.tell(taken.attempt_id, report) is TaskStatus.PREPARED
    else:
        assert (answer.status_code, task.status) == (200, TaskStatus.PENDING)
        [attempt] = served.house.services.stores.tasks.attempts(taken.task.task_id)
        assert attempt.end_reason is EndReason.FAILED
        assert not door.worker.touch()["drain"]


def test_a_report_that_is_sent_twice_gets_the_same_answer(served: Served, table: LakeTable) -> None:
    door = OverHttp(served)
    taken = door.take()
    report = merged(taken)
    assert [door.tell(taken.attempt_id, report) for _ in range(2)] == [TaskStatus.PREPARED] * 2
    [output] = TypeAdapter(MergeResult).validate_python(report).outputs
    stored = served.house.services.stores.tasks.task(taken.task.task_id).result
    assert stored is not None
    assert stored.outputs[0].told() == output
    assert isinstance(stored.outputs[0], OutputFile)
    assert stored.outputs[0].version is not None
    assert len(stored.outputs[0].value_counts) == 11


def test_a_footer_of_very_many_values_takes_little_memory(served: Served, table: LakeTable) -> None:
    """A footer of 16 MiB took more than 1 GB of the server, and many seconds."""
    taken = OwnProcess(served).take()
    many = MOST_FOOTER_VALUES + 1
    length, at = bytearray(), many
    while at > 127:
        length.append(at & 127 | 128)
        at >>= 7
    bomb = b"\x19" + bytes([0xF0 | STRUCT]) + bytes([*length, at]) + b"\0" * many + b"\0"
    report = TypeAdapter(MergeResult).validate_python(rewritten(merged(taken), lambda footer: bomb))
    tracemalloc.start()
    try:
        with pytest.raises(OutputUnusable, match=r"more than 2000000 values: set 'write.parquet.row-group-size-bytes'"):
            judge(taken.task, report, taken.layout, taken.file_io)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 64 * 1024 * 1024
