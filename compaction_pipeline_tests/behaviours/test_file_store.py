from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from compaction_pipeline.core.stores import Stores
from compaction_pipeline.core.tables.data_file import BoundedFile, Bounds, FileContent, LiveFile
from compaction_pipeline.core.tables.figures import NodeFigures, NodeMetrics
from compaction_pipeline.core.tables.node import PartitionValue, TableNode
from compaction_pipeline.core.tables.ports.files import TouchedNode
from compaction_pipeline.core.tables.table import TableIdentifier
from compaction_pipeline.storage.stores import open_stores
from compaction_pipeline_tests.builders import TABLE, data, equality, position

OTHER = TableIdentifier("lake", ("shop",), "other")


def listed(manifest: str, *files: LiveFile) -> dict[str, list[LiveFile]]:
    return {manifest: [replace(file, manifest_path=manifest) for file in files]}


def test_files_come_back_as_they_were_listed(stores: Stores) -> None:
    delete = replace(equality("e"), equality_ids=(3, 1), added_snapshot_id=2**62, sort_order_id=0)
    added = listed("m1", data("a"), position("p", of="a"), position("q", bounds=("a", "b")), delete)
    stores.files.apply(TABLE, [], added)
    assert list(stores.files.files(TABLE)) == added["m1"]
    assert stores.files.manifests(TABLE) == {"m1"}
    assert stores.files.files(OTHER) == ()


def test_partition_values_keep_their_types(stores: Stores) -> None:
    values = (1, 1.0, True, "1", 0, -0.0, 0.0, False, None, "null", "", "NaN", 2**63, 1e300, "ü/=&\U0001f40b")
    files = [
        replace(data(f"f{number}"), manifest_path="m", partition=(PartitionValue("p", "x", value),)) for number, value in enumerate(values)
    ]
    stores.files.apply(TABLE, [], {"m": files})
    found = [file.partition[0].value for file in stores.files.files(TABLE)]
    assert [(type(value), repr(value)) for value in found] == [(type(value), repr(value)) for value in values]


def test_removing_a_manifest_removes_its_files(stores: Stores) -> None:
    stores.files.apply(TABLE, [], {**listed("m1", data("a")), **listed("m2", data("b"), data("c"))})
    stores.files.apply(TABLE, ["m1", "unknown"], listed("m3", data("a")))
    assert sorted(file.path for file in stores.files.files(TABLE)) == ["a", "b", "c"]
    assert stores.files.manifests(TABLE) == {"m2", "m3"}


def test_applying_twice_is_applying_once(stores: Stores) -> None:
    for _ in range(2):
        stores.files.apply(TABLE, ["m0"], {**listed("m1", data("a"), data("b")), "empty": []})
    assert [file.path for file in stores.files.files(TABLE)] == ["a", "b"]
    assert stores.files.manifests(TABLE) == {"m1", "empty"}


def test_many_files_in_many_manifests_and_partitions_come_back(stores: Stores) -> None:
    added = {
        f"m{number}": [replace(data(f"f{number}-{each}", day=f"{number}-{each % 2}"), manifest_path=f"m{number}") for each in range(3)]
        for number in range(1100)
    }
    stores.files.apply(TABLE, [], added)
    assert set(stores.files.files(TABLE)) == {file for files in added.values() for file in files}
    stores.files.apply(TABLE, list(added), {})
    assert stores.files.files(TABLE) == ()


_VALUES = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False, allow_infinity=False), st.text(max_size=8))
_FILES = st.builds(
    LiveFile,
    path=st.text(min_size=1, max_size=8),
    content=st.sampled_from(FileContent),
    spec_id=st.integers(0, 5),
    partition=st.lists(st.builds(PartitionValue, st.text(max_size=4), st.sampled_from(("int", "string")), _VALUES), max_size=3).map(tuple),
    file_size_bytes=st.integers(0, 2**62),
    record_count=st.integers(0, 2**62),
    data_sequence_number=st.integers(0, 2**62),
    manifest_path=st.just("m"),
    equality_ids=st.lists(st.integers(1, 99), max_size=3).map(tuple),
    referenced_data_file=st.none() | st.text(max_size=4),
)


