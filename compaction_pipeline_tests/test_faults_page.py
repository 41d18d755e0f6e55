"""`docs/faults.md` says each message once, and nothing that was seen gets lost by that."""

from __future__ import annotations

from pathlib import Path

from compaction_pipeline_tests import faults_page

PAGE = (Path(__file__).parents[1] / "docs" / "faults.md").read_text()

LOST = "the answer got lost (ReadTimeout)"
ROWS = {
    "400 Bad Request": ("400 Bad Request", "1, A", "no (400: TestException: Bad Request)", "FAILING", "nothing", "exit 0", "nothing"),
    "403 Forbidden": ("403 Forbidden", "1, A", "no (403: TestException: Forbidden)", "FAILING", "nothing", "exit 0", "nothing"),
    "hangs": ("hangs", "5, A", LOST, f"FAILING: {LOST}; again from TIME", "1", "exit 0, 1 of 1 committed", "nothing"),
    "a file": ("a file", "1, A", f"1 task(s) failed: ID-00000: {LOST}", f"FAILING: {LOST}", "1", "exit 0", "nothing"),
    "harmless": ("harmless", "0, A", "", "HEALTHY: few files", "1", "exit 0, 0 of 0 committed: no gain", "nothing"),
}
GROUPS = {"One": ["400 Bad Request", "403 Forbidden"], "Two": ["hangs", "a file", "harmless"]}


def test_what_is_written_is_read_in_full() -> None:
    assert faults_page.read(faults_page.written("# Faults", GROUPS, ROWS)) == ROWS


def test_a_message_is_written_once_also_when_only_the_status_differs() -> None:
    page = faults_page.written("# Faults", GROUPS, ROWS)
    assert page.count(LOST) == 1
    assert page.endswith("\n1. no (STATUS)\n2. the answer got lost (ReadTimeout)\n3. few files\n4. no gain\n")
    assert "| a file | 1, A | 1 task(s) failed: ID-00000: (2) | FAILING: (2) | 1 | exit 0 | nothing |" in page


def test_the_page_says_no_message_twice() -> None:
    tables, _, messages = PAGE.partition(faults_page.HEADING)
    said = [line.partition(". ")[2] for line in messages.splitlines() if line[:1].isdigit()]
    assert len(set(said)) == len(said) > 0
    assert [message for message in said if message in tables] == []
