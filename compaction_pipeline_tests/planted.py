"""Secrets that a test plants, and the search for them in everything that leaves the program."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from urllib.parse import quote, quote_plus

_PART = 12


def planted(name: str) -> str:
    """A secret of this name with the characters that URLs, base64 and forms write in other ways."""
    mixed = hashlib.sha256(name.encode()).hexdigest()
    return f'{name}+/{mixed[:9]}=%&{mixed[9:16]}"4L8'


def forms(secret: str) -> Mapping[str, str]:
    """How texts may hold a secret, by the name of the form."""
    encoded = {
        f"base64 after {before}": base64.b64encode(b"\0" * before + secret.encode()).decode().rstrip("=")[before + 1 : -2]
        for before in range(3)
    }
    safe = {f"URL-safe {name}": text.replace("+", "-").replace("/", "_") for name, text in encoded.items()}
    urls = {"URL": quote(secret), "whole URL": quote(secret, safe=""), "form": quote_plus(secret)}
    return {"plain": secret, "JSON": json.dumps(secret)[1:-1], **encoded, **safe, **urls}


def found_in(text: str | bytes, secrets: Iterable[str]) -> set[str]:
    """The names of the forms of which the text holds twelve characters, with the place of the first."""
    content = text.encode("utf-8", "replace") if isinstance(text, str) else text
    found = set()
    for secret in secrets:
        for name, form in forms(secret).items():
            parts = (form[at : at + _PART].encode() for at in range(len(form) - _PART + 1))
            place = next((content.index(part) for part in parts if part in content), None)
            if place is not None:
                around = content[max(0, place - 120) : place + 40]
                found.add(f"{name} of {secret[:6]}…: {around!r}")
    return found


def found_in_files(folder: Path, secrets: Iterable[str]) -> dict[str, set[str]]:
    """The files below a folder that hold a part of a secret, with what they hold."""
    wanted = tuple(secrets)
    files = (path for path in folder.rglob("*") if path.is_file())
    found = {str(path.relative_to(folder)): found_in(path.read_bytes(), wanted) for path in files}
    return {name: each for name, each in found.items() if each}
