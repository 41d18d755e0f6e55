"""Every link of a page leads to an existing file and heading, every path of code that a page names exists, and two pages are short."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "compaction_pipeline"
PAGES = sorted(
    page
    for pattern in ("*.md", "docs/*.md", "benchmarks/*.md", "compaction_pipeline/**/*.md")
    for page in ROOT.glob(pattern)
    if ".venv" not in page.parts
)
NAMES = [str(page.relative_to(ROOT)) for page in PAGES]
MOST_LINES = 120
"""The most lines of the README, because people read it first. Other text belongs into a page of `docs/`."""
MOST_WORDS = 1_500
"""The most words of ARCHITECTURE.md. The page of rules has a line for each module, and docstrings have the rest."""

_FENCE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\]\(([^)\s]+)\)")
_HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)
_LABEL = re.compile(r"\[`[^\]]*`\](?=\()")
_CODE = re.compile(r"`([\w./-]+)`")
_ROOMS = tuple(f"{path.name}/" for path in PACKAGE.iterdir() if path.is_dir())


def links(page: Path) -> Iterator[str]:
    """The links of a page into this repository."""
    for link in _LINK.findall(_FENCE.sub("", page.read_text())):
        if "://" not in link and not link.startswith("mailto:"):
            yield link


def anchors(page: Path) -> frozenset[str]:
    """The anchors of a page's headings, as GitHub and MkDocs make them from plain words."""
    headings = _HEADING.findall(_FENCE.sub("", page.read_text()))
    return frozenset(re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings)


def named_code(page: Path) -> Iterator[str]:
    """The files and folders that a page names in `code`, as paths in the repository. Text of links is left out."""
    for name in _CODE.findall(_LABEL.sub("", _FENCE.sub("", page.read_text()))):
        if name.startswith(("compaction_pipeline/", "compaction_pipeline_tests/", "benchmarks/", "docs/", "deploy/")):
            yield name
        elif name.startswith(_ROOMS):
            yield f"compaction_pipeline/{name}"


def test_there_are_pages() -> None:
    assert {"README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "DECISIONS.md", "docs/index.md"} <= set(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_every_link_of_a_page_leads_somewhere(name: str) -> None:
    page = ROOT / name
    broken = []
    for link in links(page):
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        if not target.exists() or (anchor and target.suffix == ".md" and anchor not in anchors(target)):
            broken.append(link)
    assert broken == []


@pytest.mark.parametrize("name", NAMES)
def test_the_code_that_a_page_names_is_there(name: str) -> None:
    assert [code for code in named_code(ROOT / name) if not (ROOT / code).exists()] == []


def test_the_architecture_names_only_folders_and_modules_that_exist() -> None:
    """Here a folder that was moved away as a whole is missed too. Elsewhere its name may be one in a table's storage."""
    names = re.findall(r"`([\w/]+/|[\w/]+\.py)`", (ROOT / "ARCHITECTURE.md").read_text())
    assert [name for name in names if not (PACKAGE / name).exists() and not (ROOT / name).exists()] == []


def test_the_architecture_names_every_folder_of_the_package_and_every_column() -> None:
    page = (ROOT / "ARCHITECTURE.md").read_text()
    folders = [path.relative_to(PACKAGE) for above in ("*/", "core/*/", "services/*/") for path in PACKAGE.glob(above)]
    assert [str(path) for path in folders if path.name != "__pycache__" and f"`{path}/`" not in page] == []


def test_the_architecture_is_short() -> None:
    assert len((ROOT / "ARCHITECTURE.md").read_text().split()) <= MOST_WORDS


def test_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) <= MOST_LINES
