"""Hides secrets before anybody sees them: by the keys of properties, inside URLs, and by value where this process knows the value.

In doubt it hides too much.
"""

from __future__ import annotations

from collections.abc import Mapping

from compaction_pipeline.core.secrets.keys import MASK, is_secret_key, without_url_secrets
from compaction_pipeline.core.secrets.known import without_known_secrets
from compaction_pipeline.core.secrets.references import reference_of


def masked_properties(properties: Mapping[str, str]) -> dict[str, str]:
    """The properties with `***` in place of secrets: the whole value of a secret key, and passwords inside URLs.

    A reference is shown, because it only says where a secret lies.
    """
    return {key: _shown(key, value) for key, value in properties.items()}


def masked_text(text: str) -> str:
    """The text with `***` in place of secrets inside URLs, and of those that this process knows."""
    return without_known_secrets(without_url_secrets(text))


def _shown(key: str, value: str) -> str:
    reference = reference_of(key, value)
    if reference is not None and reference.problem is None:
        return value
    return MASK if is_secret_key(key) else masked_text(value)