@settings(max_examples=15)
@given(st.lists(_FILES, max_size=5))
def test_any_file_comes_back_as_it_was(tmp_path_factory: object, files: list[LiveFile]) -> None:
    stores = _shared(tmp_path_factory)
    stores.files.apply(TABLE, list(stores.files.manifests(TABLE)), {"m": files})
    assert list(stores.files.files(TABLE)) == files


_OPENED: list[Stores] = []


def _shared(tmp_path_factory: object) -> Stores:
    # All examples use one database, because making one takes longer than an example.
    if not _OPENED:
        folder: Path = tmp_path_factory.mktemp("files")  # type: ignore[attr-defined]
        _OPENED.append(open_stores(f"sqlite:///{folder / 'state.db'}"))
    return _OPENED[0]


def of(day: str) -> TableNode:
    return data("any", day=day).node


def test_files_of_a_node_come_with_the_files_of_other_nodes_that_matter_to_them(stores: Stores) -> None:
    own = [data("a", day="1"), position("p", of="a", day="1"), equality("e", day="1")]
    naming = position("q", of="a", day="2")
    again = replace(data("a", day="3"), record_count=7)
    others = [data("b", day="2"), position("r", of="b", day="2"), position("s", of="gone", day="2"), equality("f", day="2")]
    added = {**listed("m1", *own, naming), **listed("m2", again, *others)}
    stores.files.apply(TABLE, [], added)
    stores.files.apply(OTHER, [], listed("m1", data("a", day="4"), position("t", of="a", day="5")))
    assert set(stores.files.files(TABLE, [of("1")])) == {*added["m1"], added["m2"][0]}
    assert [file.path for file in stores.files.files(TABLE, [of("1")])][:3] == ["a", "p", "e"]
    # "q" is of this node and names the file "a" of another node. "a" is live twice.
    assert {file.path for file in stores.files.files(TABLE, [of("2")])} == {"a", "b", "q", "r", "s", "f"}
    assert sorted(file.path for file in stores.files.files(TABLE, [of("1"), of("2"), of("3"), of("9")])) == sorted(
        file.path for file in (*own, naming, again, *others)
    )
    assert stores.files.files(TABLE, []) == ()


def test_a_type_promotion_keeps_the_identity_of_a_node(stores: Stores) -> None:
    narrow, wide = ((PartitionValue("id", kind, 7),) for kind in ("int", "long"))
    files = [replace(data("a"), partition=narrow), replace(data("b"), partition=wide)]
    stores.files.apply(TABLE, [], listed("m1", *files))
    assert {file.path for file in stores.files.files(TABLE, [files[0].node])} == {"a", "b"}
    assert stores.files.touched(TABLE) == {files[1].node: TouchedNode(2, changed=True)}


def test_the_same_values_of_two_specs_are_two_nodes(stores: Stores) -> None:
    one, two = data("a", day="1"), replace(data("b", day="1"), spec_id=1)
    stores.files.apply(TABLE, [], listed("m1", one, two))
    assert [file.path for file in stores.files.files(TABLE, [two.node])] == ["b"]
    assert stores.files.touched(TABLE) == dict.fromkeys((one.node, two.node), TouchedNode(1, changed=True))


def test_nodes_are_touched_until_they_are_settled(stores: Stores) -> None:
    stores.files.apply(TABLE, [], {**listed("m1", data("a", day="1"), data("b", day="2")), **listed("m2", data("c", day="1"))})
    one, none = TouchedNode(1, changed=True), TouchedNode(0, changed=True)
    assert stores.files.touched(TABLE) == {of("1"): TouchedNode(2, changed=True), of("2"): one}
    stores.files.mark_measured(TABLE, [of("1"), of("2"), of("9")])
    assert stores.files.touched(TABLE) == {}
    stores.files.apply(TABLE, ["m1"], listed("m3", data("d", day="3")))
    assert stores.files.touched(TABLE) == {of("1"): one, of("2"): none, of("3"): one}
    stores.files.mark_measured(TABLE, [of("2")])
    assert stores.files.touched(TABLE) == {of("1"): one, of("3"): one}
    stores.files.mark_measured(TABLE, [of("1"), of("3")])
    stores.files.touch(TABLE)
    again = stores.files.touched(TABLE)
    assert again[of("1")] == again[of("3")] == TouchedNode(1, changed=False)
    assert stores.files.touched(OTHER) == {}


