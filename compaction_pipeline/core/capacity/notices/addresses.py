"""Says at which addresses people are told. A private file holds the addresses, because most of them are secrets.

The file is YAML. Each key is an owner of a team, or `administrators`, and has one address or a list of them, as apprise writes them:
`mailtos://user:password@host?to=ann@example.org`, `json://host/path`, `dingtalk://token`, `slack://a/b/c`.
"""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256

from compaction_pipeline.core.errors import ConfigError
from compaction_pipeline.core.words import printable

ADMINISTRATORS = "administrators"
MOST_ADDRESSES = 20
"""One owner may have so many addresses."""
_ALIKE = 0.9
"""A key that is so like `administrators` is a misspelling of it. `administration`, which may be an owner, is less like it."""


@dataclass(frozen=True, slots=True)
class Address:
    """Where a notice is sent for `recipient`. `url` is a secret, and no text shows it."""

    recipient: str
    url: str = field(repr=False)

    @property
    def digest(self) -> str:
        """16 hexadecimal digits by which the state database knows the address."""
        return sha256(f"{self.recipient}\n{self.url}".encode()).hexdigest()[:16]


@dataclass(frozen=True, slots=True)
class AddressBook:
    """The addresses of each owner."""

    urls: Mapping[str, Sequence[str]] = field(default_factory=dict, repr=False)

    def of(self, owners: Iterable[str]) -> Sequence[Address]:
        """The addresses of a team's owners; those of the administrators when no owner has one."""
        found = [Address(owner, url) for owner in dict.fromkeys(owners) for url in self.urls.get(owner, ())]
        return found or [Address(ADMINISTRATORS, url) for url in self.urls.get(ADMINISTRATORS, ())]

    def find(self, digest: str) -> Address | None:
        """The address of this digest; None when the file has it no longer."""
        return next((one for name in self.urls for one in self.of_one(name) if one.digest == digest), None)

    def of_one(self, name: str) -> Sequence[Address]:
        """The addresses of one key of the file."""
        return [Address(name, url) for url in self.urls.get(name, ())]


def unknown_keys(book: AddressBook, owners: Collection[str], source: str) -> Sequence[str]:
    """Return a sentence for each key of the document that is no owner of a team, because nobody is told at its addresses.

    A team may lose this owner and get it again, so such a key is no error.
    """
    return [_unknown_text(name, source) for name in _unknown(book, owners)]


def check_spelling(book: AddressBook, owners: Collection[str], source: str) -> None:
    """Raises ConfigError for a key that is no owner of a team and looks like a misspelled `administrators`."""
    for name in _unknown(book, owners):
        if _is_misspelled(name):
            raise ConfigError(_unknown_text(name, source))


def _unknown(book: AddressBook, owners: Collection[str]) -> Sequence[str]:
    return [name for name in book.urls if name != ADMINISTRATORS and name not in owners]


def _is_misspelled(name: str) -> bool:
    return "@" not in name and bool(difflib.get_close_matches(name.strip().casefold(), [ADMINISTRATORS], cutoff=_ALIKE))


def _unknown_text(name: str, source: str) -> str:
    if _is_misspelled(name):
        return (
            f"{printable(name, 100)!r} of {source} must be {ADMINISTRATORS!r} or an owner of a team, and no team has this owner: "
            f"did you mean {ADMINISTRATORS!r}? Correct the key, or give the owner to a team by `compaction-pipeline team set`"
        )
    return (
        f"{printable(name, 100)!r} of {source} is no owner of a team, so nobody is told at its addresses: correct the key, or give the "
        "owner to a team by `compaction-pipeline team set`"
    )


def book_of(read: object, source: str) -> AddressBook:
    """Return what a YAML document says. `source` names the document in errors.

    Raises ConfigError, which names the key and the rule, and never a value, nor a key that may be an address.
    """
    if read is None:
        return AddressBook()
    if not isinstance(read, Mapping):
        raise ConfigError(f"{source} must hold owners of teams, and below each its addresses, for example `ann: [json://host/path]`")
    found: dict[str, tuple[str, ...]] = {}
    for number, (name, value) in enumerate(read.items(), 1):
        if "://" in str(name):
            raise ConfigError(
                f"key {number} of {source} has '://', so it may be an address, which is not repeated; a key must be {ADMINISTRATORS!r} "
                "or an owner of a team, and its addresses stand behind it: correct the key"
            )
        urls = [value] if isinstance(value, str) else value
        if not isinstance(name, str) or not isinstance(urls, list) or not 1 <= len(urls) <= MOST_ADDRESSES:
            raise ConfigError(
                f"{printable(str(name), 100)!r} of {source} must have one address, or a list of 1 to {MOST_ADDRESSES} of them"
            )
        if not all(isinstance(url, str) and "://" in url for url in urls):
            raise ConfigError(
                f"{printable(name, 100)!r} of {source} has an address without '://'; write it as apprise does, e.g. json://host"
            )
        found[name] = tuple(dict.fromkeys(urls))
    return AddressBook(found)
