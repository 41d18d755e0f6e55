"""Reads the file of COMPACTION_CATALOGS_FILE: catalogs as a deployment keeps them beside its other configuration."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from compaction_pipeline.core.catalogs.definition import CatalogDefinition, kind_in_words, read_definition
from compaction_pipeline.core.catalogs.problem import Problem
from compaction_pipeline.core.errors import ConfigError
from compaction_pipeline.core.words import printable
from compaction_pipeline.services.yaml_file import yaml_value

SETTING = "COMPACTION_CATALOGS_FILE"
_MOST_BYTES = 4 * 1024 * 1024
_CATALOGS = "catalogs"


def read_catalogs_file(path: Path) -> tuple[tuple[CatalogDefinition, tuple[Problem, ...]], ...]:
    """Return the definitions of the file, each with the problems that reading it has found.

    Raises ConfigError when the file cannot be read, is no YAML, has a key twice, or is no list of catalogs below the key `catalogs`. Values
    are not repeated, because they may be secrets.
    """
    where = f"{SETTING} is {str(path)!r}"
    read = yaml_value(path, where, _MOST_BYTES, "a list of catalogs")
    return tuple(_definitions(read, where))


def _definitions(read: object, where: str) -> Sequence[tuple[CatalogDefinition, tuple[Problem, ...]]]:
    if not isinstance(read, dict) or set(read) != {_CATALOGS} or not isinstance(read[_CATALOGS], list):
        is_wrong = (
            "is empty" if read is None else "has other keys, or no list there" if isinstance(read, dict) else f"is {kind_in_words(read)}"
        )
        raise ConfigError(f"{where}, which {is_wrong}: it must have the one key '{_CATALOGS}' with a list of catalogs; correct the file")
    found = [read_definition(one, f"catalog {number} of the file") for number, one in enumerate(read[_CATALOGS], 1)]
    names = [definition.name for definition, _ in found]
    twice = sorted({name for name in names if name and names.count(name) > 1})
    if twice:
        shown = ", ".join(printable(name, 100) for name in twice)
        raise ConfigError(f"{where}, which defines {shown} more than once: define each catalog once; correct the file")
    return found
