"""Reads a YAML file that a person wrote. A key that stands twice is refused, and no value is repeated, because it may be a secret."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from compaction_pipeline.core.errors import ConfigError
from compaction_pipeline.core.words import printable


def yaml_value(path: Path, where: str, most_bytes: int, what: str) -> object:
    """Return the value of the file. `where` names the file in errors, and `what` says what it should be.

    Raises ConfigError when the file cannot be read, has more bytes, or is no YAML.
    """
    try:
        with path.open("rb") as file:
            text = file.read(most_bytes + 1)
    except OSError as error:
        raise ConfigError(f"{where}, which cannot be read: {error.strerror}; correct it") from error
    if len(text) > most_bytes:
        raise ConfigError(f"{where}, which has more than {most_bytes // 2**20} MiB: it cannot be {what}; correct it")
    try:
        # The loader makes values of the same safe types as `yaml.safe_load`.
        value: object = yaml.load(text.decode("utf-8"), Loader=_NoKeyTwice)
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError, ValueError) as error:
        raise ConfigError(f"{where}, which is no YAML: {_problem(error)}; correct the file") from None
    return value


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
                # An address that stands where a key belongs may hold a password.
                shown = "a key" if "://" in str(key) else f"the key {printable(str(key), 100)!r}"
                twice = f"{shown} stands twice in one mapping"
                raise yaml.constructor.ConstructorError(None, None, twice, key_node.start_mark)
            seen.add(key)
        return super().construct_mapping(node, deep)


def _problem(error: Exception) -> str:
    """What is wrong and where, without the text of the line, which may hold a secret."""
    mark = getattr(error, "problem_mark", None)
    what = getattr(error, "problem", None) or type(error).__name__
    if mark is None and what == "ValueError":
        return "a value looks like a date and is none, such as 2026-13-24, or like a number that is too long"
    return f"{what} in line {mark.line + 1}" if mark is not None else str(what)
