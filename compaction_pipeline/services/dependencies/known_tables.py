"""Reads a table as it is now, and remembers what it says of its watermarks, flags and partitions, because snapshots expire."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial

from compaction_pipeline.core.dependencies.asked import Calendar, calendar_of
from compaction_pipeline.core.dependencies.flags import flagged
from compaction_pipeline.core.dependencies.judge import KnownPartition
from compaction_pipeline.core.dependencies.ports import DependencyStore, FactsReader, ReadTo, Remembered, StoreFacts, TableFacts
from compaction_pipeline.core.dependencies.ready_when import ReadyWhen, ready_properties_in_force, ready_when
from compaction_pipeline.core.dependencies.standing import Standing, is_news, standings
from compaction_pipeline.core.dependencies.watermark import (
    REPORTED,
    Said,
    Watermark,
    WatermarkRule,
    WatermarkStore,
    said,
    watermark_of_stores,
    watermark_rule,
)
from compaction_pipeline.core.errors import ConfigError, StorageUnavailable
from compaction_pipeline.core.leases.ports import Clock
from compaction_pipeline.core.tables.ports.catalogs import CatalogStore
from compaction_pipeline.core.tables.ready_properties import may_stand
from compaction_pipeline.core.tables.table import TableIdentifier
from compaction_pipeline.core.upkeep.history import MAIN, History

_TRIES = 5


@dataclass(frozen=True, slots=True)
class MarkedTable:
    """A table as it is now, with the rule of its watermark."""

    facts: TableFacts
    watermark_rule: WatermarkRule

    @property
    def uuid(self) -> str:
        return self.facts.uuid

    @property
    def heads(self) -> tuple[int | None, ...]:
        return tuple(head_of(store) for store in self.facts.stores)


@dataclass(frozen=True, slots=True)
class KnownTable(MarkedTable):
    """A table of whose partitions somebody asks, with its other rules."""

    rule: ReadyWhen
    calendar: Calendar
    may_stand: timedelta


class KnownTables:
    """The verbs are load, marked, watermark, watermark_stores, note_standings, note_watermark, flagged_paths and partitions.

    `load` and `marked` read the newest metadata of a table once; the others take what these returned. Each may raise NotFoundError,
    ConfigError for properties that break their rules, TableRefused for manifests that cannot be read, and StorageUnavailable.
    """

    def __init__(self, catalogs: CatalogStore, reader: FactsReader, memory: DependencyStore, clock: Clock) -> None:
        self._catalogs = catalogs
        self._reader = reader
        self._memory = memory
        self._clock = clock

    def load(self, table: TableIdentifier) -> KnownTable:
        """Return the table for those who ask of its partitions."""
        facts, properties = self._read(table)
        base = facts.stores[0]
        with named(table):
            calendar = calendar_of(base.specs, base.spec_id, properties)
            return KnownTable(facts, watermark_rule(properties), ready_when(properties), calendar, may_stand(properties))

    def marked(self, table: TableIdentifier) -> MarkedTable:
        """Return the table for those who ask or tell only of its watermark. What its other properties say wrong is no matter of theirs."""
        facts, properties = self._read(table)
        with named(table):
            return MarkedTable(facts, watermark_rule(properties))

    def _read(self, table: TableIdentifier) -> tuple[TableFacts, Mapping[str, str]]:
        catalog = self._catalogs.entry(table.catalog).properties
        facts = self._reader.read(table)
        with named(table):
            return facts, ready_properties_in_force(facts.stores[0].properties, facts.namespace, catalog)

    def watermark(self, known: MarkedTable) -> Watermark | None:
        """Return up to where the data of the table is complete."""
        with named(known.facts.table):
            return watermark_of_stores(self.watermark_stores(known), known.watermark_rule)

    def watermark_stores(self, known: MarkedTable) -> Sequence[WatermarkStore]:
        """Return what the watermark follows from, with what was remembered of it."""
        remembered = self._remember(known, None)
        return [
            WatermarkStore(store.history, store.properties, {head: one.said for head, one in before.items()})
            for store, before in zip(known.facts.stores, remembered, strict=True)
        ]

    def note_standings(self, known: KnownTable, stores: Sequence[WatermarkStore], now: datetime) -> Sequence[Standing]:
        """Note since when the watermark of each writer stands, because somebody waits for it."""
        before = self._memory.standings(known.uuid)
        after = sorted(standings(known.facts.table, stores, known.watermark_rule, before, now, known.may_stand), key=lambda one: one.writer)
        if is_news(before, after):
            self._memory.note_standings(known.uuid, after)
        return after

    def note_watermark(self, known: MarkedTable, snapshot_id: int, at: datetime) -> bool:
        """Note what a writer reported as the watermark of a snapshot. Return False when the table does not have the snapshot."""
        for number, store in enumerate(known.facts.stores):
            snapshot = store.history.snapshots.get(snapshot_id)
            if snapshot is not None:
                reported = Said(REPORTED, at.isoformat(), snapshot_id, snapshot.made_at)
                self._remember_at(known, number, snapshot_id, partial(_with_report, reported))
                return True
        return False

    def flagged_paths(self, known: KnownTable, key: str) -> Sequence[str]:
        """Return the paths of the partitions that the summaries and the properties of the table list under this key."""
        remembered = self._remember(known, key)
        found: dict[str, bool] = {}
        for store, before in zip(known.facts.stores, remembered, strict=True):
            said_here = flagged(store.history, store.properties, key, {head: one.flags.get(key, {}) for head, one in before.items()})
            found = {**said_here, **found}
        return [path for path, ready in found.items() if ready]

    def _remember(self, known: MarkedTable, key: str | None) -> Sequence[Mapping[int, Remembered]]:
        """Remember what the heads of the table's stores say now. Return what was remembered before, by store."""
        found = []
        for number, (store, head) in enumerate(zip(known.facts.stores, known.heads, strict=True)):
            says = partial(_said_now, store.history, known.watermark_rule, key)
            found.append(self._memory.remembered(known.uuid, number) if head is None else self._remember_at(known, number, head, says))
        return found

    def _remember_at(self, known: MarkedTable, store: int, snapshot_id: int, says: _Says) -> Mapping[int, Remembered]:
        """Remember what a snapshot says beside what is remembered of it. Return all that was remembered of the store before.

        A question and a report of the same snapshot may come at once. Neither overwrites the other.
        """
        for _ in range(_TRIES):
            before = self._memory.remembered(known.uuid, store)
            own = before.get(snapshot_id)
            after = says(own or Remembered(), before)
            if after == (own or Remembered()) or self._memory.remember(known.uuid, store, snapshot_id, own, after, self._clock()):
                return before
        raise StorageUnavailable(f"{known.facts.table}: other processes note its watermark at the same time; ask again in some seconds")

    def partitions(self, known: KnownTable, *, whole: bool) -> Sequence[KnownPartition]:
        """Read what is new in the manifests, and return what is known of the partitions then."""
        for _ in range(_TRIES):
            before = self._memory.read_to(known.uuid)
            goes_on = before is not None and (before.whole or not whole)
            if goes_on and before is not None and before.heads == known.heads:
                return self._memory.partitions(known.uuid)
            reading = self._reader.partition_commits(known.facts, before.heads if goes_on and before is not None else None)
            after = ReadTo(reading.heads, reading.anew or (goes_on and before is not None and before.whole))
            if self._memory.note_reading(known.uuid, before, after, reading, self._clock()):
                return self._memory.partitions(known.uuid)
        raise StorageUnavailable(f"{known.facts.table}: other processes read its manifests at the same time; ask again in some seconds")


