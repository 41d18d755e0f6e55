"""Says what a file of teams may hold: below each name its limits, its owners, and the tables and catalogs that are mapped to it."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from compaction_pipeline.core.capacity.team import MOST_GB_HOURS, MOST_MEMORY, Limits, Team, checked
from compaction_pipeline.core.errors import ConfigError
from compaction_pipeline.core.tables.table import CATALOG_NAME_RULE, TableIdentifier, is_catalog_name
from compaction_pipeline.core.words import printable

SLOTS, MEMORY_GB, GB_HOURS, OWNERS, TABLES = "slots", "memory-gb", "gb-hours", "owners", "tables"
_KEYS = (SLOTS, MEMORY_GB, GB_HOURS, OWNERS, TABLES)


@dataclass(frozen=True, slots=True)
class TeamFile:
    """The teams of a file in its order, and the team of each table or catalog that it maps."""

    teams: Sequence[Team]
    mapping: Mapping[str, str]


def team_file_of(read: object, source: str) -> TeamFile:
    """Return what a YAML document says of teams. `source` names the document in errors.

    Raises ConfigError, which names the team, the key, the value and the rule.
    """
    if not isinstance(read, Mapping) or not read:
        raise ConfigError(
            f"{source} must hold names of teams, and below each its limits, for example `shop: {{slots: 8}}`; correct the file"
        )
    teams: list[Team] = []
    mapping: dict[str, str] = {}
    for name, keys in read.items():
        if not isinstance(name, str):
            raise ConfigError(f"{source} has the team {name!r}, which YAML reads as another value than a text: put its name in quotes")
        if not isinstance(keys, Mapping):
            raise ConfigError(f"team {printable(str(name), 100)!r} of {source} must be a name with keys below it, for example `slots: 8`")
        for key in keys:
            if key not in _KEYS:
                near = difflib.get_close_matches(str(key), _KEYS, n=1)
                meant = f": did you mean '{near[0]}'?" if near else f": it may have {', '.join(_KEYS)}"
                raise ConfigError(f"team {name[:100]!r} of {source} has the key {printable(str(key), 100)!r}{meant}")
        memory = _number(name, keys, MEMORY_GB, MOST_MEMORY // 10**9)
        hours = _number(name, keys, GB_HOURS, int(MOST_GB_HOURS))
        limits = Limits(_whole(name, keys, SLOTS), None if memory is None else round(memory * 10**9), hours)
        teams.append(checked(Team(name, _texts(name, keys, OWNERS), limits)))
        for target in map(target_of, _texts(name, keys, TABLES)):
            if mapping.setdefault(target, name) != name:
                raise ConfigError(f"{source} maps {target!r} to the teams {mapping[target]!r} and {name!r}, but it can belong to one only")
    return TeamFile(teams, mapping)


def target_of(text: str) -> str:
    """Return the name of a table or a catalog as mappings write it. Raises ConfigError for a name that neither of them can have.

    Otherwise a mapping would be stored that never counts.
    """
    name = text.strip()
    if not name.isprintable():
        raise ConfigError(f"{printable(name, 200)!r} has a character that nobody can see, so it names no table and no catalog")
    if "." not in name:
        if not is_catalog_name(name):
            raise ConfigError(f"'{printable(name, 200)}' is no name of a catalog, which has {CATALOG_NAME_RULE}")
        return name
    if name.count(".") == 1:
        raise ConfigError(
            f"'{printable(name, 200)}' has two parts and cannot belong to a team: a table is CATALOG.NAMESPACE.TABLE, and a catalog has "
            "one part; name each table of a namespace, or set 'compaction.team' on its tables"
        )
    return str(TableIdentifier.parse(name))


def _number(team: str, keys: Mapping[object, object], key: str, most: int) -> float | None:
    value = _limit(team, keys, key)
    # YAML also reads 1e400 and .nan as numbers.
    if value is not None and (isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= most):
        raise ConfigError(f"'{key}' of team {team!r} is {_shown(value)} but must be a number from 0 to {most:,}; leave it out for no limit")
    return None if value is None else float(value)


def _limit(team: str, keys: Mapping[object, object], key: str) -> object:
    if key in keys and keys[key] is None:
        # A template whose variable was not filled must not lift a limit.
        raise ConfigError(f"'{key}' of team {team!r} is empty but must be a number; leave the key out for no limit")
    return keys.get(key)


def _whole(team: str, keys: Mapping[object, object], key: str) -> int | None:
    value = _limit(team, keys, key)
    if value is not None and (isinstance(value, bool) or not isinstance(value, int)):
        raise ConfigError(f"'{key}' of team {team!r} is {_shown(value)} but must be a whole number; leave it out for no limit")
    return value


def _shown(value: object) -> str:
    """A value that is no number. A text such as '8' keeps its quotes, because it looks like a number without them."""
    shown = printable(str(value), 100)
    return f"the text {shown!r}" if isinstance(value, str) and value.strip()[:1].isdigit() else shown


def _texts(team: str, keys: Mapping[object, object], key: str) -> tuple[str, ...]:
    value = keys.get(key, [])
    if not isinstance(value, list) or not all(isinstance(one, str) and one.strip() for one in value):
        raise ConfigError(f"'{key}' of team {team!r} is {printable(str(value), 100)} but must be a list of texts, for example [a, b]")
    return tuple(one.strip() for one in value)
