"""How many files a look-up on the sort columns may open: a law against a count by brute force, and examples."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compaction_pipeline.core.fragmentation import overlap
from compaction_pipeline.core.fragmentation.overlap import overlap_depth
from compaction_pipeline.core.tables.data_file import Bounds

Files = Sequence[Mapping[int, Bounds | None]]
_bounds = st.one_of(st.none(), st.tuples(st.integers(0, 8), st.integers(0, 4)).map(lambda one: (one[0], one[0] + one[1])))


@st.composite
def tables(draw: st.DrawFn) -> tuple[Files, tuple[int, ...]]:
    columns = tuple(range(1, 1 + draw(st.integers(1, 3))))
    return draw(st.lists(st.fixed_dictionaries(dict.fromkeys((*columns, 9), _bounds)), max_size=9)), columns


def opened(files: Files, point: Mapping[int, int]) -> int:
    """How many files may hold a row with these values."""
    held = [all(each[column] is None or each[column][0] <= value <= each[column][1] for column, value in point.items()) for each in files]  # type: ignore[index]
    return sum(held)


@given(tables())
def test_the_depth_is_the_most_files_that_any_look_up_opens(drawn: tuple[Files, tuple[int, ...]]) -> None:
    files, columns = drawn
    every = [dict(zip(columns, values, strict=True)) for values in product(range(13), repeat=len(columns))]
    assert overlap_depth(files, columns) == max(opened(files, point) for point in every)


@given(tables())
def test_of_very_many_files_the_depth_is_never_too_low(drawn: tuple[Files, tuple[int, ...]]) -> None:
    files, columns = drawn
    exact = overlap_depth(files, columns)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(overlap, "_MOST_COMPARED", 2)
        fast = overlap_depth(files, columns)
    assert exact is not None
    assert fast is not None
    assert exact <= fast <= len(files)


def test_of_very_many_files_that_share_a_value_of_the_first_column_the_others_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    files: Files = [{1: (7, 7), 2: (number, number)} for number in range(3)]
    for most, depth in ((3, 1), (2, 3)):
        monkeypatch.setattr(overlap, "_MOST_COMPARED", most)
        assert overlap_depth(files, (1, 2)) == depth


def test_sorted_files_that_follow_each_other_are_opened_one_by_one_and_an_append_lies_over_all() -> None:
    run: list[Mapping[int, Bounds | None]] = [{1: (10 * number, 10 * number + 9)} for number in range(50)]
    assert overlap_depth(run, (1,)) == 1
    assert overlap_depth([*run, {1: (0, 500)}, {1: None}], (1,)) == 3


def test_a_file_that_ends_where_the_next_one_begins_is_opened_with_it() -> None:
    assert overlap_depth([{1: ("a", "m")}, {1: ("m", "z")}], (1,)) == 2


def test_the_second_column_tells_files_apart_that_have_one_value_of_the_first() -> None:
    files: Files = [{1: (7, 7), 2: (number, number)} for number in range(30)]
    assert (overlap_depth(files, (1,)), overlap_depth(files, (1, 2))) == (30, 1)


def test_nothing_is_told_without_sort_columns_or_when_bounds_were_not_read() -> None:
    assert overlap_depth([{1: (1, 2)}], ()) is None
    assert overlap_depth([{1: (1, 2)}, None], (1,)) is None
    assert overlap_depth([{1: (1, 2)}, {2: (1, 2)}], (1,)) is None
    assert overlap_depth([], (1,)) == 0


def test_a_node_of_fifty_thousand_files_is_judged_in_seconds() -> None:
    files: Files = [{1: (number, number + 25_000), 2: (0, 1)} for number in range(50_000)]
    assert overlap_depth(files, (1, 2)) == 25_001
