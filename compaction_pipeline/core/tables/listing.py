"""Decides what a listing of a catalog proves: which tables are new, which have vanished, and what was not seen.

A catalog may answer wrongly for a moment: a proxy denies a namespace, a database is restored, a server starts without its tables. So a
table is only ever forgotten because of three things together: its namespace was listed without it, the catalog says of the table itself
that it does not exist, and either few tables vanish or later rounds, or a person, say the same.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from compaction_pipeline.core.tables.table import TableIdentifier
from compaction_pipeline.core.words import count_text

Namespace = tuple[str, ...]

MOST_AT_ONCE = 50
"""More tables than these never leave because of one listing."""

SHARE_AT_ONCE = 10
"""Nor does more than one table in this many. One table alone may always leave: a person drops one table of a small catalog."""

ROUNDS = 3
"""The round that misses many tables for the first time, and the two for which they wait."""

MOST_SENTENCES = 20
"""More namespaces that fail are counted in one sentence. A catalog may have thousands of them."""


@dataclass(frozen=True, slots=True)
class CatalogListing:
    """What a catalog answered when it was asked for its namespaces and for the tables of each.

    `tables` maps each table to the path of its newest metadata, or to None when the listing does not tell it. `failed` says for each
    namespace that gave no list why it did not; `denied_below` are those of them whose lower namespaces are not known either. `missing` are
    the namespaces that the catalog listed and then called non-existent: mostly these are only the upper levels of others. `empty` are
    namespaces that a catalog behind HTTP answered with no table at all. () stands for the catalog as a whole. `others` are tables of other
    formats, by their whole names, with what each is in words; only catalogs of Hive and Glue tell them.
    """

    tables: Mapping[TableIdentifier, str | None]
    failed: Mapping[Namespace, str] = field(default_factory=dict)
    denied_below: frozenset[Namespace] = frozenset()
    missing: frozenset[Namespace] = frozenset()
    empty: frozenset[Namespace] = frozenset()
    others: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class KnownName:
    """A table that the program knows, and in how many rounds in a row it was not listed, since when."""

    table: TableIdentifier
    unseen_rounds: int = 0
    unseen_since: datetime | None = None


@dataclass(frozen=True, slots=True)
class Unseen:
    """A sentence about what a listing did not see. `namespace` is () for the catalog as a whole, and `tables` counts the known tables."""

    catalog: str
    namespace: Namespace
    sentence: str
    tables: int


@dataclass(frozen=True, slots=True)
class Findings:
    """What a listing means for the tables of one catalog.

    `appeared` are new. `seen_again` were missed earlier and are listed now. `missed` are known, and their namespaces were listed without
    them. `may_leave` are those of them that are forgotten when the catalog says of each of them that it does not exist. `unseen` says what
    was not seen; while it is not empty, nobody may say that all is well.
    """

    appeared: tuple[TableIdentifier, ...]
    seen_again: tuple[TableIdentifier, ...]
    missed: tuple[KnownName, ...]
    may_leave: tuple[TableIdentifier, ...]
    unseen: tuple[Unseen, ...]


def vanish_at_once(vanished: int, known: int) -> bool:
    """Return whether so many of the known tables of a catalog may be forgotten because of one listing."""
    return vanished <= max(1, min(MOST_AT_ONCE, known // SHARE_AT_ONCE))


def judge_listing(
    catalog: str,
    listing: CatalogListing,
    known: Collection[KnownName],
    now: datetime,
    interval: timedelta,
    *,
    accepted: bool = False,
    kept: Collection[TableIdentifier] | None = None,
) -> Findings:
    """Decide what a listing means. `interval` is the time between two rounds, and `accepted` says that a person accepts what vanished.
    `kept` are the listed tables that the filters of the catalog leave in; None when all are.

    Pure: the same arguments give the same findings.
    """
    names = {one.table for one in known}
    absent = sorted((one for one in known if one.table not in listing.tables), key=lambda one: one.table)
    blind = {one.table: _blind_spot(one.table.namespace, listing) for one in absent}
    missed = tuple(_counted(one, now, interval) for one in absent if blind[one.table] is None)
    appeared = tuple(sorted((listing.tables.keys() if kept is None else set(kept)) - names))
    # A table in a namespace that is empty now waits: an empty answer mostly means that somebody's rights have ended.
    doubtful = [one for one in missed if _is_empty(one.table.namespace, listing)]
    sudden = [one for one in missed if not _is_empty(one.table.namespace, listing)]
    few = vanish_at_once(len(missed), len(known))
    # A new table may be a missed one under another name. Its first look tells, and comes before the next round.
    waits = ROUNDS if not few else 2 if appeared else 1
    may_leave = [one for one in sudden if accepted or one.unseen_rounds >= waits]
    may_leave += [one for one in doubtful if accepted or one.unseen_rounds >= ROUNDS]
    leaving = {one.table for one in may_leave}
    unseen = [*_failed(catalog, listing, absent, blind), *_missed(catalog, [one for one in missed if one.table not in leaving], len(known))]
    if accepted:
        # Of the namespaces that the catalog itself calls non-existent, a person may say that they are gone. Each table is asked for.
        gone = [one.table for one in absent if blind[one.table] is not None and blind[one.table] in listing.missing]
        leaving.update(gone)
    return Findings(
        appeared,
        tuple(sorted(one.table for one in known if one.unseen_rounds and one.table in listing.tables)),
        missed,
        tuple(sorted(leaving)),
        tuple(unseen),
    )


def _blind_spot(namespace: Namespace, listing: CatalogListing) -> Namespace | None:
    """Return the namespace that gave no list, so that nothing is known of the tables in this one; None when it was listed."""
    if namespace in listing.failed or namespace in listing.missing:
        return namespace
    above = (namespace[:size] for size in range(len(namespace)))
    return next((each for each in above if each in listing.denied_below), None)


def _is_empty(namespace: Namespace, listing: CatalogListing) -> bool:
    return namespace in listing.empty or () in listing.empty


def _counted(one: KnownName, now: datetime, interval: timedelta) -> KnownName:
    """Count one more round that missed the table. Commands may list catalogs at any time, and are no rounds of their own."""
    if one.unseen_since is None:
        return KnownName(one.table, 1, now)
    waited = now - one.unseen_since
    return KnownName(one.table, min(one.unseen_rounds + 1, 1 + round(waited / interval)), one.unseen_since)


def _failed(
    catalog: str, listing: CatalogListing, absent: Iterable[KnownName], blind: Mapping[TableIdentifier, Namespace | None]
) -> Sequence[Unseen]:
    hidden: dict[Namespace, int] = {}
    for one in absent:
        spot = blind[one.table]
        if spot is not None:
            hidden[spot] = hidden.get(spot, 0) + 1
    reasons = {**dict.fromkeys(listing.missing, "the catalog lists it, and then says that it does not exist"), **listing.failed}
    # The upper level of other namespaces is often no namespace of its own, and then nothing was in it either.
    told = sorted((each for each in reasons if each in listing.failed or hidden.get(each)), key=lambda each: (-hidden.get(each, 0), each))
    found = [_failure(catalog, each, reasons[each], hidden.get(each, 0)) for each in told[:MOST_SENTENCES]]
    rest = told[MOST_SENTENCES:]
    if rest:
        tables = sum(hidden.get(each, 0) for each in rest)
        sentence = (
            f"{count_text(len(rest), 'more namespace')} of catalog {catalog} could not be listed, e.g. {'.'.join(rest[0])}: "
            f"{reasons[rest[0]]}. {_stay(tables)}"
        )
        found.append(Unseen(catalog, ("more",), sentence, tables))
    return found


def _failure(catalog: str, namespace: Namespace, why: str, tables: int) -> Unseen:
    what = f"namespace {'.'.join(namespace)} of catalog {catalog}" if namespace else f"catalog {catalog}"
    return Unseen(catalog, namespace, f"{what} could not be listed: {why}. {_stay(tables)}", tables)


def _stay(tables: int) -> str:
    if not tables:
        return "New tables in it are not found meanwhile"
    was, stay = ("was", "it stays") if tables == 1 else ("were", "they stay")
    return f"{count_text(tables, 'table')} in it {was} not seen, and {stay} as {'it is' if tables == 1 else 'they are'}"


def _missed(catalog: str, missed: Sequence[KnownName], known: int) -> Sequence[Unseen]:
    if not missed:
        return ()
    newest = min(one.unseen_rounds for one in missed)
    sentence = (
        f"catalog {catalog} lists {count_text(len(missed), 'table')} of {known} no more, e.g. {missed[0].table}, in round {newest} of "
        f"{ROUNDS}. Nothing is removed before later rounds say the same. When these tables are gone for good, run `compaction-pipeline "
        f"catalog explore {catalog} --accept-vanished`"
    )
    return (Unseen(catalog, (), sentence, len(missed)),)
