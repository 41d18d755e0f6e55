"""Every test and file that the README names exists."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()


def test_every_promise_names_a_test_that_is_there() -> None:
    proofs = re.findall(r"\]\((compaction_pipeline_tests/[^)]+)\) `(test_\w+)`", README)
    assert len(proofs) >= 10
    missing = [proof for file, proof in proofs if f"def {proof}(" not in (ROOT / file).read_text()]
    assert missing == []


def test_every_link_into_the_repository_leads_somewhere() -> None:
    links = [link for link in re.findall(r"\]\(([^)]+)\)", README) if not link.startswith("http")]
    assert links
    assert [link for link in links if not (ROOT / link).exists()] == []
