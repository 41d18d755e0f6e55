"""Answers whether partitions and windows of a table are ready, by the rule of the table and by what is reported of it."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from compaction_pipeline.core.dependencies.answers import Answer, answered
from compaction_pipeline.core.dependencies.asked import Asked, Calendar
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
    Report,
    Seen,
)
from compaction_pipeline.core.dependencies.readiness import FLAPPING, ChangedSince, Readiness, TableWatermark
from compaction_pipeline.core.dependencies.ready_time import Question, Window, instant_of
from compaction_pipeline.core.dependencies.ready_when import (
    ByWatermark,
    Exists,
    Flag,
    Quiet,
    ReadyWhen,
)
from compaction_pipeline.core.dependencies.standing import NOTED_AGAIN, lowest
from compaction_pipeline.core.dependencies.watermark import (
    Watermark,
    alternating_jobs,
    too_early,
    watermark_of_stores,
)
from compaction_pipeline.core.errors import CompactionError, ConfigError, NotFoundError
from compaction_pipeline.core.leases.ports import Clock
from compaction_pipeline.core.tables.node import Place
from compaction_pipeline.core.tables.ports.catalogs import CatalogStore
from compaction_pipeline.core.tables.table import TableIdentifier
from compaction_pipeline.services.dependencies.known_tables import KnownTable, KnownTables, head_of, named

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
        self._tables = KnownTables(catalogs, reader, memory, clock)
        self._forgot_at: datetime | None = None

    def watermark(self, table: TableIdentifier) -> TableWatermark:
        """Return up to where the data of a table is complete, as its writers say."""
        known = self._tables.marked(table)
        found = self._tables.watermark(known)
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
        known = self._tables.load(table)
        with named(table):
            asked = [known.calendar.partition(text) for text in texts]
        return self._answers(known, asked)

    def missing(self, table: TableIdentifier, places: Collection[Place]) -> Mapping[Place, str]:
        """Return what is missing of those of these partitions that are not ready. One of which nobody can tell is not ready."""
        known = self._tables.load(table)
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
        known = self._tables.load(table)
        with named(table):
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
            marked = self._tables.marked(table)
            return Look((), self._tables.watermark(marked) if watermark else None, marked.facts.seen, catalog)
        known = self._tables.load(table)
        asked, refused = list[Asked](), dict[str, str]()
        for what in whats:
            try:
                with named(table):
                    asked.append(_askable(known, what))
            except ConfigError as error:
                refused[what] = str(error)
        # Nothing but a new commit, or another property, changes an answer by the other rules. Of a report the caller is told.
        seen = None if isinstance(known.rule, Quiet) else known.facts.seen
        answers = self._answers(known, asked, read_late=False) if asked else ()
        return Look(answers, self._tables.watermark(known) if watermark else None, seen, catalog, refused)

    def unchanged(self, looks: Mapping[TableIdentifier, Look]) -> frozenset[TableIdentifier]:
        """Return those of these tables of which each answer is still as it was, if nothing was reported. No table is loaded."""
        seen = [look.seen for look in looks.values() if look.seen is not None]
        properties = {catalog: self._catalogs.entry(catalog).properties for catalog in {one.table.catalog for one in seen}}
        still = [one for one in seen if looks[one.table].catalog == properties[one.table.catalog]]
        return self._reader.unmoved(still)

    def report(self, table: TableIdentifier, text: str) -> Readiness:
        """Take a report that a partition is ready, for the rule `reported`. Return what the table's own rule says of it now."""
        known = self._tables.load(table)
        with named(table):
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
        if not self._tables.note_watermark(self._tables.marked(table), snapshot_id, at):
            raise NotFoundError(f"table {table} has no snapshot {snapshot_id}: report a commit after it has landed, and name its table")
        self._memory.note_reported(table, self._clock())

    def withdraw(self, table: TableIdentifier, text: str) -> Readiness:
        """Take a report back. Return what the table's own rule says of the partition now."""
        known = self._tables.load(table)
        with named(table):
            asked = known.calendar.partition(text)
        if self._memory.withdraw(known.uuid, asked.what):
            self._memory.note_reported(table, self._clock())
            _LOG.info("table=%s the report of %s was taken back", table, asked.what)
        return self._answers(known, [asked])[0]

    def _answers(self, known: KnownTable, asked: Sequence[Asked], *, read_late: bool = True) -> tuple[Readiness, ...]:
        """Answer questions. Without `read_late`, no manifest is read to find late data."""
        now, table = self._clock(), known.facts.table
        with named(table):
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
        self, known: KnownTable, asked: Sequence[Asked], now: datetime
    ) -> tuple[Watermark | None, datetime | None, Sequence[Verdict]]:
        """What is said of each question, with the watermark from which it follows, and since when that stands."""
        rule = known.rule
        if isinstance(rule, ByWatermark):
            stores = self._tables.watermark_stores(known)
            found = watermark_of_stores(stores, known.watermark_rule)
            standing = lowest(self._tables.note_standings(known, stores, now))
            keys = tuple(known.watermark_rule.writers.values()) or known.watermark_rule.keys
            return found, standing.since, [by_watermark(one, found, keys) for one in asked]
        if isinstance(rule, (Quiet, Exists)):
            partitions = self._tables.partitions(known, whole=True)
            return None, None, [by_files(one, known.calendar, partitions, rule, now) for one in asked]
        if isinstance(rule, Flag):
            names = _asked_for(known.calendar, self._tables.flagged_paths(known, rule.key))
            otherwise = f"no snapshot of main and no property of the table lists it under {rule.key!r}"
            return None, None, [by_names(one, names, "flagged", otherwise) for one in asked]
        names = _asked_for(known.calendar, [one.what for one in self._memory.reports(known.uuid)])
        return None, None, [by_names(one, names, "reported", _unreported(one, now)) for one in asked]

    def _save(self, known: KnownTable, before: Mapping[str, Answer], answers: Sequence[Answer]) -> None:
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

    def _late_data(self, known: KnownTable, answers: Sequence[Answer], *, read: bool) -> Sequence[KnownPartition] | None:
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
            return self._tables.partitions(known, whole=False) if read else None
        except CompactionError as error:
            _LOG.info("table=%s late data is not looked for: %s", known.facts.table, error)
            return None


def _askable(known: KnownTable, what: str) -> Asked:
    """What a question means. Raises ConfigError for one that the rule of the table cannot answer."""
    one = known.calendar.asked_before(what)
    if isinstance(known.rule, ByWatermark):
        end_of(one)
    return one


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


def _changed(known: KnownTable, asked: Asked, answer: Answer, late: Sequence[KnownPartition] | None) -> tuple[ChangedSince, ...] | None:
    if not answer.ready or answer.heads == known.heads:
        return ()
    if late is None:
        return None
    newer = set[int]()
    for store, since in zip(known.facts.stores, answer.heads, strict=False):
        head = head_of(store)
        for snapshot in store.history.ancestry(head) if head is not None else ():
            if snapshot.snapshot_id == since:
                break
            newer.add(snapshot.snapshot_id)
    return changed_since(asked, known.calendar, late, newer)
