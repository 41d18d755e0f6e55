"""Answers whether partitions and windows of tables are ready, up to where a table's watermark reaches, and takes reports."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import partial

from compaction_pipeline.core.dependencies.answers import Answer, answered
from compaction_pipeline.core.dependencies.asked import Asked, Calendar, calendar_of
from compaction_pipeline.core.dependencies.flags import flagged
from compaction_pipeline.core.dependencies.judge import (
    KnownPartition,
    Verdict,
    by_files,
    by_names,
    by_watermark,
    changed_since,
    end_of,
    longer_quiet,
)
from compaction_pipeline.core.dependencies.ports import (
    DependencyStore,
    FactsReader,
    PartitionReading,
    ReadTo,
    Remembered,
    Report,
    Seen,
    StoreFacts,
    TableFacts,
)
from compaction_pipeline.core.dependencies.readiness import FLAPPING, ChangedSince, Readiness, TableWatermark
from compaction_pipeline.core.dependencies.ready_time import Question, Window, instant_of
from compaction_pipeline.core.dependencies.ready_when import (
    ByWatermark,
    Exists,
    Flag,
    Quiet,
    ReadyWhen,
    ready_properties_in_force,
    ready_when,
)
from compaction_pipeline.core.dependencies.standing import NOTED_AGAIN, Standing, is_news, lowest, standings
from compaction_pipeline.core.dependencies.watermark import (
    REPORTED,
    Said,
    Watermark,
    WatermarkRule,
    WatermarkStore,
    alternating_jobs,
    said,
    too_early,
    watermark_of_stores,
    watermark_rule,
)
from compaction_pipeline.core.errors import CompactionError, ConfigError, NotFoundError, StorageUnavailable
from compaction_pipeline.core.leases.ports import Clock
from compaction_pipeline.core.tables.node import Place
from compaction_pipeline.core.tables.ports.catalogs import CatalogStore
from compaction_pipeline.core.tables.ready_properties import may_stand
from compaction_pipeline.core.tables.table import TableIdentifier
from compaction_pipeline.core.upkeep.history import MAIN, History

_LOG = logging.getLogger(__name__)

REPORTS_KEPT = timedelta(days=400)
KEPT = timedelta(days=35)
"""What nobody asked about for so long is forgotten."""
_FORGETS_EVERY = timedelta(days=1)
_TRIES = 5


@dataclass(frozen=True, slots=True)
class Look:
    """Answers about a table and its watermark, with what they follow from: `seen` is None where they also change as time passes. `catalog`
    are the properties of its catalog. `refused` says of questions that mean nothing why, by their `Asked.what`: no answer is theirs."""

    answers: tuple[Readiness, ...]
    watermark: Watermark | None
    seen: Seen | None
    catalog: Mapping[str, str]
    refused: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Marked:
    """A table as it is now, with the rule of its watermark."""

    facts: TableFacts
    watermark_rule: WatermarkRule

    @property
    def uuid(self) -> str:
        return self.facts.uuid

    @property
    def heads(self) -> tuple[int | None, ...]:
        return tuple(_head(store) for store in self.facts.stores)


@dataclass(frozen=True, slots=True)
class _Table(_Marked):
    """A table of whose partitions somebody asks, with its other rules."""

    rule: ReadyWhen
    calendar: Calendar
    may_stand: timedelta


class ReadReadiness:
    """The verbs watermark, answers, partition, partitions, missing, windows, look, unchanged, report, report_watermark and withdraw.

    Each loads the newest metadata of the table once. Each may raise NotFoundError, ConfigError for properties and questions that break
    their rules, TableRefused when the rule needs manifests that cannot be read, and StorageUnavailable.
    """

    def __init__(self, catalogs: CatalogStore, reader: FactsReader, memory: DependencyStore, clock: Clock) -> None:
        self._catalogs = catalogs
        self._reader = reader
        self._memory = memory
        self._clock = clock
        self._forgot_at: datetime | None = None

    def watermark(self, table: TableIdentifier) -> TableWatermark:
        """Return up to where the data of a table is complete, as its writers say."""
        known = self._marked(table)
        found = self._watermark(known)
        warnings = (too_early(found), *(alternating_jobs(store.history, known.watermark_rule) for store in known.facts.stores))
        rule = known.watermark_rule
        return TableWatermark(
            table,
            found,
            tuple(rule.writers.values()) if rule.writers else rule.keys,
            known.heads,
            next((warning for warning in warnings if warning is not None), None),
        )

    def answers(self, table: TableIdentifier, asked: Question) -> tuple[Readiness, ...]:
        """Return the answer to a question: one for each partition, or one for the window."""
        return self.partitions(table, asked.partitions) if asked.window is None else self.windows(table, [asked.window])

    def partition(self, table: TableIdentifier, text: str) -> Readiness:
        """Return whether a partition is ready. It is named as in the paths of files: `day=2026-01-01`."""
        return self.partitions(table, [text])[0]

    def partitions(self, table: TableIdentifier, texts: Sequence[str]) -> tuple[Readiness, ...]:
        """Return for each of these partitions whether it is ready."""
        known = self._load(table)
        with _named(table):
            asked = [known.calendar.partition(text) for text in texts]
        return self._answers(known, asked)

    def missing(self, table: TableIdentifier, places: Collection[Place]) -> Mapping[Place, str]:
        """Return what is missing of those of these partitions that are not ready. One of which nobody can tell is not ready."""
        known = self._load(table)
        asked: dict[Place, Asked] = {}
        missing: dict[Place, str] = {}
        for place in places:
            try:
                one = known.calendar.of_files(*place)
                if isinstance(known.rule, ByWatermark):
                    end_of(one)
            except ConfigError as error:
                # Partitions of an older spec may have no time. They hold back none of the others.
                missing[place] = f"whether it is ready cannot be told: {error}"
            else:
                asked[place] = one
        answers = self._answers(known, list(asked.values()))
        return {**missing, **{place: answer.why for place, answer in zip(asked, answers, strict=True) if not answer.ready}}

    def windows(self, table: TableIdentifier, windows: Sequence[Window]) -> tuple[Readiness, ...]:
        """Return for each of these windows whether every partition that overlaps it is ready."""
        known = self._load(table)
        with _named(table):
            asked = [known.calendar.window(window.start, window.end) for window in windows]
        return self._answers(known, asked)

    def look(self, table: TableIdentifier, whats: Sequence[str], *, watermark: bool = False) -> Look:
        """Return the answers to questions that were asked before, each by its `Asked.what`: of a partition, or of a window. Late data is
        not looked for: `changed_since` of what was ready before is None. The watermark is told to who asks for it.

        A question may mean nothing any more, after a field was dropped. It is refused, and keeps no other one from its answer."""
        # A change that comes between this and the load is seen the next time.
        catalog = self._catalogs.entry(table.catalog).properties
        if not whats:
            # A table needs no partitions for this.
            marked = self._marked(table)
            return Look((), self._watermark(marked) if watermark else None, marked.facts.seen, catalog)
        known = self._load(table)
        asked, refused = list[Asked](), dict[str, str]()
        for what in whats:
            try:
                with _named(table):
                    asked.append(_askable(known, what))
            except ConfigError as error:
                refused[what] = str(error)
        # Nothing but a new commit, or another property, changes an answer by the other rules. Of a report the caller is told.
        seen = None if isinstance(known.rule, Quiet) else known.facts.seen
        answers = self._answers(known, asked, read_late=False) if asked else ()
        return Look(answers, self._watermark(known) if watermark else None, seen, catalog, refused)

    def _watermark(self, known: _Marked) -> Watermark | None:
        with _named(known.facts.table):
            return watermark_of_stores(self._watermark_stores(known), known.watermark_rule)

    def unchanged(self, looks: Mapping[TableIdentifier, Look]) -> frozenset[TableIdentifier]:
        """Return those of these tables of which each answer is still as it was, if nothing was reported. No table is loaded."""
        seen = [look.seen for look in looks.values() if look.seen is not None]
        properties = {catalog: self._catalogs.entry(catalog).properties for catalog in {one.table.catalog for one in seen}}
        still = [one for one in seen if looks[one.table].catalog == properties[one.table.catalog]]
        return self._reader.unmoved(still)

    def report(self, table: TableIdentifier, text: str) -> Readiness:
        """Take a report that a partition is ready, for the rule `reported`. Return what the table's own rule says of it now."""
        known = self._load(table)
        with _named(table):
            asked = known.calendar.called_ready(text)
        self._memory.report(known.uuid, Report(asked.what, self._clock()))
        self._memory.note_reported(table, self._clock())
        _LOG.info("table=%s %s was reported ready", table, asked.what)
        return self._answers(known, [asked])[0]

    def report_watermark(self, table: TableIdentifier, snapshot_id: int, watermark: datetime) -> None:
        """Take a writer's word for the watermark of a snapshot, as if its summary said so. It counts for this table only, and as long as
        main has the snapshot.

        Raises NotFoundError when the table does not have the snapshot, and ConfigError for a time beyond the years 1 to 9999 in UTC.
        """
        at = instant_of(watermark.isoformat())
        known = self._marked(table)
        for number, store in enumerate(known.facts.stores):
            snapshot = store.history.snapshots.get(snapshot_id)
            if snapshot is not None:
                reported = Said(REPORTED, at.isoformat(), snapshot_id, snapshot.made_at)
                self._remember_at(known, number, snapshot_id, partial(_with_report, reported))
                self._memory.note_reported(table, self._clock())
                return
        raise NotFoundError(f"table {table} has no snapshot {snapshot_id}: report a commit after it has landed, and name its table")

    def withdraw(self, table: TableIdentifier, text: str) -> Readiness:
        """Take a report back. Return what the table's own rule says of the partition now."""
        known = self._load(table)
        with _named(table):
            asked = known.calendar.partition(text)
        if self._memory.withdraw(known.uuid, asked.what):
            self._memory.note_reported(table, self._clock())
            _LOG.info("table=%s the report of %s was taken back", table, asked.what)
        return self._answers(known, [asked])[0]

    def _load(self, table: TableIdentifier) -> _Table:
        facts, properties = self._read(table)
        base = facts.stores[0]
        with _named(table):
            calendar = calendar_of(base.specs, base.spec_id, properties)
            return _Table(facts, watermark_rule(properties), ready_when(properties), calendar, may_stand(properties))

    def _marked(self, table: TableIdentifier) -> _Marked:
        """The table for those who ask or tell only of its watermark: what its other properties say wrongly is no matter of theirs."""
        facts, properties = self._read(table)
        with _named(table):
            return _Marked(facts, watermark_rule(properties))

    def _read(self, table: TableIdentifier) -> tuple[TableFacts, Mapping[str, str]]:
        catalog = self._catalogs.entry(table.catalog).properties
        facts = self._reader.read(table)
        with _named(table):
            return facts, ready_properties_in_force(facts.stores[0].properties, facts.namespace, catalog)

    def _answers(self, known: _Table, asked: Sequence[Asked], *, read_late: bool = True) -> tuple[Readiness, ...]:
        """Answer questions. Without `read_late`, no manifest is read to find late data."""
        now, table = self._clock(), known.facts.table
        with _named(table):
            watermark, stands_since, verdicts = self._verdicts(known, asked, now)
        before = self._memory.answers(known.uuid, {one.what for one in asked})
        rule = str(known.rule)
        answers = [
            answered(before.get(one.what), one.what, rule, verdict, known.heads, now) for one, verdict in zip(asked, verdicts, strict=True)
        ]
        self._save(known, before, answers)
        late = self._late_data(known, answers, read=read_late)
        return tuple(
            Readiness(
                table,
                one.what,
                one.window,
                verdict.ready,
                rule,
                verdict.why,
                now,
                known.heads,
                watermark.at if watermark is not None else None,
                answer.since if answer.ready else None,
                answer.withdrawals,
                _proposal(known.rule, answer),
                _changed(known, one, answer, late),
                answer.withdrawals >= FLAPPING,
                known.uuid,
                stands_since,
            )
            for one, verdict, answer in zip(asked, verdicts, answers, strict=True)
        )

    def _verdicts(
        self, known: _Table, asked: Sequence[Asked], now: datetime
    ) -> tuple[Watermark | None, datetime | None, Sequence[Verdict]]:
        """What is said of each question, with the watermark from which it follows, and since when that stands."""
        rule = known.rule
        if isinstance(rule, ByWatermark):
            stores = self._watermark_stores(known)
            found = watermark_of_stores(stores, known.watermark_rule)
            standing = lowest(self._note_standings(known, stores, now))
            keys = tuple(known.watermark_rule.writers.values()) or known.watermark_rule.keys
            return found, standing.since, [by_watermark(one, found, keys) for one in asked]
        if isinstance(rule, (Quiet, Exists)):
            partitions = self._partitions(known, whole=True)
            return None, None, [by_files(one, known.calendar, partitions, rule, now) for one in asked]
        if isinstance(rule, Flag):
            names = _asked_for(known.calendar, self._flagged(known, rule.key))
            otherwise = f"no snapshot of main and no property of the table lists it under {rule.key!r}"
            return None, None, [by_names(one, names, "flagged", otherwise) for one in asked]
        names = _asked_for(known.calendar, [one.what for one in self._memory.reports(known.uuid)])
        return None, None, [by_names(one, names, "reported", _unreported(one, now)) for one in asked]

    def _watermark_stores(self, known: _Marked) -> Sequence[WatermarkStore]:
        remembered = self._remember(known, None)
        return [
            WatermarkStore(store.history, store.properties, {head: one.said for head, one in before.items()})
            for store, before in zip(known.facts.stores, remembered, strict=True)
        ]

    def _note_standings(self, known: _Table, stores: Sequence[WatermarkStore], now: datetime) -> Sequence[Standing]:
        """Note since when the watermark of each writer stands, because somebody waits for it."""
        before = self._memory.standings(known.uuid)
        after = sorted(standings(known.facts.table, stores, known.watermark_rule, before, now, known.may_stand), key=lambda one: one.writer)
        if is_news(before, after):
            self._memory.note_standings(known.uuid, after)
        return after

    def _flagged(self, known: _Table, key: str) -> Sequence[str]:
        remembered = self._remember(known, key)
        found: dict[str, bool] = {}
        for store, before in zip(known.facts.stores, remembered, strict=True):
            said_here = flagged(store.history, store.properties, key, {head: one.flags.get(key, {}) for head, one in before.items()})
            found = {**said_here, **found}
        return [path for path, ready in found.items() if ready]

    def _remember(self, known: _Marked, key: str | None) -> Sequence[Mapping[int, Remembered]]:
        """Remember what the heads of the table's stores say now. Return what was remembered before, by store."""
        found = []
        for number, (store, head) in enumerate(zip(known.facts.stores, known.heads, strict=True)):
            says = partial(_said_now, store.history, known.watermark_rule, key)
            found.append(self._memory.remembered(known.uuid, number) if head is None else self._remember_at(known, number, head, says))
        return found

    def _remember_at(self, known: _Marked, store: int, snapshot_id: int, says: _Says) -> Mapping[int, Remembered]:
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

    def _partitions(self, known: _Table, *, whole: bool) -> Sequence[KnownPartition]:
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

    def _save(self, known: _Table, before: Mapping[str, Answer], answers: Sequence[Answer]) -> None:
        changed = []
        for answer in answers:
            old = before.get(answer.what)
            if old is None or answer.asked_at - old.asked_at >= NOTED_AGAIN or replace(answer, asked_at=old.asked_at) != old:
                changed.append(answer)
            if old is not None and old.ready and not answer.ready and old.rule == answer.rule:
                _LOG.warning("table=%s %s is no longer ready, withdrawal %d", known.facts.table, answer.what, answer.withdrawals)
        if changed:
            self._memory.save_answers(known.facts.table, known.uuid, changed)
            self._forget(self._clock())

    def _forget(self, now: datetime) -> None:
        """Forget what is old, once a day in each process. Only where something is stored anew, there may be ever more of it."""
        if self._forgot_at is None or now - self._forgot_at >= _FORGETS_EVERY:
            self._memory.expire(now - KEPT, now - REPORTS_KEPT)
            self._forgot_at = now

    def _late_data(self, known: _Table, answers: Sequence[Answer], *, read: bool) -> Sequence[KnownPartition] | None:
        """What is known of partitions that got files after their answers were ready; None when their manifests cannot be read, or need not.

        Nothing is read before something is ready. Then the first reading begins at that head, so no old manifest is ever read for this.
        """
        if isinstance(known.rule, (Quiet, Exists)):
            return ()
        ready = [answer for answer in answers if answer.ready]
        try:
            if ready and self._memory.read_to(known.uuid) is None:
                nothing = PartitionReading(known.heads, False, ())
                self._memory.note_reading(known.uuid, None, ReadTo(known.heads, whole=False), nothing, self._clock())
            if all(answer.heads == known.heads for answer in ready):
                return ()
            return self._partitions(known, whole=False) if read else None
        except CompactionError as error:
            _LOG.info("table=%s late data is not looked for: %s", known.facts.table, error)
            return None


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
def _named(table: TableIdentifier) -> Iterator[None]:
    """Let errors about properties and questions name the table."""
    try:
        yield
    except ConfigError as error:
        raise ConfigError(f"{table}: {error}") from None


