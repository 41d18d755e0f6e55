"""The keys by which people and Dagster name nodes and tables.

A node has a short form of key, which a person reads in a picker, and a long form, which no other node has. `NodeKeyStore` gives each node
one of them for ever: the short form to the first node that would have it, and the long form to later ones. So a key is looked up and never
made anew: only a store calls `short_key` and `long_key`.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from urllib.parse import quote

from compaction_pipeline.core.tables.keyed.tree import ROOT
from compaction_pipeline.core.tables.node import TableNode
from compaction_pipeline.core.tables.table import TableIdentifier

MAX_KEY_BYTES = 512
_HASH_DIGITS = 16


def long_key(table: TableIdentifier, node: TableNode) -> str:
    """Return the long form: `<catalog>.<namespace>.<table>/<spec id>/<field>=<value>&…/<mask>-<index>`.

    It has at most 512 bytes of `A-Za-z0-9_-.=&/%~`. A longer one is cut, and ends with `~` and 16 hex digits of the SHA-256 of the whole
    form. The state database tells nodes apart by it, whatever their keys are.
    """
    key = f"{table_key(table)}/{node.spec_id}/{_values(node, _encoded)}/{node.tree}"
    if len(key) <= MAX_KEY_BYTES:
        return key
    digest = hashlib.sha256(key.encode()).hexdigest()[:_HASH_DIGITS]
    return f"{key[: MAX_KEY_BYTES - _HASH_DIGITS - 1]}~{digest}"


def short_key(table: TableIdentifier, node: TableNode) -> str:
    """Return the short form: `<namespace>.<table>/<field>=<value>&…`, or only `<namespace>.<table>` without partition fields.

    The key of a tree node of a keyed table ends with `/<mask>-<index>`. Letters and digits of any script stand for themselves. It never
    equals a long form, because a long form has more slashes. When the short form would have more than 512 bytes, the long form is returned
    instead.
    """
    name, values = _short_table_name(table), _values(node, _readable)
    key = "/".join(part for part in (name, values, str(node.tree) if node.tree != ROOT else "") if part)
    return key if len(key.encode()) <= MAX_KEY_BYTES else long_key(table, node)


def table_key(table: TableIdentifier) -> str:
    """Return the key of a table: `<catalog>.<namespace>.<table>`. It is the first part of the long form of its nodes."""
    return ".".join(_encoded(level) for level in table.levels)


def may_be_key_of(table: TableIdentifier, key: str) -> bool:
    """Return whether a node of this table may have this key. Nodes of other tables may have it too."""
    return key.partition("/")[0] in (_short_table_name(table), table_key(table))


def new_keys(
    table: TableIdentifier, nodes: Collection[TableNode], taken: Callable[[Sequence[str]], Collection[str]]
) -> Mapping[TableNode, str]:
    """Choose a key for each of these nodes, which have none yet.

    `taken` returns those of the given keys that some node has. Nodes that would have the same short form are served in the order of
    their long forms. A long form is taken only by a node of a table that had this name and was renamed; then a number is added to it.
    """
    short = {node: short_key(table, node) for node in sorted(nodes, key=lambda node: long_key(table, node))}
    used = set(taken(list(dict.fromkeys(short.values()))))
    keys: dict[TableNode, str] = {}
    for node, key in short.items():
        keys[node] = long_key(table, node) if key in used else key
        used.add(key)
    long = {node: key for node, key in keys.items() if key != short[node] or key == long_key(table, node)}
    number = 1
    while long:
        again = set(taken(list(long.values())))
        long = {node: key for node, key in long.items() if key in again}
        number += 1
        for node in long:
            mark = f"~{number}"
            long[node] = keys[node] = f"{long_key(table, node)[: MAX_KEY_BYTES - len(mark)]}{mark}"
    return keys


def _short_table_name(table: TableIdentifier) -> str:
    return ".".join(_readable(level).replace(".", "%2E") for level in (*table.namespace, table.name))


def _values(node: TableNode, spelled: Callable[[str], str]) -> str:
    """The partition values. NULL is a field name alone, and an empty text is `field=`."""
    return "&".join(
        spelled(value.name) if value.value is None else f"{spelled(value.name)}={spelled(_text(value.value))}" for value in node.partition
    )


def _text(value: str | int | float | bool) -> str:
    return value if isinstance(value, str) else repr(value).lower() if isinstance(value, bool) else repr(value)


def _encoded(text: str) -> str:
    # `quote` does not encode "." and "~", but both have a meaning in a key.
    return quote(text, safe="").replace(".", "%2E").replace("~", "%7E")


def _readable(text: str) -> str:
    """A text in which a character is encoded only when it has a meaning in a key or in Dagster.

    Dagster refuses control characters and "...". Its pages separate keys by commas, and cut spaces off their ends.
    """
    spelled = "".join(one if one.isalnum() or one in "_-:@+. " else _encoded(one) for one in text)
    return re.sub(r"\.{2,}|^ +| +$| {2,}", lambda found: _encoded(found[0]), spelled)