_Says = Callable[[Remembered, Mapping[int, Remembered]], Remembered]
"""Adds what a snapshot says to what is remembered of it. It gets all that is remembered of the store, too."""


def _with_report(reported: Said, own: Remembered, before: Mapping[int, Remembered]) -> Remembered:
    return replace(own, said=(reported, *(each for each in own.said if each.key != REPORTED)))


def _said_now(history: History, rule: WatermarkRule, key: str | None, own: Remembered, before: Mapping[int, Remembered]) -> Remembered:
    now_said = said(history, rule, {at: one.said for at, one in before.items()})
    # A rule that was changed may look elsewhere. What was said under other keys may be asked for again.
    others = tuple(one for one in own.said if one.key not in {each.key for each in now_said})
    flags = dict(own.flags)
    if key is not None:
        flags[key] = dict(flagged(history, {}, key, {at: one.flags.get(key, {}) for at, one in before.items()}))
    return Remembered((*now_said, *others), flags)


@contextmanager
def named(table: TableIdentifier) -> Iterator[None]:
    """Let errors about properties and questions name the table."""
    try:
        yield
    except ConfigError as error:
        raise ConfigError(f"{table}: {error}") from None


def head_of(store: StoreFacts) -> int | None:
    """The newest snapshot of main."""
    ref = store.history.refs.get(MAIN)
    return None if ref is None else ref.snapshot_id
