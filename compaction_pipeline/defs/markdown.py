"""Markdown as Dagster shows it: text of fewer than 1,000 characters at once, and longer text behind a button."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Sequence

AT_ONCE = 999
"""The most characters of Markdown that Dagster shows without a button. It counts UTF-16 code units, as JavaScript does."""

LINE = 42
"""Characters of a line of Markdown in the column of values, in a window of 1,400 pixels."""

_SPECIAL = {ord(character): f"\\{character}" for character in "\\`*_[]<>#&|~"} | dict.fromkeys(map(ord, "\r\n"), " ")
# Spaces, quotes and parentheses may stand in an address that is written in angle brackets. These characters may not.
_IN_ADDRESS = str.maketrans({"%": "%25", "<": "%3C", ">": "%3E", "#": "%23", "&": "%26", "\\": "%5C", "\n": "%0A"})


def is_shown_at_once(markdown: str) -> bool:
    """Whether Dagster shows this Markdown without a button."""
    return len(markdown.encode("utf-16-le", "surrogatepass")) // 2 <= AT_ONCE


def fitting(drawn: Callable[[int], str], details: Sequence[int]) -> str:
    """The Markdown with the most detail that Dagster still shows at once. `details` begin with the most detail."""
    versions = map(drawn, details)
    return next((version for version in versions if is_shown_at_once(version)), drawn(details[-1]))


def plain(text: str) -> str:
    """Any text, so that Markdown shows it as it is."""
    return text.translate(_SPECIAL)


def wrapped(text: str) -> str:
    """Any text as lines that a window of 1,400 pixels shows whole. Dagster would not wrap them beside a wide table, but cut them off."""
    lines = textwrap.wrap(text, LINE, break_on_hyphens=False)
    return "\\\n".join(map(plain, lines))


def image(svg: str, shows: str) -> str:
    """A picture as an image whose address holds the whole picture. `shows` is read aloud instead of the picture."""
    return f"![{shows}](<data:image/svg+xml,{svg.translate(_IN_ADDRESS)}>)"
