"""Doors find only use cases in `Services`. import-linter forbids imports of other parts, and ruff forbids private attributes (SLF001)."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

PACKAGE = Path(__file__).parents[1] / "compaction_pipeline"


def test_the_public_parts_of_the_services_are_use_cases() -> None:
    tree = ast.parse((PACKAGE / "bootstrap.py").read_text())
    modules = {alias.name: node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) for alias in node.names}
    shown = {name: kind for name, kind in _wired(tree) if not name.startswith("_")}
    assert "commit_tables" in shown
    assert {name: kind for name, kind in shown.items() if not modules[kind].startswith("compaction_pipeline.services.")} == {}


def _wired(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """The name and the type of each part that `Services` builds on first use."""
    services = next(node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == "Services")
    for node in services.body:
        if isinstance(node, ast.FunctionDef) and any(ast.unparse(decorator) == "cached_property" for decorator in node.decorator_list):
            assert node.returns is not None
            yield node.name, ast.unparse(node.returns)
