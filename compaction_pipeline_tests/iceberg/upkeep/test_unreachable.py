"""Which files only a removed snapshot reaches, when files are named in a way in which writers of Iceberg do not name them."""

from __future__ import annotations

import io
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import fastavro

from compaction_pipeline.core.upkeep.record import RemovedSnapshot
from compaction_pipeline.iceberg.upkeep.unreachable import Judge
from compaction_pipeline_tests.iceberg.lake import Lake


def local(path: str) -> Path:
    return Path(urlsplit(path).path)


def copied(path: str, target: Path) -> str:
    """Copy a file of a table. Return the path of the copy as metadata writes it."""
    target.parent.mkdir(exist_ok=True)
    shutil.copy(local(path), target)
    return f"file://{target}"


def write_list(source: str, target: Path, renamed: Mapping[str, str]) -> None:
    """Write a manifest list with other paths of its manifests."""
    reader = fastavro.reader(io.BytesIO(local(source).read_bytes()))
    records: list[Any] = [{**record, "manifest_path": renamed[record["manifest_path"]]} for record in reader]
    metadata = {key: value for key, value in reader.metadata.items() if not key.startswith("avro.")}
    with target.open("wb") as stream:
        fastavro.writer(stream, reader.writer_schema, records, metadata=metadata)


def test_two_kept_manifests_of_one_name_in_two_folders_are_both_read(lake: Lake) -> None:
    table = lake.table()
    table.ids(1)
    table.ids(2)
    table.table.refresh()
    head = table.table.current_snapshot()
    assert head is not None
    manifests = [one.manifest_path for one in head.manifests(table.table.io)]
    assert len(manifests) == 2
    folder = local(manifests[0]).parent
    # A removed snapshot names the same files in manifests of its own.
    copies = {path: copied(path, folder / f"c{number}.avro") for number, path in enumerate(manifests)}
    write_list(head.manifest_list, folder / "removed.avro", copies)
    alike = {path: copied(path, folder / f"d{number}" / "m.avro") for number, path in enumerate(manifests)}
    for snapshot in table.table.metadata.snapshots:
        write_list(snapshot.manifest_list, local(snapshot.manifest_list), alike)

    found = Judge([table.table], ()).unreachable([RemovedSnapshot(99, f"file://{folder}/removed.avro")], ())

    assert found.content == {}, "each of these files is live in one of the two kept manifests"
    assert sorted(Path(path).name for path in found.manifests) == ["c0.avro", "c1.avro"]
