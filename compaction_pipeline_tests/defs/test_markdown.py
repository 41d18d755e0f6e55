"""Markdown shows any text as it is, and lines are short enough for Dagster's column of values."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from compaction_pipeline.defs.markdown import AT_ONCE, LINE, fitting, image, is_shown_at_once, plain, wrapped


def test_characters_of_markdown_are_escaped() -> None:
    assert plain("a_b*c`d|<e>\n# f") == "a\\_b\\*c\\`d\\|\\<e\\> \\# f"


@given(st.text(alphabet="ab c-/.", max_size=300))
def test_long_text_becomes_short_lines_with_all_its_words(text: str) -> None:
    lines = wrapped(text).split("\\\n")
    assert all(len(line) <= LINE for line in lines)
    assert "".join(lines).replace(" ", "") == "".join(text.split())


def test_the_most_detail_that_fits_is_chosen() -> None:
    assert len(fitting(lambda number: "x" * number, (2000, 1000, AT_ONCE, 5))) == AT_ONCE
    assert fitting(lambda number: "x" * number, (3000, 2000)) == "x" * 2000


def test_length_is_counted_as_a_browser_does() -> None:
    assert is_shown_at_once("x" * AT_ONCE)
    assert not is_shown_at_once("\N{GRINNING FACE}" * (AT_ONCE // 2 + 1))


def test_an_image_has_nothing_in_its_address_that_markdown_would_read() -> None:
    assert image("<svg a='1%'>\\&</svg>", "all") == "![all](<data:image/svg+xml,%3Csvg a='1%25'%3E%5C%26%3C/svg%3E>)"
