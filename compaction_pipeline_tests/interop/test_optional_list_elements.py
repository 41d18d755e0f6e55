"""Manifests whose schema has lists with optional elements. The specification requires them, but some writers do this and Java reads it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.typedef import Record

from compaction_pipeline.core.commit.ports import CommitState
from compaction_pipeline.demo.row_delta import row_delta
from compaction_pipeline.formats.avro.frames import read_frame
from compaction_pipeline.iceberg.manifests import entries as manifests
from compaction_pipeline_tests.iceberg.lake import LakeTable
from compaction_pipeline_tests.interop.java import BY_NAME, Java, Register

pytestmark = pytest.mark.interop

_LISTS = ("split_offsets", "equality_ids")


def test_lists_with_optional_elements_are_read_carried_and_read_back_by_java(
    tmp_path: Path, spark_catalog: Register, iceberg_spark: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    java = Java(tmp_path, spark_catalog)
    t = java.lake.table(spec=BY_NAME)
    with monkeypatch.context() as patched:
        ours = manifests._avro_schema
        patched.setattr(manifests, "_avro_schema", lambda *arguments: _with_optional_elements(ours(*arguments)))
        data = [t.data_file([{"id": number, "name": name}], Record(name)) for name in "ab" for number in (1, 2)]
        row_delta(t.table, data)
        deletes = [t.equality_file({"id": [1]}, partition=Record(name)) for name in "ab"]
        row_delta(t.table, equality_deletes=[(delete, [1]) for delete in deletes])
    foreign = _manifests(tmp_path)
    assert {kind for path in foreign for kind in _element_types(path)} == {("split_offsets", "null, long"), ("equality_ids", "null, int")}
    before = _described(java, iceberg_spark)
    assert {path: lists[1] for path, lists in before.items()} == {
        **{file.path: None for file in data},
        **{delete.path: [1] for delete in deletes},
    }
    assert all(lists[0] for lists in before.values())
    assert java.ids() == t.live_ids() == [2, 2]

    merged = [file.path for file in data[:2]]
    assert t.commit(t.merge(merged)).state is CommitState.COMMITTED

    assert {kind for path in _listed(t) - foreign for kind in _element_types(path)} == {("split_offsets", "long"), ("equality_ids", "int")}
    after = _described(java, iceberg_spark)
    gone = {*merged, deletes[0].path}
    assert {path: lists for path, lists in after.items() if path in before} == {path: before[path] for path in before.keys() - gone}
    assert len(after) == len(before) - len(gone) + 1
    assert java.ids() == t.live_ids() == [2, 2]


def _with_optional_elements(schema: Any) -> Any:
    schema = json.loads(json.dumps(schema))
    file = next(field["type"] for field in schema["fields"] if field["name"] == "data_file")
    for field in file["fields"]:
        if field["name"] in _LISTS:
            kind = next(each for each in field["type"] if each != "null")
            kind["items"] = ["null", kind["items"]]
    return schema


def _manifests(folder: Path) -> set[str]:
    return {str(path) for path in (folder / "wh").rglob("metadata/*-m*.avro")}


def _listed(t: LakeTable) -> set[str]:
    return {file.manifest_path.removeprefix("file://") for file in t.files()}


def _element_types(path: str) -> set[tuple[str, str]]:
    schema = json.loads(read_frame(Path(path).read_bytes()).meta["avro.schema"])
    file = next(field["type"] for field in schema["fields"] if field["name"] == "data_file")
    lists = {
        field["name"]: next(each for each in field["type"] if each != "null")["items"]
        for field in file["fields"]
        if field["name"] in _LISTS
    }
    return {(name, ", ".join(kind) if isinstance(kind, list) else kind) for name, kind in lists.items()}


def _described(java: Java, spark: Any) -> dict[str, tuple[list[int] | None, list[int] | None]]:
    """The live files by path, with their split offsets and equality ids as Java reads them."""
    table = spark._jvm.org.apache.iceberg.spark.Spark3Util.loadIcebergTable(spark._jsparkSession, f"{java.name}.db.t")
    files = spark._jvm.org.apache.iceberg.ManifestFiles
    found = {}
    for manifest in table.currentSnapshot().allManifests(table.io()):
        of_data = manifest.content().name() == "DATA"
        reader = (
            files.read(manifest, table.io(), table.specs()) if of_data else files.readDeleteManifest(manifest, table.io(), table.specs())
        )
        live = reader.iterator()
        while live.hasNext():
            file = live.next()
            offsets, ids = file.splitOffsets(), file.equalityFieldIds()
            found[file.location()] = (None if offsets is None else list(offsets), None if ids is None else list(ids))
        reader.close()
    return found
