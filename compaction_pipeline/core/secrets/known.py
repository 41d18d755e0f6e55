"""The secrets that this process knows, so that they are hidden by value, wherever a library or a server wrote them into a text.

A value is found as it is, URL-encoded, in base64 (also inside a longer text that was encoded), and escaped as in JSON, Python and HTML.
Twelve of its characters in a row are hidden too, because texts are cut. Values of fewer than eight characters, and those that are
ordinary words, are hidden by the keys of their properties alone: otherwise harmless texts would lose words.
"""

from __future__ import annotations

import base64
import html
import json
import re
import threading
import weakref
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from functools import cached_property
from urllib.parse import quote, quote_plus

from compaction_pipeline.core.secrets.keys import MASK

LEAST = 8
"""A value of fewer characters is hidden by its key alone."""
PART = 12
"""So many characters of a secret in a row are hidden like the whole."""
_BLOCK = PART // 2
_FEW = 256
_DOCUMENT = re.compile(r"[\s{;]")
"""It stands in values that are documents, such as the JSON of a service account, or a connection string. Words in these are no secrets."""
_WORDS = frozenset({"password", "postgres", "postgresql", "compaction", "anonymous", "undefined", "warehouse", "credential", "minioadmin"})
_WORD = re.compile(r"[a-z]{1,11}|[A-Z]{1,11}|[A-Z][a-z]{1,10}")
_PLAIN = re.compile(r"[A-Za-z\s:/._-]*")
_ANY = "surrogateescape"
"""Texts of the environment may be no UTF-8, and a secret that cannot be hidden must not end a log."""
_ESCAPES = re.compile(r"%[0-9A-F]{2}")


class KnownSecrets:
    """The secrets that one part of the process knows, by what they belong to. They are hidden as long as this object lives."""

    def __init__(self, most: int = 4_096) -> None:
        """`most` bounds the owners. The one that was told of longest ago is forgotten first."""
        self._most = most
        self._lock = threading.Lock()
        self._of: OrderedDict[str, dict[str, _Value]] = OrderedDict()
        self.values: tuple[_Value, ...] = ()
        _register(self)

    def know(self, owner: str, values: Iterable[str]) -> None:
        """Let `owner` have these secrets, and no others. This costs next to nothing when nothing has changed."""
        wanted = {value for value in values if _is_hidden(value)}
        with self._lock:
            known = self._of.get(owner, {})
            if known.keys() == wanted and owner in self._of:
                return
            self._of[owner] = {value: known.get(value) or _Value(value) for value in wanted}
            self._of.move_to_end(owner)
            while len(self._of) > self._most:
                self._of.popitem(last=False)
            self._gather()

    def forget(self, owner: str) -> None:
        """Forget the secrets of an owner."""
        with self._lock:
            if self._of.pop(owner, None):
                self._gather()

    def forget_all(self) -> None:
        """Forget the secrets of every owner."""
        with self._lock:
            self._of.clear()
            self.values = ()

    def _gather(self) -> None:
        self.values = tuple({value.text: value for known in self._of.values() for value in known.values()}.values())


def without_known_secrets(text: str) -> str:
    """The text with `***` in place of every secret that this process knows, and of every part of one of twelve characters or more."""
    found: list[_Value] = []
    for reference in _holders:
        holder = reference()
        if holder is not None and holder.values:
            found += [value for value in holder.values if value.may_be_in(text)]
    # First whole secrets, then parts: one may have a part of another.
    for value in found:
        text = value.without_whole(text)
    for value in found:
        text = value.without_parts(text)
    return text


def forget_all_secrets() -> None:
    """Forget every secret that any part of this process knows. Tests do so, because they share a process."""
    for reference in _holders:
        holder = reference()
        if holder is not None:
            holder.forget_all()


def without_secrets(error: BaseException) -> None:
    """Take known secrets out of an error and of all errors below it, so that whoever prints the chain shows none.

    The errors stay, because their types say what happened. One whose text cannot be changed gives its place to an error with its text.
    """
    seen: set[int] = set()
    waiting = [error]
    while waiting:
        one = waiting.pop()
        if id(one) in seen:
            continue
        seen.add(id(one))
        _hide_in_arguments(one)
        suppressed = one.__suppress_context__
        for name in ("__cause__", "__context__"):
            below = getattr(one, name)
            if below is None:
                continue
            _hide_in_arguments(below)
            said = str(below)
            hidden = without_known_secrets(said)
            if hidden == said:
                waiting.append(below)
            else:
                _set(one, name, RuntimeError(f"{type(below).__name__}: {hidden}"))
        _set(one, "__suppress_context__", suppressed)


