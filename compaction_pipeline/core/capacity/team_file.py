"""Says what a file of teams may hold: below each name its limits, its owners, and the tables and catalogs that are mapped to it."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from compaction_pipeline.core.capacity.team import Limits, Team, checked
from compaction_pipeline.core.errors import ConfigError
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
        if not isinstance(name, str) or not isinstance(keys, Mapping):
            raise ConfigError(f"team {printable(str(name), 100)!r} of {source} must be a name with keys below it, for example `slots: 8`")
        for key in keys:
            if key not in _KEYS:
                near = difflib.get_close_matches(str(key), _KEYS, n=1)
                meant = f": did you mean '{near[0]}'?" if near else f": it may have {', '.join(_KEYS)}"
                raise ConfigError(f"team {name[:100]!r} of {source} has the key {printable(str(key), 100)!r}{meant}")
        memory = _number(name, keys, MEMORY_GB)
        limits = Limits(_whole(name, keys, SLOTS), None if memory is None else round(memory * 10**9), _number(name, keys, GB_HOURS))
        teams.append(checked(Team(name, _texts(name, keys, OWNERS), limits)))
        for target in _texts(name, keys, TABLES):
            check_target(target)
            if mapping.setdefault(target, name) != name:
                raise ConfigError(f"{source} maps {target!r} to the teams {mapping[target]!r} and {name!r}, but it can belong to one only")
    return TeamFile(teams, mapping)


def check_target(target: str) -> None:
    """Raise ConfigError for a name that neither a table nor a catalog can have, so that a mapping of it would never count."""
    if target.count(".") == 1:
        raise ConfigError(
            f"'{printable(target, 200)}' has two parts and cannot belong to a team: a table is CATALOG.NAMESPACE.TABLE, and a catalog has "
            "one part; name each table of a namespace, or set 'compaction.team' on its tables"
        )


def _number(team: str, keys: Mapping[object, object], key: str) -> float | None:
    value = keys.get(key)
    # YAML also reads 1e400 and .nan as numbers, which `checked` or `round` would not name.
    if value is not None and (isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= 10**12):
        raise ConfigError(f"'{key}' of team {team!r} is {_shown(value)} but must be a number from 0 to 10¹²; leave it out for no limit")
    return None if value is None else float(value)


def _whole(team: str, keys: Mapping[object, object], key: str) -> int | None:
    value = keys.get(key)
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
