"""Parts of pages that tests make from the code, so that no page can be out of date.

With `COMPACTION_TEST_WRITE_DOCS=1` a part is written into its page. Without it a part that is out of date fails its test.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).parents[1]
HOW = "the page is out of date: write it with COMPACTION_TEST_WRITE_DOCS=1, read the difference and commit it"


def check_part(page: str, name: str, test_file: str, made: str) -> None:
    """Compare the text between the marks of one part with the made text, or write the made text there.

    `page` and `test_file` are paths in the repository; `test_file` is the test that makes the part, and its begin mark names it.
    """
    path = ROOT / page
    begin = f"<!-- {name}: made by {Path(test_file).resolve().relative_to(ROOT)}, do not edit -->\n"
    end = f"<!-- /{name} -->"
    text = path.read_text()
    start, stop = text.index(begin) + len(begin), text.index(end)
    made = made.strip("\n") + "\n"
    if os.environ.get("COMPACTION_TEST_WRITE_DOCS"):
        path.write_text(text[:start] + made + text[stop:])
    assert path.read_text()[start:].startswith(made + end), HOW


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)