def _hide_in_arguments(error: BaseException) -> None:
    """Change the texts that an error, and the errors that it was made of, were given."""
    hidden = tuple(without_known_secrets(each) if isinstance(each, str) else each for each in error.args)
    if hidden != error.args:
        _set(error, "args", hidden)
    if isinstance(error, OSError) and isinstance(error.strerror, str):
        error.strerror = without_known_secrets(error.strerror)
    for inner in error.args:
        if isinstance(inner, BaseException) and inner is not error:
            _hide_in_arguments(inner)


_set = BaseException.__setattr__
"""Errors of Thrift, which Hive's metastore answers with, let nobody set anything by the usual way."""

_registering = threading.Lock()
_holders: tuple[weakref.ref[KnownSecrets], ...] = ()


def _register(holder: KnownSecrets) -> None:
    global _holders
    with _registering:
        # Threads read the tuple without the lock, so it is replaced and never changed.
        _holders = (*(each for each in _holders if each() is not None), weakref.ref(holder))


def _is_hidden(value: str) -> bool:
    return len(value) >= LEAST and value.lower() not in _WORDS and not _WORD.fullmatch(value)


class _Value:
    """One secret, with all forms in which texts may hold it. They are made when a text is first looked through."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._is_document = _DOCUMENT.search(text) is not None

    @cached_property
    def _forms(self) -> tuple[str, ...]:
        """Longest first, so that no form is hidden in part by a shorter one."""
        return tuple(sorted({form for form in _written(self.text) if len(form) >= LEAST}, key=len, reverse=True))

    @cached_property
    def _signs(self) -> frozenset[str]:
        """Short pieces. Each twelve characters of a form have a whole piece, so a text without any piece has no part of a form."""
        return frozenset(
            piece
            for form in self._forms
            for piece in ([form] if len(form) < PART else [form[at : at + _BLOCK] for at in range(0, len(form) - _BLOCK + 1, _BLOCK)])
        )

    def may_be_in(self, text: str) -> bool:
        if len(self._signs) <= _FEW:
            return any(sign in text for sign in self._signs)
        # A token of a kilobyte has thousands of pieces, and the text has few.
        return not self._signs.isdisjoint({text[at : at + _BLOCK] for at in range(len(text) - _BLOCK + 1)})

    def _has(self, part: str) -> bool:
        return any(part in form for form in self._forms) and not (self._is_document and _PLAIN.fullmatch(part))

    def without_whole(self, text: str) -> str:
        for form in self._forms:
            text = text.replace(form, MASK)
        return text

    def without_parts(self, text: str) -> str:
        return "".join(self._pieces(text)) if self.may_be_in(text) else text

    def _pieces(self, text: str) -> Iterator[str]:
        """The pieces of a text between the runs that parts of this secret cover, and a mask for each run."""
        start = at = 0
        while at <= len(text) - PART:
            if not self._has(text[at : at + PART]):
                at += 1
                continue
            yield text[start:at]
            yield MASK
            while len(text) - at >= PART and self._has(text[at : at + PART]):
                at += 1
            start = at = at + PART - 1
        yield text[start:]


def _written(value: str) -> Iterator[str]:
    yield value
    for encoded in (quote(value, errors=_ANY), quote(value, safe="", errors=_ANY), quote_plus(value, errors=_ANY)):
        yield encoded
        yield _ESCAPES.sub(lambda match: match[0].lower(), encoded)
    for ascii_only in (True, False):
        yield json.dumps(value, ensure_ascii=ascii_only)[1:-1]
    yield repr(value)[1:-1]
    yield html.escape(value)
    for before in range(3):
        for encoded in _base64(value.encode(errors=_ANY), before):
            yield encoded
            yield quote(encoded, safe="")


def _base64(value: bytes, before: int) -> Iterator[str]:
    """What base64 makes of these bytes after 0, 1 or 2 others, without the characters that the neighbours have a share in."""
    first = (0, 2, 3)[before]
    whole = (before + len(value)) * 8 // 6
    for encode in (base64.b64encode, base64.urlsafe_b64encode):
        yield encode(b"\0" * before + value).decode()[first:whole]
