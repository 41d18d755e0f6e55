"""Which names on storage are of writers of Iceberg tables, and which are of others."""

from __future__ import annotations

from dataclasses import replace

import pytest

from compaction_pipeline.core.ids import AttemptId, TaskId
from compaction_pipeline.core.tables.keyed.file_names import KeyedFileNames, KeyedFileType
from compaction_pipeline.core.tables.keyed.tree import ROOT
from compaction_pipeline.core.tables.output_names import OutputNames
from compaction_pipeline.core.upkeep.file_names import carries, is_metadata, is_of_flink, is_of_iceberg, strangeness
from compaction_pipeline.core.work.merge_input import MergeInput
from compaction_pipeline_tests.builders import LAYOUT, task

UUID = "ce13f4d2-9c1c-4d51-9f0a-2d3f6c1f7a55"
_MERGE = MergeInput(TaskId("t"), AttemptId("a"), task().work, LAYOUT, 0, 1)


@pytest.mark.parametrize(
    "name",
    [
        f"00000-0-{UUID}-00001.parquet",
        f"00012-345-{UUID}-0-00001.parquet",
        f"00000-0-{UUID}-00001-deletes.parquet",
        f"00000-0-{UUID}-00001-deletes.puffin",
        f"00000-0-{UUID}-00001.orc",
        f"00000-7-{UUID}.parquet",
        f"10110010-00000-7-{UUID}.parquet",
        f"10110010-00000-0-{UUID}-00001.parquet",
        f"20230605_123456_00012_abcde-{UUID}.parquet",
        f"20230605_123456_00012_abcde-{UUID}.gz.parquet",
        "0123456789ab-ba9876543210-00003-deadbeef-00001.parquet",
        "0123456789ab-ba9876543210-00003-deadbeef-00001-deletes.parquet",
        "a1-sink-0123456789abcdef-deadbeef-00001.parquet",
        "1-B-7-00000-0-a1-sink-0123456789abcdef-deadbeef-00001.parquet",
        "9-ED-17-00001-0-5132886235797133601-00006.parquet",
        f"{UUID}-m0.avro",
        f"optimized-m-{UUID}.avro",
        f"stage-10-task-17-manifest-{UUID}.avro",
        "0123456789ab-0-deadbeef-m1.avro",
        f"snap-8109744798576441359-1-{UUID}.avro",
        "snap-8109744798576441359-0-0123456789ab.avro",
        "0123456789abcdef0123456789abcdef-0123456789abcdef0123456789abcdef-00000-0-15-00001.avro",
        f"8109744798576441359-{UUID}.stats",
        "8109744798576441359-0123456789ab.puffin",
        f"partition-stats-8109744798576441359-{UUID}.parquet",
    ],
)
def test_names_of_writers_of_iceberg_are_known(name: str) -> None:
    assert is_of_iceberg(name)
    assert strangeness(f"data/dt=1/{name}", ()) is None


@pytest.mark.parametrize(
    "name", [f"00003-{UUID}.metadata.json", f"00003-{UUID}.gz.metadata.json", "v12.metadata.json", "v12.gz.metadata.json"]
)
def test_metadata_of_writers_is_known_and_is_nobodys_garbage(name: str) -> None:
    assert is_of_iceberg(name)
    assert "it may be registered in another catalog" in str(strangeness(f"metadata/{name}", ()))


@pytest.mark.parametrize("suffix", ["", f"-{UUID}", "-something-new"])
def test_manifests_of_flink_are_known_with_any_suffix(suffix: str) -> None:
    assert is_of_flink(f"s3://b/t/metadata/{'ab' * 16}-{'cd' * 16}-00000-0-15-00001{suffix}.avro")
    assert not is_of_flink(f"s3://b/t/metadata/{UUID}-m0{suffix}.avro")


@pytest.mark.parametrize(
    "name",
    [
        "000000_0",
        "000000_0.parquet",
        f"part-00000-{UUID}.c000.snappy.parquet",
        "bucket_00000",
        "data.parquet",
        f"{UUID}.parquet",
        f"{UUID}-0_0-1-2_20230101000000.parquet",
        f"00000-0-{UUID}-00001.parquet.tmp",
        f"copy of 00000-0-{UUID}-00001.parquet",
        f"00000-0-{UUID}-00001.parquet\n",
        "snapshot-1",
        "version-hint.text",
        f"{UUID}-m0.avro.crc",
    ],
)
def test_other_names_are_strange(name: str) -> None:
    """Hive, Spark without Iceberg, Hudi, a person: nobody knows here what their files are for."""
    assert not is_of_iceberg(name)
    assert strangeness(f"data/{name}", ()) is not None


def test_a_hidden_part_of_a_path_is_strange_unless_it_is_a_partition_field() -> None:
    name = f"00000-0-{UUID}-00001.parquet"
    assert "'_temporary' in its path" in (strangeness(f"data/_temporary/0/{name}", ()) or "")
    assert strangeness(f"data/.staging/{name}", ("staging",)) is not None
    assert strangeness(f"data/_day=1/{name}", ()) is not None
    assert strangeness(f"data/_day=1/{name}", ("_day",)) is None
    assert strangeness(f"data/_a+b=1/{name}", ("_a b",)) is None
    assert strangeness(f"data/_day/{name}", ("_day",)) is not None
    assert strangeness(f"data/.{name}", ()) is not None


def test_a_path_that_opens_another_file_is_strange() -> None:
    assert strangeness(f"data/x?/00000-0-{UUID}-00001.parquet", ()) is not None
    assert strangeness(f"data/x\t/00000-0-{UUID}-00001.parquet", ()) is not None


def test_the_names_that_this_program_makes_are_known() -> None:
    """Made by the functions that name files of attempts, sinks and commits."""
    for task_id, attempt_id in (("0123456789ab-00001", "ba9876543210"), ("sink-0123456789abcdef", "a1")):
        merged = replace(_MERGE, task_id=TaskId(task_id), attempt_id=AttemptId(attempt_id))
        operation = f"{merged.file_prefix}deadbeef"
        keyed = KeyedFileNames(7, 0, 0, operation)
        for path in (
            OutputNames("s3://b/t/data", operation).path((), 1),
            OutputNames("s3://b/t/data", operation).path((), 123456, "-deletes"),
            *(keyed.name(ROOT, kind, 1) for kind in KeyedFileType if kind is not KeyedFileType.LOG),
        ):
            assert is_of_iceberg(path.rsplit("/", 1)[-1])
            assert carries(path.rsplit("/", 1)[-1], {task_id})
    assert is_of_iceberg(KeyedFileNames(7, 1, 2, 2**63 - 1).name(ROOT, KeyedFileType.INSERT, 3))


def test_metadata_is_known_by_its_end() -> None:
    assert is_metadata("v1.metadata.json")
    assert is_metadata("x.gz.metadata.json")
    assert is_metadata("x.metadata.json.gz")
    assert not is_metadata("metadata.json")
    assert not is_metadata("x.metadata.json.crc")


def test_an_id_must_be_a_whole_part_of_a_name() -> None:
    assert carries("a1-p-12-deadbeef-00001.parquet", {"p-12"})
    assert not carries("a1-p-12-deadbeef-00001.parquet", {"p-1"})
    assert carries("snap-1-0-0123456789ab.avro", {"0123456789ab"})
    assert not carries("a.parquet", set())
