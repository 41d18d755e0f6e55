"""Values of the core on the wire. They are written and read by pydantic; a field that nobody knows is an error."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, TypeVar, cast

from pydantic import TypeAdapter
from pydantic_core import from_json, to_json

from compaction_pipeline.core.words import printable

T = TypeVar("T")


def strictly(kind: type[T], value: object) -> T:
    """Read a value that was parsed from JSON. Raises ValueError for a wrong value and for a field that the type does not have.

    A number in quotes is a wrong value, and so is `true` for a number. pydantic itself ignores unknown fields of dataclasses.
    """
    adapter: TypeAdapter[T] = adapter_of(cast(Any, kind))
    read = adapter.validate_json(to_json(value), strict=True)
    unknown = _unknown(value, from_json(adapter.dump_json(read)))
    if unknown is not None:
        raise ValueError(f"field {printable(unknown, 200)} is not known; sender and server must have the same version")
    return read


@lru_cache
def adapter_of(kind: Any) -> TypeAdapter[Any]:
    """The reader of a type. Building one takes longer than all the rest of a request."""
    return TypeAdapter(kind)


def _unknown(given: Any, written: Any, path: str = "") -> str | None:
    """The path of the first field in `given` that is missing in `written`; None when there is none."""
    if isinstance(given, Mapping) and isinstance(written, Mapping):
        for key, value in given.items():
            here = f"{path}.{key}" if path else str(key)
            if key not in written:
                return here
            found = _unknown(value, written[key], here)
            if found is not None:
                return found
    elif isinstance(given, Sequence) and isinstance(written, Sequence) and not isinstance(given, str):
        for number, (value, again) in enumerate(zip(given, written, strict=False)):
            found = _unknown(value, again, f"{path}[{number}]")
            if found is not None:
                return found
    return None
