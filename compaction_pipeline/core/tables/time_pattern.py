"""Reads patterns of Java's DateTimeFormatter, as far as their texts sort by the times that they mean."""

from __future__ import annotations

import re
from datetime import datetime

_UNITS = (("yyyy", "uuuu"), ("MM",), ("dd",), ("HH",), ("mm",), ("ss",), tuple("S" * digits for digits in range(1, 10)))
_PART = re.compile(r"'((?:[^']|'')*)'|([A-Za-z])\2*|([^\[\]{}#])")
PATTERN_RULE = (
    "a pattern whose texts sort by time: yyyy, MM, dd, HH, mm, ss and S in this order and none left out between them, e.g. yyyy-MM-dd or "
    "yyyyMMddHH"
)


def pattern_parts(pattern: str) -> tuple[tuple[int | None, str], ...]:
    """Return the parts of a pattern of Java's DateTimeFormatter: the number of a unit with its letters, or None with a text.

    Raises ValueError for a pattern whose texts do not sort by the times that they mean.
    """
    parts: list[tuple[int | None, str]] = []
    position, unit = 0, 0
    while position < len(pattern):
        found = _PART.match(pattern, position)
        if found is None:
            raise ValueError(pattern)
        position, text = found.end(), found[0]
        if found[2] is None:
            literal = found[1] if found[1] is not None else found[3]
            parts.append((None, "'" if text == "''" else literal.replace("''", "'")))
        elif unit < len(_UNITS) and text in _UNITS[unit]:
            parts.append((unit, text))
            unit += 1
        else:
            raise ValueError(pattern)
    if not unit:
        raise ValueError(pattern)
    return tuple(parts)


def unit_text(pattern: str, at: datetime) -> bytes:
    """Return the text of the unit in which a moment lies, e.g. of its day. Raises as `pattern_parts`."""
    values = (at.year, at.month, at.day, at.hour, at.minute, at.second)
    written = ""
    for unit, letters in pattern_parts(pattern):
        if unit is None:
            written += letters
        elif unit < len(values):
            written += f"{values[unit]:0{len(letters)}d}"
        else:
            written += f"{at.microsecond:06d}000"[: len(letters)]
    return written.encode()


CUT_LENGTH = 16
"""Iceberg's writers cut bounds of texts to so many letters, unless a property asks for another length."""


def has_form(pattern: str, text: str, *, made_larger: bool = False) -> bool:
    """Whether a text is written as the pattern says: digits where a unit stands, and the letters between them.

    A text of CUT_LENGTH letters or more may be the beginning of one. With `made_larger` the last letter of a beginning may be one larger,
    as in upper bounds. Raises as `pattern_parts`.
    """
    form = [letter for unit, letters in pattern_parts(pattern) for letter in (letters if unit is None else [None] * len(letters))]
    is_cut = CUT_LENGTH <= len(text) < len(form)
    if len(text) != len(form) and not is_cut:
        return False
    fits = [_fits(letter, wanted) for letter, wanted in zip(text, form, strict=False)]
    if is_cut and made_larger and not fits[-1]:
        fits[-1] = _fits(chr(ord(text[-1]) - 1), form[len(text) - 1]) if text[-1] != "\0" else False
    return all(fits)


def _fits(letter: str, wanted: str | None) -> bool:
    return letter in "0123456789" if wanted is None else letter == wanted
