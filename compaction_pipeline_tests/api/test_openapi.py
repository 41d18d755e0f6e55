"""The OpenAPI document holds all that it names, and its pages load nothing from elsewhere."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, fields
from datetime import datetime, timedelta
from enum import Enum
from importlib import import_module
from typing import Any, NewType

import pytest

from compaction_pipeline.api.openapi import plain_schema
from compaction_pipeline.core.access.token import Role
from compaction_pipeline.core.insight.plain import plain
from compaction_pipeline.core.tables.data_file import NOT_TOLD, OutputFile
from compaction_pipeline.core.tables.table import TableIdentifier
from compaction_pipeline_tests.api.served import REGISTRATION, Served
from compaction_pipeline_tests.builders import NOW


def parts(value: Any, path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Every object of a document with its path."""
    if isinstance(value, dict):
        yield path, value
        for key, each in value.items():
            yield from parts(each, f"{path}/{key}")
    elif isinstance(value, list):
        for number, each in enumerate(value):
            yield from parts(each, f"{path}/{number}")


def at(document: Any, reference: str) -> Any:
    """What a reference names. Raises KeyError when it names nothing."""
    assert reference.startswith("#/"), reference
    found = document
    for name in reference[2:].split("/"):
        found = found[name]
    return found


def has_content(document: Any, schema: Any) -> bool:
    """Whether a schema says anything of the values."""
    if "$ref" in schema:
        return has_content(document, at(document, schema["$ref"]))
    if schema.get("type") == "array":
        return has_content(document, schema.get("items", {}))
    return bool({"type", "anyOf", "oneOf", "enum"} & set(schema))


def test_the_body_of_a_report_has_no_field_that_the_route_refuses(served: Served) -> None:
    document = served.client.get("/openapi.json").json()
    body = document["paths"]["/api/v1/attempts/{attempt_id}/complete"]["post"]["requestBody"]["content"]["application/json"]["schema"]
    files = at(document, body["$ref"])["properties"]["outputs"]["items"]
    shown = at(document, files["$ref"])["properties"].keys()
    assert shown == {each.name for each in fields(OutputFile)} - NOT_TOLD


def test_the_document_holds_all_that_it_names(served: Served) -> None:
    document = served.client.get("/openapi.json").json()
    references = [(path, each["$ref"]) for path, each in parts(document) if isinstance(each.get("$ref"), str)]
    assert len(references) > 300
    for path, reference in references:
        assert has_content(document, at(document, reference)), (path, reference)
    assert not [path for path, each in parts(document) if "$defs" in each]
    used = {reference for _, reference in references}
    unused = [name for name in document["components"]["schemas"] if f"#/components/schemas/{name}" not in used]
    assert unused == []


def test_every_route_has_a_schema_for_each_answer_and_for_its_body(served: Served) -> None:
    document = served.client.get("/openapi.json").json()
    routes = [(f"{method} {path}", route) for path, methods in document["paths"].items() for method, route in methods.items()]
    assert len(routes) > 20
    for name, route in routes:
        for status, answer in route["responses"].items():
            if status == "204":
                continue
            [(media_type, content)] = answer["content"].items()
            if name.endswith(("/log-level", "/stack")) and status == "202":
                assert content["schema"] == {"type": "null"}
                continue
            assert has_content(document, content["schema"]), (name, status)
            assert (media_type == "application/problem+json") == (int(status) >= 400)
        if "requestBody" in route:
            assert has_content(document, route["requestBody"]["content"]["application/json"]["schema"]), name
    with_body = {name for name, route in routes if "requestBody" in route}
    assert with_body == {
        "post /api/v1/optimizers",
        "post /api/v1/optimizers/{optimizer_id}/touch",
        "post /api/v1/optimizers/{optimizer_id}/poll",
        "post /api/v1/optimizers/{optimizer_id}/log-level",
        "post /api/v1/attempts/{attempt_id}/complete",
        "post /api/v1/tables/{table}/commits",
        "post /api/v1/tables/{table}/ready",
        "post /api/v1/tables/{table}/awaited",
        "put /api/v1/tables/{table}/consumers/{name}",
        "put /api/v1/teams/{name}",
        "put /api/v1/team-mapping/{target}",
        "post /api/v1/teams/{name}/whitelist",
        "post /api/v1/loans",
        "post /api/v1/loans/{loan_id}/approve",
        "post /api/v1/groups",
        "patch /api/v1/groups/{name}",
        "post /api/v1/catalogs",
        "post /api/v1/catalogs/{catalog}/events",
        "post /api/v1/catalog-files",
        "patch /api/v1/catalogs/{name}",
        "put /api/v1/dependencies/project",
        "post /api/v1/dependencies/repairs",
        "post /api/v1/dependencies/reports",
        "post /api/v1/dependencies/quality",
        "post /api/v1/dependencies/claims",
        "post /api/v1/dependencies/deliveries",
        "post /api/v1/dependencies/backfills",
        "post /api/v1/dependencies/runs-again",
        "post /api/v1/dependencies/conversions",
    }


class _Color(Enum):
    RED = "red"


_Name = NewType("_Name", str)


@dataclass(frozen=True)
class _Inner:
    took: timedelta
    at: datetime | None


@dataclass(frozen=True)
class _Outer:
    name: _Name
    table: TableIdentifier
    color: _Color
    inner: _Inner
    many: tuple[_Inner, ...]
    counts: dict[_Color, int]
    ratio: float
    fits: bool


def test_the_schema_of_a_plain_value_fits_the_value() -> None:
    jsonschema = import_module("jsonschema")
    inner = _Inner(timedelta(seconds=1.5), None)
    value = _Outer(
        _Name("n"), TableIdentifier("a", ("b",), "c"), _Color.RED, inner, (_Inner(timedelta(0), NOW),), {_Color.RED: 1}, 0.5, True
    )
    schema = plain_schema(_Outer)
    jsonschema.validate(plain(value), schema)
    for wrong in ({"color": "blue"}, {"ratio": "x"}, {"many": [1]}, {"inner": {}}):
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate({**plain(value), **wrong}, schema)  # type: ignore[dict-item]
    with pytest.raises(TypeError, match="of which `plain` makes no JSON"):
        plain_schema(bytes)


def test_the_pages_load_nothing_from_elsewhere(served: Served) -> None:
    for path in ("/docs", "/redoc"):
        page = served.client.get(path)
        assert page.status_code == 200
        loaded = re.findall(r"""(?:src|href)=["']([^"']+)["']""", page.text)
        assert len(loaded) >= 2
        for address in loaded:
            assert address.startswith("/docs/scripts/")
            answer = served.client.get(address)
            assert (answer.status_code, answer.headers["cache-control"]) == (200, "public, max-age=86400")
        assert not re.search(r"https?://(?!www\.w3\.org)", page.text), page.text
        policy = page.headers["content-security-policy"]
        assert "http" not in policy
        assert ("sha256-" in policy) == ("<script>" in page.text)


def test_answers_with_a_secret_are_not_cached(served: Served) -> None:
    registered = served.ask("POST", "/api/v1/optimizers", served.token(Role.OPTIMIZER), json=REGISTRATION)
    own = registered.json()
    polled = served.ask("POST", f"/api/v1/optimizers/{own['optimizer_id']}/poll", own["token"], json={"poll_id": "p"})
    assert (registered.headers["cache-control"], polled.headers["cache-control"]) == ("no-store", "no-store")
