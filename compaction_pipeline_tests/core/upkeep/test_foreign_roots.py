"""Which folders outside its own a table names files in."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from compaction_pipeline.core.upkeep.foreign_roots import ForeignRoots
from compaction_pipeline.core.upkeep.paths import folder_path, full_path

_parts = st.lists(st.sampled_from(["a", "b", "t", "t2", "dt=1", ".."]), min_size=1, max_size=4)
_paths = st.builds(
    lambda store, parts, name: f"{store}/{'/'.join(parts)}/{name}",
    st.sampled_from(["s3://b", "s3a://b", "file://", "", "hdfs://nn"]),
    _parts,
    st.integers(0, 300).map(str),
)


def roots(*paths: str, own: tuple[str, ...] = ("s3://b/wh/t",)) -> tuple[str, ...]:
    found = ForeignRoots(own)
    for path in paths:
        found.note(path)
    return found.roots


@given(st.lists(_paths, max_size=20), st.sampled_from(["s3://b/t", "/t", "hdfs:///t", "s3://b/a/"]))
def test_each_path_lies_in_a_folder_of_the_table_or_in_a_root(paths: list[str], own: str) -> None:
    found = [folder_path(root) for root in roots(*paths, own=(own,))]
    for path in map(full_path, paths):
        assert path.is_below(folder_path(own)) or any(path.is_below(root) for root in found)


def test_a_table_whose_files_lie_in_its_location_has_none() -> None:
    assert roots("s3://b/wh/t/data/x", "s3a://b/wh/t/metadata/y", "s3n://b//wh/t/z") == ()


def test_a_path_that_only_begins_in_the_table_lies_outside() -> None:
    assert roots("/wh/t/../u/x", "/wh/t/./x", own=("/wh/t",)) == ("file:///wh/u",)
    assert roots("/wh/t2/x", own=("/wh/t",)) == ("file:///wh/t2",)


def test_imported_files_have_the_folder_above_their_partitions() -> None:
    assert roots("s3://b/hive/h/dt=1/hour=2/000000_0", "s3://b/hive/h/dt=2/000000_0", "s3://b/wh/t2/x") == ("s3://b/hive/h", "s3://b/wh/t2")


def test_many_folders_have_the_one_above_all_of_them() -> None:
    assert roots(*(f"s3://b/other/data/{number:04b}/x" for number in range(101))) == ("s3://b/other/data",)
    assert roots(*(f"s3://{number}/x" for number in range(101)))[0] == "s3://0/"


def test_folders_to_which_properties_send_files_are_roots_before_a_file_is_there() -> None:
    roots = ForeignRoots(["s3://b/wh/t"])
    roots.note_folders(
        {"write.data.path": "s3a://b/wh/other/data/", "write.metadata.path": "s3://b/wh/t/metadata", "write.object-storage.path": ""}
    )
    assert roots.roots == ("s3://b/wh/other/data",)
