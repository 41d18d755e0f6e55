"""What `mkdocs build` needs to know about this repository.

Some pages live outside `docs/`, beside the code that they describe; they become pages of the site too. A page may link to any file of
the repository. On the site a link to another page leads to that page, and a link to a file that is no page becomes plain text. One page
is no file at all: the list of all modules is made anew from their docstrings by each build, so it is never outdated.
"""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import Any

from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parent

PAGES = {
    "architecture.md": "ARCHITECTURE.md",
    "benchmarks.md": "benchmarks/README.md",
    "commit-contract.md": "compaction_pipeline/iceberg/CONTRACT.md",
    "contributing.md": "CONTRIBUTING.md",
    "decisions.md": "DECISIONS.md",
    "plan-contract.md": "compaction_pipeline/core/planning/CONTRACT.md",
}
"""The page's name on the site → the file of the repository that holds it."""

RULES = "rules.md"
"""The name of the page that says what each module decides or does."""

_LINK = re.compile(r"(?<!!)\[([^\]]*)\]\(([^)\s]+)\)")


def on_files(files: Files, config: Any) -> Files:
    """Add the pages that live outside `docs/`."""
    for name, source in PAGES.items():
        files.append(File.generated(config, name, abs_src_path=str(ROOT / source)))
    files.append(File.generated(config, RULES, content=rules_page(ROOT / "compaction_pipeline")))
    return files


def rules_page(package: Path) -> str:
    """A table for each folder of a package: its modules, and the first line of the docstring of each. A module without one is left out."""
    lines = ["# Where each rule lives", "", "These are the first lines of the docstrings of all modules."]
    for folder, modules in groupby(_told(package), key=lambda each: each[0].parent):
        where = folder.relative_to(package.parent).as_posix()
        lines += ["", f"## `{where}/`", "", "| module | what it decides or does |", "| --- | --- |"]
        lines += [f"| `{module.name}` | {first.replace('|', chr(92) + '|')} |" for module, first in modules]
    return "\n".join(lines) + "\n"


def _told(package: Path) -> Iterator[tuple[Path, str]]:
    """The modules that have a docstring, folder by folder, each with the first line of it."""
    for module in sorted(package.rglob("*.py"), key=lambda path: (path.parent, path.name)):
        if docstring := ast.get_docstring(ast.parse(module.read_text(encoding="utf-8"))):
            yield module, docstring.splitlines()[0]


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    """Turn links between files of the repository into links between pages of the site."""
    name = page.file.src_uri
    if name == RULES:
        return markdown
    source = ROOT / PAGES.get(name, f"docs/{name}")
    names = {(ROOT / path).resolve(): uri for uri, path in PAGES.items()}
    names |= {(ROOT / "docs" / file.src_uri).resolve(): file.src_uri for file in files if file.src_uri not in {*PAGES, RULES}}
    names[ROOT / "README.md"] = "index.md"

    def linked(match: re.Match[str]) -> str:
        label, link = match.groups()
        path, hash_sign, anchor = link.partition("#")
        if not path or "://" in path or path.startswith("mailto:"):
            return match.group()
        target = (source.parent / path).resolve()
        if not target.exists():
            raise PluginError(f"{source.relative_to(ROOT)} links to {link}, which is not in the repository")
        if target not in names:
            return label
        return f"[{label}]({os.path.relpath(names[target], Path(name).parent)}{hash_sign}{anchor})"

    return _LINK.sub(linked, markdown)
