"""Every rule of a catalog's definition. All problems are found at once, and each names its key, its rule, and what to do.

PyIceberg judges the values of most properties only when it opens the catalog, so a definition without a problem is tried by one listing
before it is stored.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Mapping
from difflib import get_close_matches

from compaction_pipeline.core.catalogs.definition import CatalogDefinition
from compaction_pipeline.core.catalogs.facts import Facts
from compaction_pipeline.core.catalogs.formats import FOREIGN_FORMATS, FORMATS, formats_of
from compaction_pipeline.core.catalogs.keys import AUTHENTICATION, DATABASE_FILTER, GROUP, OBSERVE, OWN_KEYS, TABLE_FILTER, TABLE_FORMATS
from compaction_pipeline.core.catalogs.problem import DefinitionError, Problem
from compaction_pipeline.core.catalogs.site_files import reference_problems
from compaction_pipeline.core.commit.hive import problems_of_hive, why_observe_only
from compaction_pipeline.core.secrets.keys import MASK
from compaction_pipeline.core.secrets.references import misspelt_reference
from compaction_pipeline.core.tables.authentication import authentication_problems
from compaction_pipeline.core.tables.catalog_properties import property_problem
from compaction_pipeline.core.tables.group_name import GROUP_NAME_RULE, is_group_name
from compaction_pipeline.core.tables.table import CATALOG_NAME_RULE, is_catalog_name
from compaction_pipeline.core.words import printable

TYPES = ("rest", "hive", "glue", "sql", "dynamodb", "bigquery")
"""The types of catalogs that can be registered, as PyIceberg calls them."""
CANNOT_COMMIT = ("dynamodb", "bigquery")
"""PyIceberg reads these catalogs, and its `commit_table` of them raises NotImplementedError (0.12)."""
MOST_PROPERTIES, LONGEST_KEY, LONGEST_VALUE, LONGEST_PATTERN = 500, 200, 20_000, 1_000
_SHOWN = 100
_ALIKE = 0.85
_TELLS_TYPE = re.compile(r"https?:|thrift:|sqlite|postgres(ql)?[:+]", re.IGNORECASE)
_HTTP = re.compile(r"https?://[^/\s]+", re.IGNORECASE)
_NEEDED: Mapping[str, tuple[str, ...]] = {"rest": ("uri",), "hive": ("uri",), "sql": ("uri",), "bigquery": ("gcp.bigquery.project-id",)}
_MISSPELT = (*sorted(OWN_KEYS), "type", "uri", "warehouse", "credential", "py-io-impl", "py-catalog-impl")


def problems_of(definition: CatalogDefinition, facts: Facts = Facts()) -> tuple[Problem, ...]:
    """Return everything that is wrong with a definition of values of the right kind. Nothing is asked but the facts."""
    return tuple(_problems(definition, facts))


def check_definition(definition: CatalogDefinition, facts: Facts = Facts(), before: tuple[Problem, ...] = ()) -> None:
    """Raise DefinitionError with `before` and everything else that is wrong."""
    told = {known.key for known in before}
    problems = (*before, *(one for one in problems_of(definition, facts) if one.key not in told))
    if problems:
        raise DefinitionError(definition.name, problems)


def _problems(definition: CatalogDefinition, facts: Facts) -> Iterator[Problem]:
    properties = definition.properties
    if not is_catalog_name(definition.name):
        yield Problem("name", f"'name' is {_shown(definition.name)!r} but must be {CATALOG_NAME_RULE}")
    if len(properties) > MOST_PROPERTIES:
        yield Problem("properties", f"there are {len(properties):,} properties, but a catalog may have at most {MOST_PROPERTIES}")
    yield from _type_problems(definition)
    for key in (DATABASE_FILTER, TABLE_FILTER):
        if key in properties and (why := _why_no_filter(properties[key], facts)) is not None:
            yield Problem(key, f"'{key}' {why}")
    yield from _format_problems(properties.get(TABLE_FORMATS))
    yield from _group_problems(properties.get(GROUP), facts)
    for sentence in authentication_problems(properties.get(AUTHENTICATION), properties):
        yield Problem(AUTHENTICATION, sentence)
    for key, sentence in reference_problems(properties, facts.site_files):
        yield Problem(key, sentence)
    for key, value in sorted(properties.items()):
        wrong = _text_problem(key, value) or misspelt_reference(key, value) or _property_problem(key, value, facts) or _misspelt(key)
        if wrong is not None:
            yield Problem(_shown(key), wrong)


def _type_problems(definition: CatalogDefinition) -> Iterator[Problem]:
    properties = definition.properties
    given, uri = properties.get("type"), properties.get("uri", "")
    if given is not None and "py-catalog-impl" in properties:
        yield Problem("type", "'type' and 'py-catalog-impl' are both set, and each names what opens the catalog: leave one of them out")
    elif given is not None:
        yield from _problems_of_type(given, given.lower(), definition)
    elif "py-catalog-impl" not in properties and not _TELLS_TYPE.match(uri):
        yield Problem("type", f"'type' is missing, and 'uri' does not tell it: set it to one of {', '.join(TYPES)}, e.g. -p type=rest")


def _problems_of_type(given: str, kind: str, definition: CatalogDefinition) -> Iterator[Problem]:
    if kind == "in-memory":
        yield Problem("type", "'type' is 'in-memory', whose tables end with the process that made them: nothing of it can be looked after")
    elif kind not in TYPES:
        yield Problem("type", f"'type' is {_shown(given)!r} but must be one of {', '.join(TYPES)}")
    for key in _NEEDED.get(kind, ()):
        if not definition.properties.get(key, "").strip():
            yield Problem(key, f"'{key}' is missing: a catalog of type {kind} needs it, e.g. -p {key}=…")
    uri = definition.properties.get("uri", "").strip()
    # The uri is not repeated. It may hold a password in an unexpected place.
    if kind == "rest" and uri and not _HTTP.match(uri):
        yield Problem(
            "uri", "the 'uri' of a REST catalog must begin with http:// or https:// and name a host, e.g. -p uri=https://host/path"
        )
    if kind == "hive" and uri and not all(one.strip().startswith("thrift://") for one in uri.split(",")):
        yield Problem("uri", "the 'uri' of a Hive metastore must begin with thrift:// and name a host, e.g. -p uri=thrift://host:9083")
    if kind == "hive":
        yield from _hive_problems(definition)
    if kind in CANNOT_COMMIT and not definition.observe:
        yield Problem(
            OBSERVE,
            f"'{OBSERVE}' must be true for type {kind}: PyIceberg reads such a catalog and cannot commit to it; set it with --observe",
        )


def _hive_problems(definition: CatalogDefinition) -> Iterator[Problem]:
    wrong = problems_of_hive(definition.properties)
    yield from (Problem(key, sentence) for key, sentence in wrong.items())
    why = None if wrong or definition.observe else why_observe_only(definition.properties)
    if why is not None:
        yield Problem(OBSERVE, f"{why}; or set '{OBSERVE}' to true, with --observe")


def _why_no_filter(text: str, facts: Facts) -> str | None:
    if not text:
        return "is empty and would leave out every table: give a regular expression, or leave the key out"
    if len(text) > LONGEST_PATTERN:
        return f"has {len(text):,} characters but may have at most {LONGEST_PATTERN:,}"
    why = facts.why_no_pattern(text)
    return None if why is None else f"is {_shown(text)!r} but must be a regular expression that RE2 can match: {why}"


def _format_problems(text: str | None) -> Iterator[Problem]:
    if text is None:
        return
    named = formats_of(text)
    if not named:
        yield Problem(TABLE_FORMATS, f"'{TABLE_FORMATS}' names no format: give one of {', '.join(FORMATS)}, or leave the key out")
    for one in named:
        if one in FOREIGN_FORMATS:
            sentence = (
                f"'{TABLE_FORMATS}' names {one!r}, which this program does not compact: it compacts {' and '.join(FORMATS)}; leave it out"
            )
            yield Problem(TABLE_FORMATS, sentence)
        elif one not in FORMATS:
            yield Problem(TABLE_FORMATS, f"'{TABLE_FORMATS}' names {_shown(one)!r} but must name only {', '.join(FORMATS)}")


def _group_problems(name: str | None, facts: Facts) -> Iterator[Problem]:
    if name is None:
        return
    if not is_group_name(name):
        yield Problem(GROUP, f"'{GROUP}' is {_shown(name)!r} but must be {GROUP_NAME_RULE}")
    elif facts.groups is not None and name not in facts.groups:
        yield Problem(
            GROUP,
            f"'{GROUP}' is {name!r}, and this group does not exist: make it with `compaction-pipeline group add {name}`, or name another",
        )


def _property_problem(key: str, value: str, facts: Facts) -> str | None:
    # `_group_problems` judges the group.
    return None if key == GROUP else property_problem(key, value, facts.why_no_condition)


def _text_problem(key: str, value: str) -> str | None:
    """What is wrong with any key and value, whatever they mean. Values are not repeated, because they may be secrets."""
    if not key.strip() or key != key.strip():
        return f"a property has the key {_shown(key)!r}, but a key may not be empty, and may not begin or end with a blank"
    if len(key) > LONGEST_KEY:
        return f"the key '{_shown(key)}' has {len(key):,} characters but may have at most {LONGEST_KEY}"
    if not key.isprintable():
        return f"the key '{_shown(key)}' has a character that cannot be printed: write it anew"
    if len(value) > LONGEST_VALUE:
        return f"the value of '{key}' has {len(value):,} characters but may have at most {LONGEST_VALUE:,}"
    if any(unicodedata.category(character) in ("Cc", "Cs") and character not in "\t\r\n" for character in value):
        return f"the value of '{key}' has a character that is no text, such as NUL or a byte that is not UTF-8: write it anew"
    if key in (*OWN_KEYS, "catalog-name") and value.startswith(("env:", "file:")):
        return f"'{key}' is no secret, and may be no reference: give the value itself"
    if key == "name":
        return "'name' is no property, because a catalog has its name beside them; 'catalog-name' is the name that engines give it"
    if value == MASK or f":{MASK}@" in value:
        return f"the value of '{key}' is {MASK}, which stands for a secret where it is shown: give the value itself, or leave the key out"
    if key.lower().startswith("header.") and ("\n" in value or "\r" in value or value != value.lstrip()):
        return f"'{key}' is sent as a header, so it may not begin with a blank and may not have a line break"
    return None


def _misspelt(key: str) -> str | None:
    if key in _MISSPELT or "." in key:
        return None
    near = get_close_matches(key.lower().replace("_", "-"), _MISSPELT, 1, _ALIKE)
    return f"there is no property '{key}'; do you mean '{near[0]}'?" if near and near[0] != key else None


def _shown(text: str) -> str:
    return printable(text, _SHOWN)
