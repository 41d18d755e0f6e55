"""Compares the full paths of files as the FileIO of PyIceberg and Java open them: the same file, another one, or one that nobody can tell.

Percent signs are literal: `s3://b/a%20b` opens the key `a%20b`, and `file:///a%20b` the file `a%20b`, in PyIceberg's FileIO, in Java's
S3FileIO and in HadoopFileIO alike. A path that nobody decodes is not decoded here either. But a file is worth more than this certainty, so
two paths that differ in nothing else are a mismatch and never two files.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from urllib.parse import unquote

_FAMILIES = {
    "s3a": "s3",
    "s3n": "s3",
    "gcs": "gs",
    "abfss": "abfs",
    "wasb": "abfs",
    "wasbs": "abfs",
}
"""Schemes that open the same store, each with the one that stands for them. `oss`, `cosn`, `obs`, `hdfs` and `viewfs` have no others."""

_DEFAULT_PORTS = {"hdfs": frozenset({"8020"}), "abfs": frozenset({"80", "443"}), "oss": frozenset({"80", "443"})}
_LOCAL = "file"
_CLUSTERS = frozenset({"hdfs", "viewfs"})
FOLDERS = frozenset({_LOCAL, *_CLUSTERS})
"""File systems, in which `.` and `..` are steps, and which a path may leave unnamed. In an object store they are letters of a key."""

_URL = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*):(?://(?P<authority>[^/]*))?(?P<path>.*)", re.DOTALL)
_SLASHES_BEFORE_A_NAME = 3
_UNSEEN = re.compile(r"[\t\r\n]")


class Relation(str, Enum):
    """What two paths are to each other."""

    SAME = "SAME"
    """Both open one file."""
    MISMATCH = "MISMATCH"
    """They end alike, but lie in different stores or are written in another way. Only a person can tell whether they are one file."""
    DIFFERENT = "DIFFERENT"
    """They open two files."""


@dataclass(frozen=True, slots=True)
class FullPath:
    """A path in the form in which paths are compared.

    `scheme` is that of the family, in lower case, and "" for a relative path. `authority` is the bucket, the container with its account, or
    the host; "" where the text has none. `path` begins with one slash, and no two slashes follow each other in it.
    """

    scheme: str
    authority: str
    path: str

    @property
    def store(self) -> str:
        """The store in which the path lies, as people write it: `s3://bucket`."""
        return f"{self.scheme}://{self.authority}"

    def is_below(self, folder: FullPath) -> bool:
        """Whether the path lies in a folder: `t2` does not lie in `t`. A folder does not lie in itself."""
        return _is_one_store(self, folder) and self.path.startswith(f"{folder.path.rstrip('/')}/") and self.path != folder.path

    def overlaps(self, other: FullPath) -> bool:
        """Whether one of two folders may be the other one, or lie in it.

        One cluster of HDFS has several names, and one bucket may be opened by several schemes.
        """
        if _may_be_one_store(self, other):
            other = FullPath(self.scheme, self.authority, other.path)
        return (_is_one_store(self, other) and self.path == other.path) or self.is_below(other) or other.is_below(self)


def full_path(text: str) -> FullPath:
    """The path that a text of a table names. A text without a scheme is a path of this host."""
    found = _URL.fullmatch(text.lstrip(" "))
    if found is None:
        return FullPath(_LOCAL, "", _steps(text, True)) if text.startswith("/") else FullPath("", "", _steps(f"/{text}", True))
    scheme = found["scheme"].lower()
    scheme = _FAMILIES.get(scheme, scheme)
    return FullPath(scheme, _authority(scheme, found["authority"] or ""), _steps(f"/{found['path']}", scheme in FOLDERS))


def folder_path(text: str) -> FullPath:
    """The path of a folder. A slash at the end of its text says nothing."""
    path = full_path(text)
    return FullPath(path.scheme, path.authority, path.path.rstrip("/") or "/")


def _authority(scheme: str, text: str) -> str:
    head, colon, port = text.rpartition(":")
    if colon and port in _DEFAULT_PORTS.get(scheme, ()):
        text = head
    if scheme in ("hdfs", "viewfs"):
        return text.lower()
    if scheme == "abfs":
        # One account answers under two names: the one of blobs, and the one of folders.
        container, at, account = text.rpartition("@")
        return f"{container}{at}{re.sub(r'[.](dfs|blob)[.]', '.', account.lower(), count=1)}"
    return text


def _steps(path: str, in_folders: bool) -> str:
    joined = re.sub(r"/{2,}", "/", path)
    return posixpath.normpath(joined) if in_folders and "/." in joined else joined


def loose(path: str) -> str:
    """A path as the most tolerant reader could take it.

    PyIceberg and Java cut off what follows `?` or `#`, PyIceberg drops tabs and ends of lines, a URL may be decoded, and some file systems
    do not tell upper from lower case.
    """
    return unquote(re.split(r"[?#]", _UNSEEN.sub("", path), maxsplit=1)[0]).casefold()


def loose_name(text: str) -> str:
    """The name of the file that a text of a table names, without everything in which two names of one file may differ.

    Files with two loose names are two files.
    """
    if text.count("/") > _SLASHES_BEFORE_A_NAME and _is_plain(text):
        # Nearly all paths are so plain, and there are millions.
        return _last(text).casefold()
    return _last(loose(full_path(text).path))


def _is_plain(text: str) -> bool:
    """Whether nobody could read the text of a path in another way. A regular expression would take five times as long."""
    has_special = "%" in text or "?" in text or "#" in text or "\t" in text or "\r" in text or "\n" in text
    return not has_special and "/." not in text


def _last(path: str) -> str:
    return path.rpartition("/")[2]


@dataclass(frozen=True, slots=True)
class ToldStores:
    """What a person told about stores whose paths end alike: pairs of stores that are one, and pairs that are two.

    A store is written as `FullPath.store` writes it. Nothing is told by default.
    """

    equal: frozenset[frozenset[str]] = frozenset()
    different: frozenset[frozenset[str]] = frozenset()

    def are_different(self, one: FullPath, other: FullPath) -> bool:
        """Whether somebody told that the stores of these paths are two."""
        return frozenset((one.store, other.store)) in self.different

    @classmethod
    def of(cls, equal: Iterable[tuple[str, str]] = (), different: Iterable[tuple[str, str]] = ()) -> ToldStores:
        """From pairs of texts that begin with the stores, such as `s3://a` and `oss://a`."""
        return cls(*(frozenset(frozenset(full_path(each).store for each in pair) for pair in pairs) for pairs in (equal, different)))


def compared(one: FullPath, other: FullPath, told: ToldStores = ToldStores()) -> Relation:
    """What two paths are to each other. The order does not matter.

    In one store, paths are the same file when they are equal, and a mismatch when only a tolerant reader would take one for the other.
    Paths of two stores are a mismatch when the names of the files are alike: a store may be mounted at any folder of another one.
    """
    if _is_one_store(one, other) or frozenset((one.store, other.store)) in told.equal:
        if one.path == other.path:
            return Relation.SAME
        return Relation.MISMATCH if loose(one.path) == loose(other.path) else Relation.DIFFERENT
    if told.are_different(one, other):
        return Relation.DIFFERENT
    return Relation.MISMATCH if _last(loose(one.path)) == _last(loose(other.path)) else Relation.DIFFERENT


def _may_be_one_store(one: FullPath, other: FullPath) -> bool:
    if {one.scheme, other.scheme} <= _CLUSTERS:
        return True
    return one.authority == other.authority != "" and FOLDERS.isdisjoint((one.scheme, other.scheme))


def _is_one_store(one: FullPath, other: FullPath) -> bool:
    """HDFS without an authority is the cluster that a client has as its own. Nobody tells here which one this is, so it may be any."""
    if one.scheme != other.scheme:
        return False
    return one.authority == other.authority or (one.scheme == "hdfs" and "" in (one.authority, other.authority))
