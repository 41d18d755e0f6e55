"""The files of Hadoop and Kerberos that a catalog may name: which kinds there are, and what each must hold.

A property names a stored file as a whole value, `site:ID`. Nobody gets the content of a file back, so each one is judged before it is
stored.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from hashlib import sha256
from xml.parsers import expat

MOST_BYTES = 1024 * 1024
REFERENCE = "site:"
"""A value that begins so names a stored file."""


class SiteFileKind(str, Enum):
    """What a file is."""

    CORE_SITE = "core-site"
    HDFS_SITE = "hdfs-site"
    HIVE_SITE = "hive-site"
    KRB5_CONF = "krb5-conf"
    KEYTAB = "keytab"


KIND_OF_KEY: Mapping[str, SiteFileKind] = {
    "hdfs.core-site": SiteFileKind.CORE_SITE,
    "hdfs.hdfs-site": SiteFileKind.HDFS_SITE,
    "hive.hive-site": SiteFileKind.HIVE_SITE,
    "kerberos.krb5-conf": SiteFileKind.KRB5_CONF,
    "kerberos.keytab": SiteFileKind.KEYTAB,
}
"""The properties of a catalog that may name a stored file, each with the kind of file. The two of Kerberos may also be paths."""
_ONLY_STORED = frozenset({"hdfs.core-site", "hdfs.hdfs-site", "hive.hive-site"})

_LOADS_OR_INCLUDES = re.compile(r"^\s*(include|includedir|module)\s|^\s*\[\s*plugins\s*\]|^\s*plugin_base_dir\s*=", re.MULTILINE)
_SECTION = re.compile(r"^\s*\[\s*(libdefaults|realms)\s*\]", re.MULTILINE)
_KEYTAB = (b"\x05\x01", b"\x05\x02")
_VARIABLE = re.compile(r"\$\{([^}$\s]+)\}")
_DEEPEST = 20


@dataclass(frozen=True, slots=True)
class SiteFile:
    """What is told of a stored file. Its content is not."""

    id: str
    kind: SiteFileKind
    size_bytes: int
    added_at: datetime

    @property
    def reference(self) -> str:
        """The value of the property by which a catalog names the file."""
        return f"{REFERENCE}{self.id}"


def site_file_id(kind: SiteFileKind, content: bytes) -> str:
    """The id of a file: its kind, and 16 hexadecimal digits of the SHA-256 of its content. One content has one id."""
    return f"{kind.value}-{sha256(content).hexdigest()[:16]}"


def site_file_problem(kind: SiteFileKind, content: bytes) -> str | None:
    """What is wrong with the content of a file; None when nothing is. It repeats nothing of the content."""
    if len(content) > MOST_BYTES:
        return f"it has more than {MOST_BYTES} bytes (1 MiB)"
    if kind is SiteFileKind.KEYTAB:
        return None if content[:2] in _KEYTAB and len(content) > 2 else "it is no keytab: a keytab begins with the bytes 05 02"
    if kind is SiteFileKind.KRB5_CONF:
        return _krb5_problem(content)
    try:
        settings(content)
    except ValueError as error:
        return str(error)
    return None


def _krb5_problem(content: bytes) -> str | None:
    try:
        text = content.decode()
    except UnicodeDecodeError:
        return "it is no text in UTF-8"
    if _LOADS_OR_INCLUDES.search(text):
        return (
            "it includes other files or loads modules (include, includedir, module, [plugins], plugin_base_dir): write all into this file"
        )
    return None if _SECTION.search(text) else "it is no krb5.conf: it has neither [libdefaults] nor [realms]"


def settings(content: bytes) -> Mapping[str, str]:
    """The settings in a site file of Hadoop, in the order of the file. `${name}` is replaced where the file itself has that setting.

    Raises ValueError, which repeats nothing of the content, for what is no such file.
    """
    found = dict(_properties(content))
    return {name: _expanded(value, found) for name, value in found.items()}


def _properties(content: bytes) -> Sequence[tuple[str, str]]:
    reader = _Reader()
    parser = expat.ParserCreate()
    parser.StartElementHandler, parser.EndElementHandler, parser.CharacterDataHandler = reader.start, reader.end, reader.text
    parser.StartDoctypeDeclHandler = reader.document_type
    try:
        parser.Parse(content, True)
    except expat.ExpatError as error:
        raise ValueError(f"it is no well-formed XML: {expat.ErrorString(error.code)} in line {error.lineno}") from None
    return reader.found


class _Reader:
    """Collects name and value of each `<property>` of a `<configuration>`."""

    def __init__(self) -> None:
        self.found: list[tuple[str, str]] = []
        self._path: list[str] = []
        self._texts: dict[str, str] = {}

    def start(self, name: str, _: Mapping[str, str]) -> None:
        if not self._path and name != "configuration":
            raise ValueError("its outermost element must be <configuration>")
        if name.rpartition(":")[2] == "include":
            raise ValueError("it includes other files: write all settings into this file")
        self._path.append(name)
        if self._in_property(2):
            self._texts = {}

    def end(self, _: str) -> None:
        name = self._texts.get("name", "").strip()
        if self._in_property(2) and name:
            self.found.append((name, self._texts.get("value", "").strip()))
        self._path.pop()

    def text(self, data: str) -> None:
        if self._in_property(3):
            self._texts[self._path[2]] = self._texts.get(self._path[2], "") + data

    def document_type(self, *_: object) -> None:
        raise ValueError("it has a document type (<!DOCTYPE …>), which may name entities: remove it")

    def _in_property(self, depth: int) -> bool:
        return len(self._path) == depth and self._path[:2] == ["configuration", "property"]


def _expanded(value: str, found: Mapping[str, str]) -> str:
    for _ in range(_DEEPEST):
        replaced = _VARIABLE.sub(lambda match: found.get(match[1], match[0]), value)
        if replaced == value or len(replaced) > MOST_BYTES:
            break
        value = replaced
    return value


def id_in(value: str) -> str | None:
    """The id of the stored file that a property names. None when the value names none."""
    return value[len(REFERENCE) :] if value.startswith(REFERENCE) else None


def names_stored_file(key: str, value: str) -> bool:
    """Whether this property names a stored file."""
    return key in KIND_OF_KEY and id_in(value) is not None


def reference_problems(properties: Mapping[str, str], stored: Mapping[str, SiteFileKind] | None) -> Iterator[tuple[str, str]]:
    """Yield (key, sentence) for each property that names no stored file of the right kind. `stored` is None when nobody has looked."""
    for key, kind in KIND_OF_KEY.items():
        if key not in properties:
            continue
        named = id_in(properties[key])
        if named is None:
            if key in _ONLY_STORED:
                yield key, f"'{key}' must be {REFERENCE}ID of a stored file: store it with `catalog file add {kind.value} FILE`"
        elif stored is not None and stored.get(named) is not kind:
            what = "there is no such file" if named not in stored else f"that file is a {stored[named].value}"
            yield key, f"'{key}' is {properties[key]!r}, but {what}: `catalog file list` shows what is stored; it needs a {kind.value}"


_OF_HDFS = (
    "fs.defaultFS",
    "fs.viewfs.mounttable.",
    "dfs.nameservices",
    "dfs.ha.namenodes.",
    "dfs.namenode.rpc-address",
    "dfs.client.",
    "dfs.data.transfer.protection",
    "dfs.encrypt.data.transfer",
    "dfs.user.home.dir.prefix",
    "hadoop.security.authentication",
    "hadoop.security.key.provider.path",
    "hadoop.rpc.protection",
)
"""The settings that the HDFS client reads. Others stay behind, because site files also hold passwords of servers."""


def of_hdfs(found: Mapping[str, str]) -> Mapping[str, str]:
    """Those settings that the HDFS client reads."""
    return {name: value for name, value in found.items() if name.startswith(_OF_HDFS)}
