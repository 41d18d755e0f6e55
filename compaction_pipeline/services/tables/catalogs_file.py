"""Reads the file of COMPACTION_CATALOGS_FILE: catalogs as a deployment keeps them beside its other configuration."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from compaction_pipeline.core.catalogs.definition import CatalogDefinition, kind_in_words, read_definition
from compaction_pipeline.core.catalogs.problem import Problem
from compaction_pipeline.core.errors import ConfigError
from compaction_pipeline.core.words import printable

SETTING = "COMPACTION_CATALOGS_FILE"
_MOST_BYTES = 4 * 1024 * 1024
_CATALOGS = "catalogs"


def read_catalogs_file(path: Path) -> tuple[tuple[CatalogDefinition, tuple[Problem, ...]], ...]:
    """Return the definitions of the file, each with the problems that reading it has found.

    Raises ConfigError when the file cannot be read, is no YAML, has a key twice, or is no list of catalogs below the key `catalogs`. Values
    are not repeated, because they may be secrets.
    """
    where = f"{SETTING} is {str(path)!r}"
    try:
        with path.open("rb") as file:
            text = file.read(_MOST_BYTES + 1)
    except OSError as error:
        raise ConfigError(f"{where}, which cannot be read: {error.strerror}; correct it") from error
    if len(text) > _MOST_BYTES:
        raise ConfigError(f"{where}, which has more than {_MOST_BYTES // 2**20} MiB: it cannot be a list of catalogs; correct it")
    try:
        # The loader makes values of the same safe types as `yaml.safe_load`.
        read = yaml.load(text.decode("utf-8"), Loader=_NoKeyTwice)
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError, ValueError) as error:
        raise ConfigError(f"{where}, which is no YAML: {_problem(error)}; correct the file") from None
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


class _NoKeyTwice(yaml.SafeLoader):  # type: ignore[misc]
    """Refuses a mapping with a key twice, where YAML's own loader takes the last value and tells nobody."""

    def construct_mapping(self, node: Any, deep: bool = False) -> Any:
        seen: set[object] = set()
        for key_node, _ in node.value:
            key = self.construct_object(key_node, deep=True)
            if key_node.tag == "tag:yaml.org,2002:merge":
                continue
            if isinstance(key, dict | list | set):
                raise yaml.constructor.ConstructorError(None, None, "a key is no text", key_node.start_mark)
            if key in seen:
                twice = f"the key {printable(str(key), 100)!r} stands twice in one mapping"
                raise yaml.constructor.ConstructorError(None, None, twice, key_node.start_mark)
            seen.add(key)
        return super().construct_mapping(node, deep)


def _problem(error: Exception) -> str:
    """What is wrong and where, without the text of the line, which may hold a secret."""
    mark = getattr(error, "problem_mark", None)
    what = getattr(error, "problem", None) or type(error).__name__
    return f"{what} in line {mark.line + 1}" if mark is not None else str(what)