def test_files_that_move_to_another_manifest_touch_no_node(stores: Stores) -> None:
    stores.files.apply(TABLE, [], {**listed("m1", data("a", day="1"), data("b", day="2")), **listed("m2", position("p", day="1", of="a"))})
    stores.files.mark_measured(TABLE, [of("1"), of("2")])
    stores.files.apply(TABLE, ["m1", "m2"], listed("m3", position("p", day="1", of="a"), data("b", day="2"), data("a", day="1")))
    assert stores.files.touched(TABLE) == {}
    # A large table is applied in parts, so a file may be listed twice for a while. At the end only node 2 has changed.
    stores.files.apply(TABLE, [], listed("m4", data("a", day="1"), data("b", day="2")))
    assert set(stores.files.touched(TABLE)) == {of("1"), of("2")}
    stores.files.apply(TABLE, ["m3"], listed("m5", position("p", day="1", of="a"), data("c", day="2")))
    assert stores.files.touched(TABLE) == {of("2"): TouchedNode(2, changed=True)}


def test_any_change_of_a_file_touches_its_node(stores: Stores) -> None:
    before = position("a", 1, bounds=("a", "b"))
    changes: list[dict[str, object]] = [
        {"data_sequence_number": 2},
        {"record_count": before.record_count + 1},
        {"file_size_bytes": before.file_size_bytes + 1},
        {"path": "b"},
        {"path_upper": "c"},
        {"referenced_data_file": "x"},
        {"content": FileContent.EQUALITY_DELETES, "equality_ids": (1,)},
    ]
    for number, change in enumerate(changes):
        stores.files.apply(TABLE, [f"m{number}"], listed("before", before))
        stores.files.mark_measured(TABLE, [before.node])
        after = replace(before, **change)  # type: ignore[arg-type]  # fields by name
        stores.files.apply(TABLE, ["before"], listed(f"m{number + 1}", after))
        assert stores.files.touched(TABLE) == {before.node: TouchedNode(1, changed=True)}, change


def test_a_global_delete_is_found_as_long_as_it_is_listed(stores: Stores) -> None:
    everywhere = replace(equality("g"), spec_id=5, partition=())
    stores.files.apply(TABLE, [], listed("m1", data("a", day="1"), equality("e", day="1")))
    assert not stores.files.has_global_deletes(TABLE, {5})
    stores.files.apply(TABLE, [], listed("m2", everywhere))
    assert stores.files.has_global_deletes(TABLE, {4, 5})
    assert not stores.files.has_global_deletes(TABLE, {4})
    assert not stores.files.has_global_deletes(OTHER, {5})
    stores.files.apply(TABLE, ["m2"], {})
    assert not stores.files.has_global_deletes(TABLE, {5})


def test_live_files_of_other_tables_are_found_among_many_paths(stores: Stores) -> None:
    other = TableIdentifier("lake", ("db",), "other")
    paths = [f"s3://b/{number}: 'ß'%s" for number in range(2500)]
    stores.files.apply(TABLE, [], {"m": [data(paths[0]), data(paths[1])]})
    stores.files.apply(other, [], {"m": [data(paths[1]), data(paths[2400]), data("s3://b/unasked")]})
    assert set(stores.files.named_by_others(TABLE, paths)) == {paths[1], paths[2400]}
    assert set(stores.files.named_by_others(other, paths)) == {paths[0], paths[1]}
    assert set(stores.files.named_by_others(TABLE, [])) == set()


