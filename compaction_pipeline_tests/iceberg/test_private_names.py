"""Only the listed modules use private names of PyIceberg, and the installed PyIceberg still has these names."""

from __future__ import annotations

import ast
import re
from importlib.util import find_spec
from pathlib import Path

import pytest

import compaction_pipeline

ROOT = Path(next(iter(compaction_pipeline.__path__)))

USED = {
    "iceberg/rewrite_files.py": ("table/__init__.py", {"_do_commit"}),
    "iceberg/catalogs/glue_catalog.py": ("catalog/glue.py", {"_register_glue_catalog_id_with_glue_client"}),
    "iceberg/catalogs/raw_tables.py": ("catalog/__init__.py", {"_load_file_io"}),
    "iceberg/catalogs/rest_catalog.py": (
        "catalog/rest/__init__.py",
        {"_session", "_config_headers", "_init_sigv4", "_fetch_config", "_load_file_io", "_response_to_table"},
    ),
    "iceberg/catalogs/sql_catalog.py": ("catalog/sql.py", {"_init_catalog"}),
    "iceberg/catalogs/told_properties.py": ("catalog/__init__.py", {"_load_file_io"}),
}
"""For each of our modules: the file of PyIceberg that has the names, and the names."""

_OF_NAMED_TUPLES = {"_make", "_fields"}


def _private_names(module: ast.Module) -> set[str]:
    """The attributes that begin with an underscore and belong to another object than `self` or `cls`."""
    return {
        each.attr
        for each in ast.walk(module)
        if isinstance(each, ast.Attribute)
        and each.attr.startswith("_")
        and not each.attr.startswith("__")
        and not (isinstance(each.value, ast.Name) and each.value.id in ("self", "cls"))
    } - _OF_NAMED_TUPLES


def _knows_pyiceberg(module: ast.Module) -> bool:
    return any(isinstance(each, ast.ImportFrom) and (each.module or "").startswith("pyiceberg") for each in ast.walk(module))


def test_only_the_named_modules_use_private_names_of_pyiceberg() -> None:
    found = {}
    for path in sorted(ROOT.rglob("*.py")):
        module = ast.parse(path.read_text())
        names = _private_names(module)
        if names and _knows_pyiceberg(module):
            found[path.relative_to(ROOT).as_posix()] = names
    assert found == {path: names for path, (_, names) in USED.items()}


@pytest.mark.parametrize(("theirs", "names"), USED.values(), ids=USED)
def test_the_installed_pyiceberg_has_the_private_names(theirs: str, names: set[str]) -> None:
    spec = find_spec("pyiceberg")
    assert spec is not None
    assert spec.origin is not None
    text = (Path(spec.origin).parent / theirs).read_text()
    assert {name for name in names if re.search(rf"(def {name}\(|self\.{name}\b)", text)} == names
