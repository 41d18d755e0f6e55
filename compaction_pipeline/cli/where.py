"""Reads `--where`: which nodes of a table a person means.

The text may be `day=2024-01-01`, several such pairs joined by `,` or `/`, the text that `table show` prints for a node, or the key of a
node. The pairs may name only some of the partition fields. Then they mean every node that has these values. A value may hold a
separator, as long as only one reading of the text fits a node. A text that may mean two things is refused, and the error names both;
`null` is an example, because it may be the missing value or the word.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence

from compaction_pipeline.core.errors import ConfigError, NotFoundError
from compaction_pipeline.core.tables.node import PartitionValue, TableNode

_SHOWN = 10
# A value may hold these characters too, so they separate only where another `field=` follows.
_SEPARATOR = re.compile(r"[,/](?=[^,/=]+=)")


def selected_nodes(nodes: Mapping[str, TableNode], where: str) -> frozenset[TableNode]:
    """The nodes that `where` means. `nodes` are all nodes of the table by their keys.

    Raises ConfigError for an unknown field, and NotFoundError when no node fits. Both errors say which fields or partitions there are.
    """
    text = where.strip()
    if text in nodes:
        return frozenset({nodes[text]})
    same_text = frozenset(node for node in nodes.values() if str(node) == text)
    if same_text:
        return _alike(nodes, same_text, {value.name for node in same_text for value in node.partition}, where)
    fields = sorted({value.name for node in nodes.values() for value in node.partition})
    found = {reading: nodes_so_read for reading in _readings(text, fields) if (nodes_so_read := _matching(nodes, dict(reading)))}
    if len(set(found.values())) > 1:
        readings = " or ".join(" and ".join(f"{name} is {value!r}" for name, value in reading) for reading in found)
        raise ConfigError(f"--where {where!r} may mean {readings}: name all fields as `table show` prints the node, or use its key")
    if found:
        reading, meant = next(iter(found.items()))
        return _alike(nodes, meant, dict(reading).keys(), where)
    wanted = _pairs(text)
    unknown = sorted(set(wanted) - set(fields))
    if unknown:
        there = f"the partition fields are {', '.join(fields)}" if fields else "the table is not partitioned: leave --where away"
        if len(nodes) > 1:
            there += f", or give the key of a node, for example {min(nodes)}"
        raise ConfigError(f"--where {where!r} names the field {unknown[0]!r}, but {there}")
    raise NotFoundError(f"--where {where!r} matches no partition; there are {_listed(nodes)}")


def _alike(nodes: Mapping[str, TableNode], meant: frozenset[TableNode], names: Collection[str], where: str) -> frozenset[TableNode]:
    """Return these nodes. Raises ConfigError when a named field has values of the same text that are not equal.

    Only a node's key can tell such values apart.
    """
    examples: dict[tuple[PartitionValue, ...], str] = {}
    for key, node in sorted(nodes.items()):
        if node in meant:
            named = sorted((value for value in node.partition if value.name in names), key=lambda value: value.name)
            examples.setdefault(tuple(named), key)
    if len(examples) > 1:
        meanings = " or ".join(f"{_spelled(values)} (e.g. {key})" for values, key in examples.items())
        raise ConfigError(f"--where {where!r} may mean {meanings}: use a node's key, as given here")
    return meant


def _spelled(values: Sequence[PartitionValue]) -> str:
    return " and ".join(f"{value.name} is {'null' if value.value is None else repr(value.value)}" for value in values)


def _readings(text: str, fields: Sequence[str]) -> Iterator[tuple[tuple[str, str], ...]]:
    """Every way to read the text as joined pairs of these fields, where each field comes at most once."""
    name, _, rest = text.partition("=")
    name = name.strip()
    if name not in fields:
        return
    yield ((name, rest),)
    others = [field for field in fields if field != name]
    for cut in _SEPARATOR.finditer(rest):
        for reading in _readings(rest[cut.end() :], others):
            yield ((name, rest[: cut.start()]), *reading)


def _matching(nodes: Mapping[str, TableNode], wanted: Mapping[str, str]) -> frozenset[TableNode]:
    return frozenset(node for node in nodes.values() if _agrees(node, wanted))


def _pairs(text: str) -> dict[str, str]:
    """The pairs that a person most likely meant by a text that fits no node."""
    pairs: dict[str, str] = {}
    for part in _SEPARATOR.split(text):
        name, has_value, value = part.partition("=")
        if not has_value or not name.strip():
            raise ConfigError(f"--where {text!r} must be field=value, e.g. day=2024-01-01 or day=2024-01-01,bucket=3, or a node's key")
        if name.strip() in pairs:
            raise ConfigError(f"--where {text!r} names the field {name.strip()!r} twice")
        pairs[name.strip()] = value
    return pairs


def _agrees(node: TableNode, wanted: Mapping[str, str]) -> bool:
    values = {value.name: value for value in node.partition}
    return all(name in values and _same(values[name], text) for name, text in wanted.items())


def _same(value: PartitionValue, text: str) -> bool:
    if value.value is None:
        return text == "null"
    if isinstance(value.value, bool):
        return text.lower() == str(value.value).lower()
    return text == str(value.value)


def _listed(nodes: Mapping[str, TableNode]) -> str:
    texts = sorted({str(node) for node in nodes.values()})
    more = f" and {len(texts) - _SHOWN} more" if len(texts) > _SHOWN else ""
    return ", ".join(texts[:_SHOWN]) + more if texts else "none yet"
