"""When two texts name one file: aliases of schemes, hosts, slashes and percent signs."""

from __future__ import annotations

from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compaction_pipeline.core.upkeep.paths import FullPath, Relation, ToldStores, compared, folder_path, full_path, loose, loose_name

_PARTS = st.text(st.sampled_from("ab.%20 +=?#é"), min_size=1, max_size=6).filter(lambda part: part not in (".", ".."))
keys = st.lists(_PARTS, min_size=1, max_size=4).map("/".join)
STORES = (
    ("s3://b", "s3a://b", "s3n://b", "S3://b"),
    ("oss://b", "OSS://b"),
    ("gs://b", "gcs://b"),
    ("cosn://b", "COSN://b"),
    ("obs://b",),
    ("hdfs://nn:8020", "hdfs://nn", "hdfs://NN", "hdfs://", "hdfs:"),
    ("file://", "file:", "FILE://", ""),
    (
        "abfs://c@acc.dfs.core.windows.net",
        "abfss://c@acc.dfs.core.windows.net:443",
        "wasb://c@acc.blob.core.windows.net",
        "wasbs://c@ACC.blob.core.windows.net",
    ),
)
"""Stores, each under all its names."""

_stores = st.sampled_from([name for names in STORES for name in names])
paths = st.builds(lambda store, key: f"{store}/{key}", _stores, keys)


def relation(one: str, other: str, told: ToldStores = ToldStores()) -> Relation:
    return compared(full_path(one), full_path(other), told)


@given(keys)
def test_a_file_has_a_path_under_every_name_of_its_store(key: str) -> None:
    for names in STORES:
        for one, other in combinations(names, 2):
            # HDFS without a cluster may be any cluster.
            assert relation(f"{one}/{key}", f"{other}/{key}") is Relation.SAME


@given(paths, paths)
def test_the_order_of_two_paths_says_nothing(one: str, other: str) -> None:
    assert relation(one, other) is relation(other, one)
    assert relation(one, one) is Relation.SAME


@given(paths, paths)
def test_paths_that_end_alike_are_never_two_files(one: str, other: str) -> None:
    """This is the law that protects live files: in two stores the same name is enough, in one store the same path to a tolerant reader."""
    first, second = full_path(one), full_path(other)
    if loose(first.path) == loose(second.path):
        assert relation(one, other) is not Relation.DIFFERENT
    if first.scheme != second.scheme and loose_name(one) == loose_name(other):
        assert relation(one, other) is Relation.MISMATCH


@given(_stores, keys, st.sampled_from(["//", "///"]))
def test_slashes_that_follow_each_other_are_one(store: str, key: str, slashes: str) -> None:
    assert relation(f"{store}/{key}", f"{store}/{key.replace('/', slashes)}") is Relation.SAME


_any_text = st.text(st.sampled_from("aB.%20:/?# \té"), max_size=30)


@given(st.one_of(_any_text, paths, st.builds(lambda one, other: f"{one}/{other}", paths, _any_text)))
def test_the_loose_name_is_the_end_of_the_loose_path(text: str) -> None:
    """Most names are found in a faster way, and must be the same."""
    assert loose_name(text) == loose(full_path(text).path).rpartition("/")[2]


def test_a_name_in_capitals_may_be_the_same_file() -> None:
    assert loose_name("s3://b/wh/t/A.parquet") == loose_name("s3://b/wh/t/a.parquet")
    assert relation("s3://b/wh/t/A.parquet", "s3://b/wh/t/a.parquet") is Relation.MISMATCH


@given(paths)
def test_paths_that_may_be_one_file_have_one_loose_name(path: str) -> None:
    """Files are looked up by this name before they are compared."""
    for other in (path.replace("%20", " "), path.upper() if path.startswith("/") else path, f"{path}?v=1", f"{path}#x"):
        if relation(path, other) is not Relation.DIFFERENT:
            assert loose_name(path) == loose_name(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("s3://b/t/x.parquet", "s3://c/t/x.parquet"),
        ("s3://b/t/x.parquet", "oss://b/t/x.parquet"),
        ("s3://b/t/x.parquet", "file:///mnt/b/t/x.parquet"),
        ("hdfs://nn1/t/x.parquet", "hdfs://nn2/t/x.parquet"),
        ("hdfs://nn:8020/t/x.parquet", "hdfs://nn:9000/t/x.parquet"),
        ("hdfs://nn/t/x.parquet", "/t/x.parquet"),
        ("hdfs://nn/mnt/t/x.parquet", "viewfs://cluster/t/x.parquet"),
        ("abfs://c@one.dfs.core.windows.net/x", "abfs://c@two.dfs.core.windows.net/x"),
        ("abfs://c@one.dfs.core.windows.net/x", "abfs://c/x"),
        ("file:///t/x", "file://host/t/x"),
        ("t/x", "/data/t/x"),
    ],
)
def test_two_stores_with_files_of_one_name_are_a_mismatch(one: str, other: str) -> None:
    assert relation(one, other) is Relation.MISMATCH


