"""Values of every primitive type keep their exact bytes in a compaction."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.avro.encoder import BinaryEncoder
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.snapshots import Operation
from pyiceberg.transforms import IdentityTransform
from pyiceberg.typedef import Record
from pyiceberg.types import BinaryType, DoubleType, FixedType, LongType, NestedField, StringType

from compaction_pipeline.core.commit.ports import CommitState
from compaction_pipeline.core.errors import TableRefused
from compaction_pipeline.core.tables.data_file import FileContent
from compaction_pipeline.demo.row_delta import row_delta
from compaction_pipeline.formats.avro.entry_decoder import ManifestDecoder
from compaction_pipeline.formats.avro.frames import read_frame, write_frame
from compaction_pipeline.formats.avro.values import UnknownAvro
from compaction_pipeline.iceberg.manifests import entries, partitions
from compaction_pipeline.iceberg.manifests.entries import CarriedFile
from compaction_pipeline.iceberg.manifests.lists import read_manifests
from compaction_pipeline.iceberg.manifests.written_entries import FileCarrier
from compaction_pipeline.iceberg.rewrite_files import SnapshotChange, Transaction
from compaction_pipeline_tests.iceberg.lake import Lake


@pytest.mark.parametrize("number", [2.222, 1e300, 16777217.0, 5e-324, -0.0, float("-inf")])
def test_a_double_as_a_partition_keeps_its_bytes(lake: Lake, number: float) -> None:
    schema = Schema(NestedField(1, "id", LongType()), NestedField(2, "name", DoubleType()))
    t = lake.table(schema=schema, spec=PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "name")))
    for key in (1, 2):
        t.insert({"id": key, "name": number}, partition=Record(number))
    t.insert({"id": 3, "name": 1.5}, partition=Record(1.5))
    assert t.commit(t.merge([file.path for file in t.files() if file.partition[0].value != 1.5])).state is CommitState.COMMITTED
    assert {repr(entry["data_file"]["partition"]) for entry in t.judged_entries()} == {repr({"name": number}), repr({"name": 1.5})}


@pytest.mark.parametrize(("from_number", "said"), [(0, "would be written with another value of field id 100"), (1, "with other bytes")])
def test_an_entry_that_would_change_ends_the_commit(lake: Lake, monkeypatch: pytest.MonkeyPatch, from_number: int, said: str) -> None:
    # The first entry of each schema is compared field by field, and every one by its bytes.
    numbers, real = count(), FileCarrier.carried

    def changed(self: FileCarrier, file: Any) -> bytes:
        content = real(self, file)
        return content.replace(b".parquet", b".parquez") if next(numbers) >= from_number else content

    _refused(lake, monkeypatch, lambda patch: patch.setattr(FileCarrier, "carried", changed), said)


def _cut_wrongly(file: CarriedFile, number: int) -> CarriedFile:
    # The third entry has the last byte of the second one, so all bytes are still there, in their order.
    return file._replace(raw={1: file.raw[:-1], 2: b"\x00" + file.raw}.get(number, file.raw))


def _counted_wrongly(file: CarriedFile, number: int) -> CarriedFile:
    return file._replace(record_count=file.record_count + (number == 1))


@pytest.mark.parametrize(
    ("misread", "said"), [(_cut_wrongly, "cannot be written again"), (_counted_wrongly, "another value of field id 103")]
)
def test_an_entry_that_was_misread_ends_the_commit(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, misread: Callable[[CarriedFile, int], CarriedFile], said: str
) -> None:
    numbers, real = count(), entries.CarriedFile
    _refused(lake, monkeypatch, lambda patch: patch.setattr(entries, "CarriedFile", lambda *of: misread(real(*of), next(numbers))), said)


def _refused(lake: Lake, monkeypatch: pytest.MonkeyPatch, break_it: Callable[[pytest.MonkeyPatch], None], said: str) -> None:
    t = lake.table()
    first, second = t.ids(1), t.ids(2)
    row_delta(t.table, [t.data_file([{"id": 3, "name": "c"}]), t.data_file([{"id": 4, "name": "d"}])])
    merge = t.merge([first.path, second.path, max(t.paths(FileContent.DATA))])
    before = t.head()
    files = set(lake.folder.rglob("*.avro"))
    with monkeypatch.context() as patch:
        break_it(patch)
        with pytest.raises(TableRefused, match=said):
            t.commit(merge)
    assert t.head().snapshot_id == before.snapshot_id
    assert set(lake.folder.rglob("*.avro")) == files
    assert t.live_ids() == [1, 2, 3, 4]
    assert t.commit(merge).state is CommitState.COMMITTED


def test_a_manifest_list_that_would_change_ends_the_commit(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    schema = Schema(NestedField(1, "id", LongType()), NestedField(2, "name", StringType()))
    t = lake.table(schema=schema, spec=PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "name")))
    for name in ("a", "b", "b"):
        t.insert({"id": 1, "name": name}, partition=Record(name))
    merge = t.merge([file.path for file in t.files() if file.partition[0].value == "b"])
    before = t.head()
    real = BinaryEncoder.write_bytes

    def broken(self: BinaryEncoder, value: bytes) -> None:
        real(self, b"z" if value == b"a" else value)

    with monkeypatch.context() as patch:
        patch.setattr(BinaryEncoder, "write_bytes", broken)
        with pytest.raises(TableRefused, match="would be listed with another value of field id 507"):
            t.commit(merge)
    assert t.head().snapshot_id == before.snapshot_id
    assert t.commit(merge).state is CommitState.COMMITTED


def test_fixed_partitions_that_follow_their_schema_are_kept(lake: Lake) -> None:
    """Those that Java writes do not follow their schema; see `interop/test_fixed_partitions_of_java.py`."""
    schema = Schema(NestedField(1, "id", LongType()), NestedField(2, "name", FixedType(4)))
    t = lake.table(schema=schema, spec=PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "name")))
    values = [b"\x00\x01\x02\x03", b"\xff\xff\xff\xff", None]
    for number, value in enumerate(values * 2):
        t.insert({"id": number, "name": value}, partition=Record(value))
    rows = sorted(map(str, t.rows()))
    assert t.commit(t.merge([file.path for file in t.files() if file.partition[0].value == "00010203"])).state is CommitState.COMMITTED
    live = [entry["data_file"]["partition"]["name"] for entry in t.judged_entries() if entry["status"] != 2]
    assert sorted(live, key=str) == sorted([values[0], *values[1:] * 2], key=str)
    assert sorted(map(str, t.rows())) == rows


@pytest.mark.parametrize("value", [b"\x00\x01\x02\x03", None])
def test_fixed_partitions_with_a_length_that_no_schema_names_are_not_called_corrupt(lake: Lake, value: bytes | None) -> None:
    schema = Schema(NestedField(1, "id", LongType()), NestedField(2, "name", BinaryType()))
    t = lake.table(schema=schema, spec=PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "name")))
    t.insert({"id": 1, "name": value}, partition=Record(value))
    (live,) = t.files()
    content = Path(live.manifest_path.removeprefix("file://")).read_bytes()
    frame = read_frame(content)
    said = json.loads(frame.meta["avro.schema"])
    file = next(field["type"] for field in said["fields"] if field["name"] == "data_file")
    (field,) = next(each["type"]["fields"] for each in file["fields"] if each["name"] == "partition")
    field["type"] = ["null", {"type": "fixed", "name": "fixed_4", "size": 4}]
    meta = {key: text.decode() for key, text in frame.meta.items()} | {"avro.schema": json.dumps(said)}
    as_java = write_frame(meta, frame.contents(content))
    if value is None:
        # This value is written alike in both forms.
        assert [entry.partition for entry in ManifestDecoder(as_java).entries()] == [b"\x00"]
        return
    with pytest.raises(UnknownAvro, match="field id 1000, a fixed type, have their length in front"):
        ManifestDecoder(as_java)


def test_a_partition_value_that_its_text_cannot_keep_is_refused(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    schema = Schema(NestedField(1, "id", LongType()), NestedField(2, "name", DoubleType()))
    t = lake.table(schema=schema, spec=PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "name")))
    t.insert({"id": 1, "name": 2.222}, partition=Record(2.222))
    real = partitions.single_value
    monkeypatch.setattr(partitions, "single_value", lambda kind, value: struct.unpack("f", struct.pack("f", real(kind, value)))[0])
    with pytest.raises(TableRefused, match=r"partition field 'name' has the value .* which this version would write as"):
        t.files()


def test_a_snapshot_without_any_manifest_is_written_and_read(lake: Lake) -> None:
    t = lake.table()
    staged = Transaction(t.table).stage(SnapshotChange(Operation.APPEND))
    assert read_manifests(t.table.io, staged.snapshot) == []
