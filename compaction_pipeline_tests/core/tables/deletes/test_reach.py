"""Both ways of finding the deletes of a data file agree with the spec's rule, which is applied to every pair of files."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from compaction_pipeline.core.tables.data_file import FileContent, LiveFile
from compaction_pipeline.core.tables.deletes.applies import DeleteIndex
from compaction_pipeline.core.tables.deletes.reach import DeleteReach
from compaction_pipeline.core.tables.live_files import TableFiles, files_by_node, manifest_changes
from compaction_pipeline.core.tables.table import ManifestRef
from compaction_pipeline_tests import strategies
from compaction_pipeline_tests.builders import UNPARTITIONED_SPEC, data, equality, global_equality, position, table_files
from compaction_pipeline_tests.core.planning.committed import reaches


def applying(data_file: LiveFile, *deletes: LiveFile) -> list[str]:
    return [file.path for file in DeleteIndex(deletes, frozenset({UNPARTITIONED_SPEC})).of(data_file)]


def naive(files: TableFiles, data_file: LiveFile) -> set[str]:
    return {f.path for f in files.files if not f.is_data and reaches(f, data_file, files.unpartitioned_spec_ids)}


@given(strategies.live_files(max_data=20, max_deletes=20))
def test_the_index_finds_what_the_rule_says(files: TableFiles) -> None:
    index = DeleteIndex((file for file in files.files if not file.is_data), files.unpartitioned_spec_ids)
    for file in files.files:
        if file.is_data:
            found = [delete.path for delete in index.of(file)]
            assert len(found) == len(set(found))
            assert set(found) == naive(files, file)


@given(strategies.live_files(max_data=20, max_deletes=20))
def test_scopes_find_what_the_rule_says(files: TableFiles) -> None:
    nodes = files_by_node(files.files)
    reach = DeleteReach(nodes, files.unpartitioned_spec_ids)
    equalities = {file.path for file in files.files if file.content is FileContent.EQUALITY_DELETES}
    reaching: set[str] = set()
    for node, group in nodes.items():
        for file in group.data:
            assert {delete.path for delete in reach.of_all(node, [file])} == naive(files, file)
            assert reach.any_equality(node, file) == bool(naive(files, file) & equalities)
            reaching |= naive(files, file)
        together = set().union(*(naive(files, file) for file in group.data)) if group.data else set()
        assert {delete.path for delete in reach.of_all(node, group.data)} == together
    assert {file.path for file in reach.dangling()} == {file.path for file in files.files if not file.is_data} - reaching


@given(st.data(), strategies.live_files(max_data=10, max_deletes=10))
def test_copies_of_a_path_in_other_nodes_are_reached_by_their_own_deletes(draw: st.DataObject, files: TableFiles) -> None:
    nodes = sorted({file.node for file in files.files}, key=str)
    copies = []
    for file in files.files:
        if file.is_data and draw.draw(st.booleans()):
            node = draw.draw(st.sampled_from(nodes))
            sequence = draw.draw(st.integers(1, 5))
            copies.append(replace(file, spec_id=node.spec_id, partition=node.partition, data_sequence_number=sequence))
    files = replace(files, files=(*files.files, *copies))
    groups = files_by_node(files.files)
    reach = DeleteReach(groups, files.unpartitioned_spec_ids)
    positions = {file.path for file in files.files if file.content is FileContent.POSITION_DELETES}
    for node, group in groups.items():
        for file in group.data:
            assert {delete.path for delete in reach.of_all(node, [file])} == naive(files, file)
            assert {delete.path for delete in reach.positions(file)} == naive(files, file) & positions
    reaching = {path for file in files.files if file.is_data for path in naive(files, file)}
    assert {file.path for file in reach.dangling()} == {file.path for file in files.files if not file.is_data} - reaching


def test_an_equality_delete_reaches_lower_sequences_only() -> None:
    assert applying(data("a", seq=1), equality("e", 2)) == ["e"]
    assert applying(data("a", seq=2), equality("e", 2)) == []


def test_a_position_delete_reaches_its_own_sequence_too() -> None:
    assert applying(data("a", seq=2), position("p", 2)) == ["p"]
    assert applying(data("a", seq=3), position("p", 2)) == []


def test_an_equality_delete_of_another_partition_or_spec_reaches_nothing() -> None:
    assert applying(data("a"), equality("e", day=2), equality("f", spec=1)) == []


def test_a_global_equality_delete_reaches_every_partition_and_spec() -> None:
    assert applying(data("a", day=3, spec=1), global_equality("g")) == ["g"]


def test_a_referenced_position_delete_reaches_that_file_only() -> None:
    assert applying(data("a"), position("p", of="a"), position("q", of="b")) == ["p"]


def test_path_bounds_are_inclusive() -> None:
    bounded = position("p", bounds=("b", "d"))
    assert [bool(applying(data(path), bounded)) for path in "abcde"] == [False, True, True, True, False]


def test_a_delete_of_null_does_not_reach_the_text_null() -> None:
    assert applying(data("a", day="null"), equality("e", day=None)) == []


def test_files_of_equal_partitions_share_a_node_whichever_tuple_they_hold() -> None:
    nodes = files_by_node([data("a", day=1), data("b", day=1), equality("e", day=1), data("c", day=2)])
    assert [(len(group.data), len(group.deletes)) for group in nodes.values()] == [(2, 1), (1, 0)]


def manifest(path: str) -> ManifestRef:
    return ManifestRef(path, "data", 0, 1, 1, 1)


def test_gone_manifests_are_removed_and_unknown_ones_added_once() -> None:
    changes = manifest_changes(frozenset({"m1", "m2"}), [manifest("m2"), manifest("m3"), manifest("m3")])
    assert changes.removed == ("m1",)
    assert [added.path for added in changes.added] == ["m3"]
    still = manifest_changes(frozenset({"m2"}), [manifest("m2")])
    assert (still.removed, still.added) == ((), ())


def test_a_table_without_files_has_no_nodes() -> None:
    assert files_by_node(table_files().files) == {}
