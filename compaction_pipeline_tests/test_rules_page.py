"""The page "Where each rule lives" is made of the first lines of docstrings, so each first line is a sentence that stands alone."""

from __future__ import annotations

import ast
from pathlib import Path

from mkdocs_hooks import rules_page

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "compaction_pipeline"


def _first_line(module: Path) -> str:
    return (ast.get_docstring(ast.parse(module.read_text())) or "").partition("\n")[0]


def test_the_first_line_of_each_module_is_a_whole_sentence() -> None:
    cut = [
        str(path.relative_to(ROOT)) for path in PACKAGE.rglob("*.py") if path.name != "__init__.py" and not _first_line(path).endswith(".")
    ]
    assert cut == []


def test_a_module_stands_below_its_folder_with_its_first_line(tmp_path: Path) -> None:
    deep = tmp_path / "package" / "commit"
    deep.mkdir(parents=True)
    (deep / "__init__.py").write_text("")
    (deep / "decision.py").write_text('"""Decides what goes in: this | that.\n\nMore of it.\n"""\n')
    (tmp_path / "package" / "words.py").write_text('"""Writes counts."""\n')
    page = rules_page(tmp_path / "package")
    head = "| module | what it decides or does |\n| --- | --- |\n"
    assert f"\n## `package/`\n\n{head}| `words.py` | Writes counts. |\n" in page
    assert f"\n## `package/commit/`\n\n{head}| `decision.py` | Decides what goes in: this \\| that. |\n" in page
    assert "__init__" not in page


def test_every_module_that_says_something_is_on_the_page() -> None:
    page = rules_page(PACKAGE)
    missing = [str(module) for module in PACKAGE.rglob("*.py") if (line := _first_line(module)) and line.replace("|", "\\|") not in page]
    assert missing == []
