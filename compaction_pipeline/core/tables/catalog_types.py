"""Which type a catalog is of, by its properties: what PyIceberg opens for them."""

from __future__ import annotations

from collections.abc import Mapping

_TYPE_OF_SCHEME = {"http": "rest", "https": "rest", "thrift": "hive", "sqlite": "sql", "postgres": "sql", "postgresql": "sql"}


def catalog_type_of(properties: Mapping[str, str]) -> str:
    """Return the type: what 'type' says, else what the beginning of 'uri' tells. Empty when neither does, and for 'py-catalog-impl'."""
    if "py-catalog-impl" in properties:
        return ""
    named = properties.get("type", "").strip().lower()
    scheme = properties.get("uri", "").strip().partition(":")[0].partition("+")[0].lower()
    return named or _TYPE_OF_SCHEME.get(scheme, "")
