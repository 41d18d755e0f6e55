"""What a change makes of a registered catalog, key by key: who holds each key then, and which changes a stronger source refuses."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from difflib import get_close_matches

from compaction_pipeline.core.catalogs.definition import CatalogDefinition, read_definition
from compaction_pipeline.core.catalogs.keys import FIELDS, OBSERVE
from compaction_pipeline.core.catalogs.problem import Problem
from compaction_pipeline.core.catalogs.source import Source
from compaction_pipeline.core.tables.properties import CATALOG_PREFIX
from compaction_pipeline.core.tables.property_rules import TEAM_KEY
from compaction_pipeline.core.tables.table import CatalogEntry
from compaction_pipeline.core.tables.team_name import UNASSIGNED
from compaction_pipeline.core.words import printable


@dataclass(frozen=True, slots=True)
class CatalogChange:
    """What one source wants to change: properties to set, keys to unset, and whether the tables are only observed (None: as it is)."""

    properties: Mapping[str, str] = field(default_factory=dict)
    unset: Collection[str] = ()
    observe: bool | None = None

    @property
    def keys(self) -> frozenset[str]:
        """Every key that the change names."""
        return frozenset({*self.properties, *self.unset, *((OBSERVE,) if self.observe is not None else ())})


def read_change(given: object) -> tuple[CatalogChange, tuple[Problem, ...]]:
    """Return the change that a value of JSON holds, and a problem for each part of the wrong kind.

    It has the fields of a definition but the name, each for what is to be set, and `unset`, a list of keys. Null counts as not given.
    """
    if not isinstance(given, Mapping):
        return CatalogChange(), read_definition(given, "the change")[1]
    unset = given.get("unset") or ()
    problems = [Problem("name", "'name' cannot be changed: it is the first level of every table's name")] if "name" in given else []
    if not isinstance(unset, list | tuple) or not all(isinstance(key, str) for key in unset):
        problems.append(Problem("unset", "'unset' must be a list of texts, the keys that the catalog shall not have any more"))
        unset = ()
    definition, wrong = read_definition({**{key: value for key, value in given.items() if key != "unset"}, "name": "x"})
    change = CatalogChange(definition.properties, tuple(FIELDS.get(key, key) for key in unset), definition.observe)
    if not change.keys and not problems and not wrong:
        problems.append(Problem("", "nothing is to be changed: give properties, unset, observe, or another field of a catalog"))
    return change, (*problems, *wrong)


def holder(entry: CatalogEntry, key: str) -> Source:
    """Return the source that holds a key of a catalog. A source of a later version counts as the strongest."""
    stored = entry.held.get(key)
    if stored is None:
        return Source.PERSON
    return Source(stored) if stored in {one.value for one in Source} else Source.COMPONENT


def change_problems(entry: CatalogEntry, change: CatalogChange, source: Source) -> tuple[Problem, ...]:
    """Return why a source may not make this change: a key in both lists, one that is not set, one that a stronger source holds."""
    return tuple(_problems(entry, change, source))


def changed(entry: CatalogEntry, change: CatalogChange, source: Source) -> CatalogEntry:
    """Return the catalog after a change that `change_problems` has nothing against. The source then holds every key of the change."""
    properties = {key: value for key, value in {**entry.properties, **change.properties}.items() if key not in change.unset}
    observe = entry.observe if change.observe is None else change.observe
    held = {key: name for key, name in entry.held.items() if key not in change.keys}
    if source is not Source.PERSON:
        held |= {key: source.value for key in change.keys if key not in change.unset}
    return replace(entry, properties=properties, observe=observe, held=held)


def team_change_text(before: Mapping[str, str], after: Mapping[str, str], teams: Collection[str] | None) -> str:
    """Say who is charged for the tables of a catalog after a change of its properties, which a mapping of the catalog would overrule. ""
    when that does not change.

    `teams` are those that exist; None when nobody has looked.
    """
    key = CATALOG_PREFIX + TEAM_KEY
    old, new = (properties.get(key, "").strip() or UNASSIGNED for properties in (before, after))
    if old == new:
        return ""
    known = (UNASSIGNED, *(teams if teams is not None else (old, new)))
    charged = old if old in known else UNASSIGNED
    if charged == new:
        return ""
    tables = "tables with a team of their own or a mapping keep theirs"
    text = f"'{key}' gives the work on its tables to team {new!r} instead of {charged!r}; {tables}"
    if new in known:
        return text
    return f"{text}. There is no team {new!r}, so {UNASSIGNED!r} is charged until `compaction-pipeline team set {new}` makes it"


def as_defined(entry: CatalogEntry | None, definition: CatalogDefinition, source: Source) -> CatalogEntry:
    """Return a catalog as a file or a component defines it, on top of what is registered.

    Keys that a stronger source holds stay, and so do those that a person has set beside the definition. Keys that this source held and does
    not name any more are unset. When nobody names `observe`, it stays as it is.
    """
    if entry is None:
        entry = CatalogEntry(definition.name, {})
    named = CatalogChange(definition.properties, observe=definition.observe)
    may_set = {key for key in named.keys if source.may_set_what(holder(entry, key))}
    given_up = {key for key, stored in entry.held.items() if stored == source.value} - named.keys
    properties = {key: value for key, value in definition.properties.items() if key in may_set}
    observe = definition.observe if OBSERVE in may_set else None
    return changed(entry, CatalogChange(properties, given_up, observe), source)


def _problems(entry: CatalogEntry, change: CatalogChange, source: Source) -> Iterator[Problem]:
    for key in sorted(change.keys):
        shown, of = printable(key, 100), holder(entry, key)
        if key in change.unset and key in change.properties:
            yield Problem(shown, f"'{shown}' is to be set and unset at once: give it once")
        elif key in change.unset and key not in entry.properties:
            near = get_close_matches(key, sorted(entry.properties), 1)
            meant = f"; do you mean '{near[0]}'?" if near else ""
            yield Problem(shown, f"'{shown}' is to be unset, but the catalog does not have it{meant}")
        elif not source.may_set_what(of):
            yield Problem(shown, f"'{shown}' is held by {of.in_words}: change it there")
