"""The pictures hold true numbers, survive any name, and are short enough for Dagster to show them at once."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree
from datetime import datetime, timedelta, timezone
from urllib.parse import unquote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compaction_pipeline.core.insight.files_over_time import FilesPoint
from compaction_pipeline.core.insight.node_change import FileGroup
from compaction_pipeline.defs.markdown import is_shown_at_once
from compaction_pipeline.defs.pictures import WIDTH, TableBar, before_after, files_over_time, running_now, worst_tables
from compaction_pipeline.defs.svg import BLUE, ORANGE, PURPLE, RED, text_width

NOW = datetime(2026, 1, 8, 12, tzinfo=timezone.utc)
_SVG = "{http://www.w3.org/2000/svg}"


def drawing(markdown: str) -> ElementTree.Element:
    """The SVG of the one image in a Markdown text. Anything that is no XML fails here."""
    found = re.match(r"!\[[^\]]*\]\(<data:image/svg\+xml,([^<>\n]*)>\)", markdown)
    assert found, markdown
    return ElementTree.fromstring(unquote(found.group(1)))


def texts(markdown: str) -> list[str]:
    return [element.text or "" for element in drawing(markdown).iter(f"{_SVG}text")]


def lengths(markdown: str, colour: str) -> list[int]:
    """The lengths of all bars of one colour, in the order in which they are drawn."""
    paths = [path.get("d", "") for path in drawing(markdown).iter(f"{_SVG}path") if path.get("stroke") == colour]
    return [int(length) for path in paths for length in re.findall(r"h(\d+)", path)]


def history(count: int) -> list[FilesPoint]:
    return [FilesPoint(NOW - timedelta(minutes=7 * (count - i)), 50 + 37 * i % 300, 40 * i) for i in range(count)]


@given(st.integers(1, 300), st.booleans())
def test_the_history_shows_todays_files_and_what_would_be_without_us(count: int, whole: bool) -> None:
    points = history(count)
    shown = files_over_time(points, NOW, whole=whole)
    assert whole or is_shown_at_once(shown)
    assert f"{points[-1].files:,} files" in texts(shown)
    assert f"{points[-1].files + points[-1].merged_away:,} without us" in texts(shown)
    assert f"the {points[-1].merged_away:,} that our commits merged away" in shown.replace("\\\n", " ")


def test_the_line_of_the_files_goes_down_when_a_commit_merges_files_away() -> None:
    points = [FilesPoint(NOW - timedelta(hours=2), 100, 0), FilesPoint(NOW - timedelta(hours=1), 10, 90)]
    ours = next(path.get("d", "") for path in drawing(files_over_time(points, NOW)).iter(f"{_SVG}path") if path.get("stroke") == BLUE)
    start, down, end = re.fullmatch(r"M0,(\d+)H\d+V(\d+)H(\d+)", ours).groups()  # type: ignore[union-attr]
    assert int(start) < int(down)
    without = next(path.get("d", "") for path in drawing(files_over_time(points, NOW)).iter(f"{_SVG}path") if path.get("stroke") == ORANGE)
    assert without == f"M0,{start}H{end}"


def test_without_a_point_the_history_says_so() -> None:
    assert files_over_time([], NOW) == "No table was read yet."


_names = st.text(max_size=60)
_counts = st.integers(0, 10**7)


@given(st.lists(st.builds(TableBar, _names, _counts, _counts, _counts), max_size=30))
def test_the_worst_tables_are_shown_in_the_order_given_whatever_their_names_are(tables: list[TableBar]) -> None:
    ill = [table.files for table in tables if table.files]
    for whole in (False, True):
        shown = worst_tables(tables, whole=whole)
        assert whole or is_shown_at_once(shown)
        if not ill:
            assert shown == "No table has small data files or delete files."
            continue
        totals = [text.split(" ")[0] for text in texts(shown)[:-3]]
        assert totals == [f"{files:,}" for files in ill[: len(totals)]]
        assert len(totals) >= 1


@pytest.mark.parametrize("letter", ["W", "i", "o", "表"])
def test_no_name_reaches_its_bar_or_the_edge_of_the_picture(letter: str) -> None:
    name = f"lake.{letter * 60}.end"
    for whole, width in ((False, WIDTH), (True, 900)):
        for text in texts(worst_tables([TableBar(name, 123_456, 1, 1)], whole=whole))[:-3]:
            assert text_width(text) < (392 if whole else 196)
            assert text.startswith("123,458 lak")
            assert text.endswith("end")
        first = texts(running_now(0, 1, 0, [(name, "3 files")], whole=whole))[3]
        assert text_width(first) < width
        assert "…" in first or text_width(name) < width


def test_bars_are_as_long_as_their_counts() -> None:
    shown = worst_tables([TableBar("a", 100, 50, 0), TableBar("b", 30, 0, 20)])
    small, equality, position = (lengths(shown, colour) for colour in (ORANGE, RED, PURPLE))
    assert small[0] == pytest.approx(2 * equality[0], abs=1)
    assert (len(small), len(equality), len(position)) == (2, 1, 1)
    assert position[0] == pytest.approx(small[0] / 5, abs=1)


def test_of_tables_with_ordinary_names_five_are_shown_at_once() -> None:
    shown = worst_tables([TableBar(f"lake.sales.orders_{i}", 100 + i, 40, 30) for i in range(20)])
    assert len([text for text in texts(shown) if " lake." in text]) >= 5


@given(
    st.integers(0, 9999),
    st.integers(0, 99),
    st.integers(0, 999),
    st.lists(st.tuples(st.text(max_size=200), st.text(max_size=30)), max_size=20),
)
def test_the_queue_is_shown_with_its_counts(waiting: int, merging: int, merged: int, tasks: list[tuple[str, str]]) -> None:
    shown = running_now(waiting, merging, merged, tasks)
    assert is_shown_at_once(shown)
    if waiting + merging + merged:
        assert {f"{waiting:,} waiting", f"{merging:,} merging"} <= set(texts(shown))
    else:
        assert shown == "Nothing waits, and nothing is merged now."


def test_tasks_that_find_no_room_are_counted() -> None:
    shown = running_now(1, 30, 0, [(f"lake.shop.orders day={i}", "12 files, 24.0 MB, 14 s") for i in range(20)])
    listed = [text for text in texts(shown) if text.startswith("lake.")]
    assert f"and {20 - len(listed)} more" in texts(shown)


def test_the_words_above_a_bar_of_files_are_not_cut_off() -> None:
    shown = before_after(FileGroup(81_000, 125_000, 101_000_000), FileGroup(2, 0, 10_100))
    # A character of the usual font is about 5.7 pixels wide.
    ends = [int(text.get("x", "0")) + 5.7 * len(text.text or "") for text in drawing(shown).iter(f"{_SVG}text")]
    assert max(ends) <= 320


def test_before_and_after_are_two_bars_with_their_sizes() -> None:
    shown = before_after(FileGroup(40, 10, 120_000_000), FileGroup(2, 0, 100_000_000))
    assert "before: 40 data files, 10 delete files, 120 MB" in texts(shown)
    assert "after: 2 data files, 0 delete files, 100 MB" in texts(shown)
    data = lengths(shown, BLUE)
    assert data[0] == pytest.approx(20 * data[1], rel=0.2)
    assert len(lengths(shown, RED)) == 1
    assert is_shown_at_once(shown)
    assert "before: 3 data files, 9 B" in texts(before_after(FileGroup(3, 0, 9), FileGroup(1, 0, 7)))
