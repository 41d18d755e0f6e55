"""The short way to the name that a FileIO opens agrees with the way of PyIceberg, which divides each path as a URL."""

from __future__ import annotations

from urllib.parse import urlparse

from hypothesis import example, given
from hypothesis import strategies as st

from compaction_pipeline.iceberg.opened_paths import opened_name

_LETTERS = st.text(st.sampled_from("aZ09+.-:/_~%=@,?#;[]() \t\nä&\\"), max_size=12)


@given(st.sampled_from(["s3://", "s3a:///", "file:", "file://", "hdfs://h:1/", "S3://b/"]), _LETTERS)
@example("s3://", "b/day=1/a#b.parquet")
@example("file://", "/a;b/c:d.parquet")
def test_a_name_is_that_of_the_path_of_a_url(scheme: str, rest: str) -> None:
    path = f"{scheme}{rest}"
    try:
        opened = urlparse(path).path
    except ValueError:
        opened = path
    assert opened_name(path) == opened.rstrip("/").rsplit("/", 1)[-1].casefold()