def _askable(known: _Table, what: str) -> Asked:
    """What a question means. Raises ConfigError for one that the rule of the table cannot answer."""
    one = known.calendar.asked_before(what)
    if isinstance(known.rule, ByWatermark):
        end_of(one)
    return one


def _head(store: StoreFacts) -> int | None:
    ref = store.history.refs.get(MAIN)
    return None if ref is None else ref.snapshot_id


def _asked_for(calendar: Calendar, paths: Sequence[str]) -> Sequence[Asked]:
    """What these names mean. One that the table's partitions cannot have, or cannot have any more, or of a bucket, stands for nothing."""
    found = []
    for path in paths:
        try:
            found.append(calendar.called_ready(path))
        except ConfigError as error:
            _LOG.debug("%r is no partition: %s", path, error)
    return found


def _unreported(asked: Asked, now: datetime) -> str:
    if asked.until is not None and asked.until < now - REPORTS_KEPT:
        return f"unknown: reports are kept for {REPORTS_KEPT.days} days, so one of this partition may be forgotten; report it again"
    return "nobody has reported it; a writer's token may do so over HTTP (`docs/readiness.md`)"


def _proposal(rule: ReadyWhen, answer: Answer) -> timedelta | None:
    if not isinstance(rule, Quiet) or answer.withdrawals < FLAPPING or answer.gap is None:
        return None
    return longer_quiet(answer.gap)


def _changed(known: _Table, asked: Asked, answer: Answer, late: Sequence[KnownPartition] | None) -> tuple[ChangedSince, ...] | None:
    if not answer.ready or answer.heads == known.heads:
        return ()
    if late is None:
        return None
    newer = set[int]()
    for store, since in zip(known.facts.stores, answer.heads, strict=False):
        head = _head(store)
        for snapshot in store.history.ancestry(head) if head is not None else ():
            if snapshot.snapshot_id == since:
                break
            newer.add(snapshot.snapshot_id)
    return changed_since(asked, known.calendar, late, newer)
