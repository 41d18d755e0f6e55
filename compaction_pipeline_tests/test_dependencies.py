"""What the package imports is what it says that it needs."""

from __future__ import annotations

import ast
import re
import sys
from importlib.metadata import packages_distributions
from pathlib import Path

_REPO = Path(__file__).parents[1]
# These are parts of a package that is named, and change with it.
_PARTS = {
    "anyio": "fastapi",
    "grpc": "pyspark",
    "h11": "uvicorn",
    "py4j": "pyspark",
    "pydantic_core": "pydantic",
    "starlette": "fastapi",
}


def _plain(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _imported() -> set[str]:
    found: set[str] = set()
    for path in (_REPO / "compaction_pipeline").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                found |= {each.name.partition(".")[0] for each in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module:
                found.add(node.module.partition(".")[0])
    return found - sys.stdlib_module_names - {"compaction_pipeline"}


def test_every_package_that_the_code_imports_is_named_in_pyproject() -> None:
    # Python 3.10 has no reader of TOML. Each requirement is a text in quotes, with its bounds.
    project = (_REPO / "pyproject.toml").read_text().partition("[project.scripts]")[0]
    named = {_plain(name) for name in re.findall(r'"([A-Za-z0-9][A-Za-z0-9_.-]*)(?:\[[^]]*\])?[<>=]', project)}
    assert {"pyiceberg", "fastapi", "boto3"} <= named
    packages = packages_distributions()
    unnamed = {
        name for name in _imported() if _PARTS.get(name) not in named and not named & {_plain(each) for each in packages.get(name, [name])}
    }
    assert unnamed == set()
