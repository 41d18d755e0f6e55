"""Doors find only use cases in `Services`. import-linter forbids imports of other parts, and ruff forbids private attributes (SLF001)."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

PACKAGE = Path(__file__).parents[1] / "compaction_pipeline"


def test_the_public_parts_of_the_services_are_use_cases() -> None:
    trees = [ast.parse(path.read_text()) for path in (PACKAGE / "bootstrap.py", *(PACKAGE / "services").rglob("wire.py"))]
    imports = [node for tree in trees for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    modules = {alias.name: node.module or "" for node in imports for alias in node.names}
    shown = {name: kind for tree in trees for name, kind in _wired(tree) if not name.startswith("_")}
    assert "commit_tables" in shown
    assert {name: kind for name, kind in shown.items() if not modules[kind].startswith("compaction_pipeline.services.")} == {}


def _wired(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """The name and the type of each part that `Services`, or the wire of a column, builds on first use."""
    services = next(node for node in tree.body if isinstance(node, ast.ClassDef))
    for node in services.body:
        if isinstance(node, ast.FunctionDef) and any(ast.unparse(decorator) == "cached_property" for decorator in node.decorator_list):
            assert node.returns is not None
            yield node.name, ast.unparse(node.returns)
