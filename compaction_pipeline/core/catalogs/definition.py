"""The definition of a catalog, as every door and every file gives it, and how it is read from values that anybody wrote.

`read_definition` finds every value of a wrong kind. `rules.py` then says what is wrong with values of the right kind.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from compaction_pipeline.core.catalogs.keys import FIELDS, TABLE_FORMATS
from compaction_pipeline.core.catalogs.problem import Problem
from compaction_pipeline.core.tables.properties import CATALOG_PREFIX
from compaction_pipeline.core.tables.table import CatalogEntry
from compaction_pipeline.core.words import printable

MAPPINGS = ("properties", "table_properties")
ALL_FIELDS = ("name", *FIELDS, *MAPPINGS, "observe")
_SHOWN = 100


@dataclass(frozen=True, slots=True)
class CatalogDefinition:
    """A catalog as one source defines it.

    `properties` are those of PyIceberg's catalogs, ours (`keys.OWN_KEYS`), and with the prefix `table.` those that its tables inherit.
    `observe` is None when the source says nothing about it: a new catalog is then compacted, and a known one stays as it is.
    """

    name: str
    properties: Mapping[str, str] = field(default_factory=dict)
    observe: bool | None = None

    def entry(self) -> CatalogEntry:
        """The catalog that this definition alone makes."""
        return CatalogEntry(self.name, self.properties, bool(self.observe))


def read_definition(given: object, where: str = "the definition") -> tuple[CatalogDefinition, tuple[Problem, ...]]:
    """Return the definition that a value of JSON or YAML holds, and a problem for each part of the wrong kind, which it then lacks.

    Fields are `ALL_FIELDS`. A field and the property that it stands for may not both be given. `where` is the definition's name for
    sentences. Without a name that is a text, the name is "".
    """
    if not isinstance(given, Mapping):
        return CatalogDefinition(""), (Problem("", f"{where} is {kind_in_words(given)} but must be a mapping with the keys {_FIELDS}"),)
    problems = [
        Problem(_shown(key), f"there is no field '{_shown(key)}'; the fields are {_FIELDS}") for key in given if key not in ALL_FIELDS
    ]
    properties: dict[str, str] = {}
    name, observe = given.get("name"), given.get("observe")
    if not isinstance(name, str):
        problems.append(Problem("name", f"'name' is {kind_in_words(name)} but must be a text: the name that the catalog gets here"))
    for mapping in MAPPINGS:
        read, wrong = read_texts(mapping, given.get(mapping))
        prefix = CATALOG_PREFIX if mapping == "table_properties" else ""
        problems += [Problem(key, f"'{key}' is given twice: give it once") for key in (prefix + one for one in read) if key in properties]
        problems += wrong
        properties.update((prefix + key, value) for key, value in read.items())
    for one, key in FIELDS.items():
        value = given.get(one)
        if value is None:
            continue
        text = _joined(value) if key == TABLE_FORMATS else value
        if not isinstance(text, str):
            problems.append(Problem(one, f"'{one}' is {kind_in_words(value)} but must be {_kind_of(one)}"))
        elif key in properties:
            problems.append(Problem(one, f"'{one}' and the property '{key}' are the same: give one of them"))
        else:
            properties[key] = text
    if not isinstance(observe, bool | None):
        problems.append(Problem("observe", f"'observe' is {kind_in_words(observe)} but must be true or false"))
        observe = None
    return CatalogDefinition(name if isinstance(name, str) else "", properties, observe), tuple(problems)


def read_texts(what: str, given: object) -> tuple[dict[str, str], list[Problem]]:
    """Return the texts of a mapping, and a problem for each key and value that is no text. None is an empty mapping."""
    if given is None:
        return {}, []
    if not isinstance(given, Mapping):
        return {}, [Problem(what, f"'{what}' is {kind_in_words(given)} but must be a mapping from texts to texts")]
    problems = list(_wrong_texts(what, given))
    return {key: value for key, value in given.items() if isinstance(key, str) and isinstance(value, str)}, problems


def _wrong_texts(what: str, given: Mapping[object, object]) -> Iterator[Problem]:
    # Values are not repeated, because they may be secrets.
    for key, value in given.items():
        if not isinstance(key, str):
            yield Problem(what, f"'{what}' has a key that is {kind_in_words(key)} but must be a text: write it in quotes")
        elif not isinstance(value, str):
            yield Problem(_shown(key), f"'{_shown(key)}' is {kind_in_words(value)} but must be a text: write it in quotes")


def kind_in_words(value: object) -> str:
    """How people call the kind of a value of JSON or YAML."""
    if value is None:
        return "missing"
    if isinstance(value, bool):
        return "true or false without quotes"
    for kind, words in ((str, "a text"), (int | float, "a number"), (Mapping, "a mapping"), (list | tuple, "a list")):
        if isinstance(value, kind):
            return words
    return "a date or another value without quotes"


_FIELDS = ", ".join(ALL_FIELDS)


def _kind_of(one: str) -> str:
    return "a list of texts, or a text with commas" if FIELDS[one] == TABLE_FORMATS else "a text"


def _joined(value: object) -> object:
    """A list of texts as one text. Another value stays as it is."""
    if isinstance(value, list | tuple):
        texts = [one for one in value if isinstance(one, str)]
        return ",".join(texts) if len(texts) == len(value) else value
    return value


def _shown(key: object) -> str:
    return printable(str(key), _SHOWN)