def test_sums_of_nodes_are_those_of_their_files(stores: Stores) -> None:
    files = [
        *(data(f"a{number}", kb, seq=number, day="1", rows=number) for number, kb in enumerate((1, 125, 126, 750, 751), 1)),
        equality("e", 9, kb=2, day="1"),
        position("p", of="a1", kb=200, day="1"),
        data("b", 10, day="2", rows=5),
        position("q", kb=1, day="3"),
    ]
    stores.files.apply(TABLE, [], listed("m1", *files))
    stores.files.apply(OTHER, [], listed("m1", data("c", 10, day="2")))
    figures = stores.files.figures(TABLE, 125_000, 750_000)
    assert figures[of("1")] == NodeFigures(
        NodeMetrics(5, 2, 126_000, 1_753_000, 1, 1, 1, 2_000, 202_000, 15), undersized_files=2, max_sequence_number=9
    )
    assert figures[of("2")] == NodeFigures(NodeMetrics(1, 1, 10_000, 10_000, rows=5), 0, 1)
    assert figures[of("3")].metrics == NodeMetrics(
        position_delete_files=1, small_delete_files=1, small_delete_bytes=1_000, delete_bytes=1_000
    )
    assert set(figures) == {of("1"), of("2"), of("3")}
    assert stores.files.figures(TABLE, 125_000, 750_000, [of("2"), of("9")]) == {of("2"): figures[of("2")]}
    assert stores.files.figures(TABLE, 125_000, 750_000, []) == {}


def test_a_node_is_crossed_when_a_delete_of_another_names_its_file(stores: Stores) -> None:
    own = [data("a", day="1"), position("p", of="a", day="1"), data("b", day="2")]
    stores.files.apply(TABLE, [], listed("m1", *own, position("gone", of="x", day="2")))
    assert not stores.files.named_from_elsewhere(TABLE)
    stores.files.apply(OTHER, [], listed("m1", position("o", of="b", day="1"), data("c", day="1"), position("r", of="c", day="2")))
    stores.files.apply(TABLE, [], listed("m2", position("q", of="b", day="1")))
    assert set(stores.files.named_from_elsewhere(TABLE)) == set(stores.files.named_from_elsewhere(TABLE, [of("1"), of("2")])) == {of("2")}
    assert not stores.files.named_from_elsewhere(TABLE, [of("1")])


def test_the_bounds_of_sort_columns_are_those_with_which_a_data_file_was_added_last(stores: Stores) -> None:
    def bounded(path: str, day: str, bounds: Mapping[int, Bounds | None]) -> BoundedFile:
        return BoundedFile.of(data(path, day=day), bounds)

    one, two = bounded("a", "1", {1: (3, 2**62), 2: ("ä", "ö")}), bounded("b", "1", {1: None, 2: (-0.5, 1e300)})
    stores.files.apply(TABLE, [], listed("m1", one, two, data("c", day="2"), position("p", day="2")))
    nodes = [one.node, data("c", day="2").node]
    assert {node: sorted(found, key=str) for node, found in stores.files.sort_bounds(TABLE, nodes).items()} == {
        nodes[0]: sorted([one.sort_bounds, two.sort_bounds], key=str),
        nodes[1]: [None],
    }
    assert stores.files.sort_bounds(TABLE, nodes[1:]).keys() == {nodes[1]}
    assert stores.files.sort_bounds(OTHER, nodes) == {}
    # The index returns files without bounds, and a file that only gets other bounds is no other file.
    assert all(type(file) is LiveFile for file in stores.files.files(TABLE))
    stores.files.mark_measured(TABLE, nodes)
    stores.files.apply(TABLE, ["m1"], listed("m2", bounded("a", "1", {1: (5, 6)}), two, data("c", day="2"), position("p", day="2")))
    assert sorted(stores.files.sort_bounds(TABLE, nodes)[nodes[0]], key=str) == sorted([{1: (5, 6)}, two.sort_bounds], key=str)
    assert stores.files.touched(TABLE) == {}
