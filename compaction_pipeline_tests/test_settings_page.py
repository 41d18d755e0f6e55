"""`docs/settings.md` lists every property of a table and every setting. These tests make its tables from the code that reads them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, get_args, get_origin

import annotated_types
from pydantic.fields import FieldInfo

from compaction_pipeline.core.tables.expiry_properties import UPKEEP_PROPERTIES
from compaction_pipeline.core.tables.property_rules import AMORO_KEYS_NOT_HONOURED, PROPERTIES
from compaction_pipeline.core.tables.ready_properties import READY_PROPERTIES
from compaction_pipeline.settings import Settings
from compaction_pipeline_tests.written_pages import check_part, table

PAGE = "docs/settings.md"

# Defaults that depend on the machine, and rules whose patterns are put into words.
DEFAULTS: Mapping[str, str] = {
    "home": "`~/.compaction_pipeline`",
    "task_slots": "number of cores",
    "state_url": "SQLite in COMPACTION_HOME",
}
RULES: Mapping[str, str] = {
    "home": "a folder",
    "containers_file": "a file",
    "catalogs_file": "a file",
    "notices_file": "a file",
    "state_url": "a URL",
    "secret_key": "32 bytes in URL-safe base64 each",
    "secret_key_file": "a file",
    "secrets_folder": "a folder",
    "spark_master": "an address that Spark can parse",
    "spark_remote": "`sc://host:port`",
    "spark_application_url": "a URL with `{application}`",
    "ready_callback_url": "a URL",
    "ready_callback_secret": "a text",
    "asset_prefix": "levels of letters, digits and `_`, separated by `/`",
    "asset_owners": "`team:name` or an e-mail address each",
}


def default_of(name: str, field: FieldInfo) -> str:
    if name in DEFAULTS:
        return DEFAULTS[name]
    return "none" if field.default in (None, "") else f"`{field.default}`"


def rule_of(name: str, field: FieldInfo) -> str:
    if name in RULES:
        return RULES[name]
    if get_origin(field.annotation) is Literal:
        return " or ".join(f"`{choice}`" for choice in get_args(field.annotation))
    bounds = []
    for bound in field.metadata:
        if isinstance(bound, annotated_types.Ge):
            bounds.append(f"≥ {bound.ge}")
        elif isinstance(bound, annotated_types.Gt):
            bounds.append(f"> {bound.gt}")
        elif isinstance(bound, annotated_types.Le):
            bounds.append(f"≤ {bound.le}")
    assert bounds, f"RULES says nothing of {name}"
    return " and ".join(bounds)


def test_the_page_lists_every_property() -> None:
    rows = [(f"`{item.key}`", item.default_text, item.rule.text, item.meaning) for item in PROPERTIES]
    check_part(PAGE, "properties", __file__, table(("property", "default", "rule", "meaning"), rows))


def test_the_page_lists_every_property_of_expiry() -> None:
    rows = [(f"`{item.key}`", item.default_text, item.rule.text, item.meaning) for item in UPKEEP_PROPERTIES]
    check_part(PAGE, "expiry", __file__, table(("property", "default", "rule", "meaning"), rows))


def test_the_page_lists_every_property_of_readiness() -> None:
    rows = [(f"`{item.key}`", item.default_text, item.rule.text, item.meaning) for item in READY_PROPERTIES]
    check_part(PAGE, "ready", __file__, table(("property", "default", "rule", "meaning"), rows))


def test_the_page_lists_the_properties_of_amoro_without_effect() -> None:
    rows = [(f"`{key}`", instead) for key, instead in AMORO_KEYS_NOT_HONOURED.items()]
    check_part(PAGE, "not honoured", __file__, table(("property of Amoro", "instead"), rows))


def test_the_page_lists_every_setting() -> None:
    rows = [
        (f"`COMPACTION_{name.upper()}`", default_of(name, field), rule_of(name, field), field.description or "")
        for name, field in Settings.model_fields.items()
    ]
    assert all(row[-1] for row in rows), "a setting has no description"
    check_part(PAGE, "settings", __file__, table(("variable", "default", "rule", "meaning"), rows))
