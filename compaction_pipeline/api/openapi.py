"""The OpenAPI document: what FastAPI writes of the routes, and what it cannot know.

Routes read their bodies through `Bodies`, and most answers are values of the core in the form of `core.insight.plain`. All routes share
their errors. So the schemas of these are written here: a reference by `schema_reference` or `plain_answer` is kept until the document is
made, which gets every schema that it names.
"""

from __future__ import annotations

import types
from collections.abc import Collection, Mapping, Sequence
from dataclasses import fields, is_dataclass
from datetime import date, datetime, timedelta
from enum import Enum
from typing import Any, Union, get_args, get_origin, get_type_hints

from fastapi import FastAPI
from pydantic import TypeAdapter

from compaction_pipeline.core.tables.node import TableNode
from compaction_pipeline.core.tables.table import TableIdentifier

_PLACE = "#/components/schemas/"
_PRIMITIVES: Mapping[Any, str] = {str: "string", bool: "boolean", int: "integer", float: "number"}
_referenced: dict[str, type] = {}
"""The types of bodies and of errors, by the names of their schemas."""
_left_out: dict[str, frozenset[str]] = {}
"""The fields that a type has, but that no body may have, by the names of their schemas."""


def schema_reference(kind: type, left_out: Mapping[type, Collection[str]] | None = None) -> dict[str, Any]:
    """A reference to the schema of this type of bodies or errors. `left_out` are fields of it, or of a type in it, that bodies lack."""
    _referenced[kind.__name__] = kind
    _left_out.update({within.__name__: frozenset(names) for within, names in (left_out or {}).items()})
    return {"$ref": _PLACE + kind.__name__}


def plain_answer(kind: Any, description: str = "Successful Response", status: int = 200) -> dict[int | str, dict[str, Any]]:
    """The `responses` of a route that answers `plain(value)` for a value of this type."""
    return {status: {"description": description, "content": {"application/json": {"schema": plain_schema(kind)}}}}


def plain_schema(kind: Any) -> dict[str, Any]:
    """The JSON schema of `core.insight.plain.plain` for values of this type. Raises TypeError for a type that `plain` does not know."""
    origin, arguments = get_origin(kind), get_args(kind)
    if kind is Any or kind is object:
        return {}
    if origin in (Union, types.UnionType):
        return {"anyOf": [plain_schema(each) for each in arguments]}
    if origin in (list, tuple, set, frozenset, Sequence, Collection):
        return {"type": "array", "items": plain_schema(arguments[0])} if arguments else {"type": "array"}
    if origin in (dict, Mapping):
        return {"type": "object", "additionalProperties": plain_schema(arguments[1])}
    if kind is type(None):
        return {"type": "null"}
    if kind in _PRIMITIVES:
        return {"type": _PRIMITIVES[kind]}
    if isinstance(kind, type):
        return _schema_of_class(kind)
    supertype = getattr(kind, "__supertype__", None)
    if supertype is not None:
        return plain_schema(supertype)
    raise TypeError(f"the answer of a route has the type {kind}, of which `plain` makes no JSON")


def _schema_of_class(kind: type) -> dict[str, Any]:
    if issubclass(kind, (TableIdentifier, TableNode)):
        return {"type": "string"}
    if issubclass(kind, Enum):
        return {"type": "string", "title": kind.__name__, "enum": [each.value for each in kind]}
    if issubclass(kind, datetime):
        return {"type": "string", "format": "date-time"}
    if issubclass(kind, date):
        return {"type": "string", "format": "date"}
    if issubclass(kind, timedelta):
        return {"type": "integer", "description": "milliseconds"}
    if is_dataclass(kind):
        hints = get_type_hints(kind)
        names = [each.name for each in fields(kind)]
        return {
            "type": "object",
            "title": kind.__name__,
            "properties": {name: plain_schema(hints[name]) for name in names},
            "required": names,
        }
    raise TypeError(f"the answer of a route has the type {kind}, of which `plain` makes no JSON")


def complete_document(app: FastAPI) -> None:
    """Let the OpenAPI document of the application hold every schema that it names."""
    written = app.openapi

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            document = written()
            _add_schemas(document)
        return written()

    app.openapi = openapi  # type: ignore[method-assign]


def _add_schemas(document: dict[str, Any]) -> None:
    """Add the schemas of bodies and errors. FastAPI may use one of their names for another schema: that of the same type in an answer."""
    known = document.setdefault("components", {}).setdefault("schemas", {})
    added: dict[str, Any] = {}
    for name in sorted(_names_in(document) & set(_referenced)):
        schema = TypeAdapter(_referenced[name]).json_schema(ref_template=_PLACE + "{model}")
        added.update(schema.pop("$defs", {}))
        added.setdefault(name, schema)
    for name, names in _left_out.items():
        properties = added.get(name, {}).get("properties", {})
        for each in names & properties.keys():
            del properties[each]
    renamed = {name: f"{name}-Input" for name, schema in added.items() if known.get(name, schema) != schema}
    for path in document["paths"].values():
        for route in path.values():
            _rename(route.get("requestBody"), renamed)
    for name, schema in added.items():
        _rename(schema, renamed)
        known[renamed.get(name, name)] = schema
    document["components"]["schemas"] = dict(sorted(known.items()))


def _names_in(value: object) -> set[str]:
    """The names of all schemas that a part of the document refers to."""
    if isinstance(value, Mapping):
        own = {value["$ref"].removeprefix(_PLACE)} if isinstance(value.get("$ref"), str) else set()
        return own.union(*map(_names_in, value.values()))
    return set().union(*map(_names_in, value)) if isinstance(value, list) else set()


def _rename(value: object, names: Mapping[str, str]) -> None:
    if isinstance(value, dict):
        reference = value.get("$ref")
        if isinstance(reference, str) and reference.removeprefix(_PLACE) in names:
            value["$ref"] = _PLACE + names[reference.removeprefix(_PLACE)]
        for each in value.values():
            _rename(each, names)
    elif isinstance(value, list):
        for each in value:
            _rename(each, names)
