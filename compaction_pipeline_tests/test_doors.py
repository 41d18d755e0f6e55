"""Doors use only the use cases of `Services`. import-linter forbids imports of other parts, and these tests forbid private attributes."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "compaction_pipeline"
DOORS = sorted([*PACKAGE.glob("cli/**/*.py"), *PACKAGE.glob("defs/**/*.py"), *PACKAGE.glob("demo/**/*.py"), PACKAGE / "definitions.py"])


def private_parts(source: str) -> list[str]:
    """Every `thing._part` in the source, except `self._part` and `os._exit`."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Attribute) and node.attr.startswith("_") and not node.attr.startswith("__"):
            owner = ast.unparse(node.value)
            if owner not in ("self", "cls", "os"):
                found.append(f"line {node.lineno}: {owner}.{node.attr}")
    return found


@pytest.mark.parametrize("door", DOORS, ids=lambda door: str(door.relative_to(PACKAGE)))
def test_a_door_reaches_no_private_part_of_the_services(door: Path) -> None:
    assert private_parts(door.read_text()) == []


def test_a_door_that_reaches_the_stores_would_be_found() -> None:
    assert private_parts("self.services._stores.tables.pause(None, True)") == ["line 1: self.services._stores"]
    assert private_parts("self._services.pause_tables.pause()") == []


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
