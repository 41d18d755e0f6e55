"""Decides how commits to tables of a Hive metastore keep out other writers, and which answers of a metastore prove how a swap ended.

Other committers must be kept out by the same means: the metastore's own locks, as Iceberg takes them; or, where the table says so, only the
metastore's look at the old metadata location (`expected_parameter_key`, HIVE-26882). Other metastores ignore that parameter without a word,
so a person has to declare that the metastore looks at it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from compaction_pipeline.core.commit.answers import Answer

CHECKS_EXPECTED_PARAMETER = "hive.checks-expected-parameter"
"""Property of a catalog: `true` declares that the metastore refuses an `alter_table` whose expected metadata location is not the present
one. All instances of the metastore must do so."""

LOCKS = "hive.locks"
"""Property of a catalog: which locks the committers of its tables take. `metastore` are Iceberg's own (the default). `other` are those of
another service, such as ZooKeeper, which this program cannot take."""

METASTORE_LOCKS, OTHER_LOCKS = "metastore", "other"

LOCK_ENABLED = "engine.hive.lock-enabled"
"""Iceberg's property of a table: `false` means that its committers take no lock. Iceberg demands the same of all of them."""


@dataclass(frozen=True, slots=True)
class Guard:
    """How one commit keeps out others. The old location is always told to the metastore; `checked` says that it looks at that."""

    takes_lock: bool
    checked: bool


def problems_of_hive(properties: Mapping[str, str]) -> Mapping[str, str]:
    """What is wrong with the properties of a Hive catalog that its commits depend on, by key."""
    locks, checks = properties.get(LOCKS, METASTORE_LOCKS), properties.get(CHECKS_EXPECTED_PARAMETER, "false")
    wrong: dict[str, str] = {}
    if locks not in (METASTORE_LOCKS, OTHER_LOCKS):
        wrong[LOCKS] = f"'{LOCKS}' is {locks!r} but must be {METASTORE_LOCKS} or {OTHER_LOCKS}"
    if checks.lower() not in ("true", "false"):
        wrong[CHECKS_EXPECTED_PARAMETER] = f"'{CHECKS_EXPECTED_PARAMETER}' is {checks!r} but must be true or false"
    return wrong


def why_observe_only(properties: Mapping[str, str]) -> str | None:
    """Why nothing may be committed to any table of a Hive catalog with these properties; None when something may."""
    for problem in problems_of_hive(properties).values():
        return problem
    if properties.get(LOCKS, METASTORE_LOCKS) == OTHER_LOCKS and not _is_checked(properties):
        return (
            f"'{LOCKS}' is {OTHER_LOCKS}: its other committers take locks that this program cannot take, so it only observes; where every "
            f"instance of the metastore is known to check 'expected_parameter_key', declare that with {CHECKS_EXPECTED_PARAMETER}=true"
        )
    return None


def guard_of(catalog: Mapping[str, str], table: Mapping[str, str]) -> Guard | str:
    """How a commit keeps out others, from the properties of the catalog and of the table; or why it must not be made."""
    if (reason := why_observe_only(catalog)) is not None:
        return reason
    checked = _is_checked(catalog)
    # As Java's `Boolean.parseBoolean`, which takes any text but "true" for false.
    locks = table.get(LOCK_ENABLED, "true").lower() == "true" and catalog.get(LOCKS, METASTORE_LOCKS) == METASTORE_LOCKS
    if not locks and not checked:
        return (
            f"'{LOCK_ENABLED}' of the table is {table[LOCK_ENABLED]}: its committers take no lock, so only the metastore can refuse a swap "
            f"that comes too late; where every instance of it is known to check 'expected_parameter_key', declare that with "
            f"{CHECKS_EXPECTED_PARAMETER}=true on the catalog, or remove '{LOCK_ENABLED}' from the table for all its committers"
        )
    return Guard(locks, checked)


def of_hive(kind: str, said: str) -> Answer:
    """Return what an error proves with which a metastore answered `alter_table`. `kind` is the class of the error, `said` its text.

    Whoever asks compares it with the table afterwards: a metastore that lost its database for a moment carries a request out twice, and
    then refuses the second one. Every error that is not known here may have come after the swap.
    """
    if kind == "MetaException" and any(words in said for words in _CHANGED):
        return Answer.LOST_RACE
    if kind == "MetaException" and any(words in said for words in _DENIED):
        return Answer.REFUSED
    return Answer.UNKNOWN


_CHANGED = ("The table has been modified", "has changed")
_DENIED = ("Permission denied", "AccessControlException")
"""What listeners say that a metastore asks for permission, before it changes anything."""


def _is_checked(properties: Mapping[str, str]) -> bool:
    return properties.get(CHECKS_EXPECTED_PARAMETER, "false").lower() == "true"