@pytest.mark.parametrize(
    "other", ["s3://b/t/a b.parquet", "s3://b/t/A%20b.parquet", "s3://b/t/a%20b.parquet?versionId=1", "s3://b/t/a%20b.par\tquet"]
)
def test_what_only_a_tolerant_reader_takes_for_one_file_is_a_mismatch(other: str) -> None:
    assert relation("s3://b/t/a%20b.parquet", other) is Relation.MISMATCH


@pytest.mark.parametrize(
    ("one", "other"), [("s3://b/t/x", "s3://b/t2/x"), ("s3://b/t/x", "s3://b/t/y"), ("s3://b/t/x", "s3://c/t/y"), ("/t/x", "/t/y/x")]
)
def test_other_paths_are_two_files(one: str, other: str) -> None:
    assert relation(one, other) is Relation.DIFFERENT


def test_a_person_may_tell_that_two_stores_are_one_or_two() -> None:
    one, other = "s3://b/t/x", "oss://b/t/x"
    assert relation(one, other, ToldStores.of(equal=[("s3a://b", "oss://b")])) is Relation.SAME
    assert relation(one, "oss://b/u/x", ToldStores.of(equal=[("s3://b", "oss://b")])) is Relation.DIFFERENT
    assert relation(one, other, ToldStores.of(different=[("oss://b", "s3://b")])) is Relation.DIFFERENT
    assert relation(one, "oss://c/t/x", ToldStores.of(equal=[("s3://b", "oss://b")])) is Relation.MISMATCH


@pytest.mark.parametrize("path", ["/wh/x/../t/f", "file:/wh/./t/f", "file:///wh//t/f", "hdfs://nn/wh/y/../t/f"])
def test_dots_are_steps_in_file_systems(path: str) -> None:
    assert full_path(path).path == "/wh/t/f"


def test_dots_are_letters_in_object_stores() -> None:
    assert relation("s3://b/wh/../t/f", "s3://b/t/f") is Relation.DIFFERENT


def test_t2_does_not_lie_in_t() -> None:
    assert not folder_path("s3://b/t2").overlaps(folder_path("s3a://b/t"))
    assert not full_path("s3://b/t2/x").is_below(folder_path("s3://b/t"))
    assert full_path("s3://b/t/x").is_below(folder_path("s3n://b/t/"))
    assert folder_path("s3://b/t/").overlaps(folder_path("s3a://b/t"))
    assert folder_path("s3://b/t").overlaps(folder_path("s3://b/t/u"))
    assert folder_path("s3://b/t/u").overlaps(folder_path("s3://b"))
    assert not folder_path("s3://b/t").overlaps(folder_path("s3://c/t/u"))


@pytest.mark.parametrize("other", ["hdfs://namenode1:8020/wh/t/inner", "viewfs:///wh/t", "viewfs://cluster/wh", "hdfs:///wh/t"])
def test_folders_of_two_names_of_a_cluster_may_lie_in_each_other(other: str) -> None:
    assert folder_path("hdfs://nameservice1/wh/t").overlaps(folder_path(other))
    assert folder_path(other).overlaps(folder_path("hdfs://nameservice1/wh/t"))
    assert not folder_path("hdfs://nameservice1/wh/t2").overlaps(folder_path(other.replace("/wh", "/wh/t")))


def test_folders_of_one_bucket_may_lie_in_each_other_by_any_scheme() -> None:
    assert folder_path("s3://b/t").overlaps(folder_path("oss://b/t/inner"))
    assert not folder_path("s3://b/t").overlaps(folder_path("oss://c/t/inner"))
    assert not folder_path("file:///t").overlaps(folder_path("hdfs:///t"))


def test_a_path_says_its_store() -> None:
    assert full_path("s3a://b/k") == FullPath("s3", "b", "/k")
    assert full_path("s3a://b/k").store == "s3://b"
    assert full_path(" s3a://b/k") == FullPath("s3", "b", "/k")
    assert full_path("/ k").path == "/ k"
