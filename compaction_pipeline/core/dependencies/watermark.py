"""Decides what the watermark of a table is: the time up to which its writers promise that its data is complete.

Writers put it into the summary of a snapshot, under one of a few keys. The newest snapshot of main with such a key counts, walking back
from the head, so no snapshot without a key hides it. Of several keys in that snapshot the lowest watermark counts. When writers are named,
each key is walked back by itself, and the lowest counts; a writer that was never seen means that there is no watermark.

Compactions copy what counts at their parent (`carried`). Such a copy counts only where the walk ends and no writer's own snapshot was met,
so it never outdoes what it was copied from, whatever a person has changed in the rule meanwhile.

A value that says nothing (−1, Long.MIN, null) is passed over, as if its snapshot had no key. Long.MAX, the end of a bounded load, counts as
the time of the commit of its snapshot: next year is not ready because one load has ended.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone

from compaction_pipeline.core.errors import ConfigError
from compaction_pipeline.core.tables.keyed.changes import marks_of_stores, sinks, watermark_ms, watermarks_of_sinks
from compaction_pipeline.core.tables.watermark_keys import (
    WATERMARK_KEYS,
    WATERMARK_KEYS_KEY,
    WATERMARK_KEYS_RULE,
    WATERMARK_WRITERS_KEY,
    WATERMARK_WRITERS_RULE,
    says_watermark,
    watermark_keys,
    watermark_writers,
)
from compaction_pipeline.core.upkeep.history import MAIN, History, Snapshot
from compaction_pipeline.core.upkeep.keepers import is_of_upkeep

AMORO_KEY = "watermark.table"
"""Amoro's property of a table: milliseconds since 1970. It is the greatest of all its writers, and no rollback takes it back."""

REPORTED = "reported"
"""The key of what a writer reported of a snapshot over HTTP, because it can write nothing into the summary. It counts beside the usual
keys, and a named writer may have it as its own."""

SINK = "sink "
"""So begins the name of a writer that is one of our sinks, before the sink's own name."""

_OF_SINKS = "compaction.sink.*.watermark"
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_EARLY = datetime(1980, 1, 1, tzinfo=timezone.utc)
_LONG_MOST = 2**63 - 1
_JOB_KEY = "flink.job-id"
_WHOLE = re.compile(r"[+-]?[0-9]{1,20}")
_ISO = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d)(:\d\d)?(?:\.(\d{1,9}))?(Z|[+-]\d\d:\d\d(?::\d\d)?)")
"""A time as `OffsetDateTime.toString` of Java writes it: it leaves out seconds that are zero, and has up to nine digits of a second."""


@dataclass(frozen=True, slots=True)
class WatermarkRule:
    """Under which keys a table's watermark is looked for. `writers` maps names of writers to the key of each; where there are none, `keys`
    count."""

    keys: tuple[str, ...] = WATERMARK_KEYS
    writers: Mapping[str, str] = field(default_factory=dict)

    @property
    def all_keys(self) -> frozenset[str]:
        """Every key that may hold a watermark by this rule, with and without its writers."""
        return frozenset((*self.keys, *self.writers.values()))


@dataclass(frozen=True, slots=True)
class Said:
    """What the newest snapshot that says something under `key` says there. `value` is the text as its writer wrote it."""

    key: str
    value: str
    snapshot_id: int
    made_at: datetime


@dataclass(frozen=True, slots=True)
class Watermark:
    """The data of a table is complete before `at` (UTC). `snapshot_id` is None when a property of the table says so."""

    at: datetime
    key: str
    snapshot_id: int | None


@dataclass(frozen=True, slots=True)
class WatermarkStore:
    """What the watermark of a table is read from, in one of its stores: a plain table has one, a keyed table two.

    `remembered` maps ids of snapshots of main to what `said` told when that snapshot was the head, and to what was reported of it.
    """

    history: History
    properties: Mapping[str, str]
    remembered: Mapping[int, Sequence[Said]] = field(default_factory=dict)


def watermark_rule(properties: Mapping[str, str]) -> WatermarkRule:
    """The rule of a table with these properties in force. Raises ConfigError for a value that breaks its rule."""
    keys, writers = properties.get(WATERMARK_KEYS_KEY), properties.get(WATERMARK_WRITERS_KEY)
    try:
        read = WATERMARK_KEYS if keys is None else watermark_keys(keys)
    except ValueError:
        raise _broken(WATERMARK_KEYS_KEY, keys, WATERMARK_KEYS_RULE) from None
    try:
        return WatermarkRule(read, {} if writers is None else watermark_writers(writers))
    except ValueError:
        raise _broken(WATERMARK_WRITERS_KEY, writers, WATERMARK_WRITERS_RULE) from None


def rule_to_copy_by(properties: Mapping[str, str]) -> WatermarkRule:
    """The rule by which commits copy. A bad value stops no commit: the default keys count then, and whoever reads the watermark is told."""
    try:
        return watermark_rule(properties)
    except ConfigError:
        return WatermarkRule()


def watermark_of_stores(stores: Sequence[WatermarkStore], rule: WatermarkRule) -> Watermark | None:
    """The watermark of a table with these stores: the greater of what both say, as Amoro reads it, but at most what our own sinks say.
    None when nobody says one.

    Our sinks leave marks in properties, which no rollback takes back. So marks only make a watermark lower, and they say none as long as
    one of the sinks has promised nothing. Raises ConfigError for a value that cannot be read.
    """
    of_stores = [_by_key(said(store.history, rule, store.remembered)) for store in stores]
    if rule.writers:
        of_writers = list(_of_writers(of_stores, rule).values())
        found = None if None in of_writers else _least(of_writers)
    else:
        of_keys = (
            _least(_read(each) for each in found.values()) if found else _of_property(store)
            for found, store in zip(of_stores, stores, strict=True)
        )
        found = _greatest(of_keys)
    marks = marks_of_stores(*(store.properties for store in stores))
    if not sinks(marks):
        return found
    lowest = watermark_ms(marks)
    if found is None or lowest is None:
        return None
    return _least((found, Watermark(_at(lowest, _OF_SINKS, None), _OF_SINKS, None)))


def watermarks_of_writers(stores: Sequence[WatermarkStore], rule: WatermarkRule) -> Mapping[str, Watermark | None]:
    """The watermark of each named writer of a table; that of all together, under "", where none is named. And that of each of our sinks.

    Raises ConfigError for a value that cannot be read.
    """
    if rule.writers:
        found = dict(_of_writers([_by_key(said(store.history, rule, store.remembered)) for store in stores], rule))
    else:
        found = {"": watermark_of_stores(stores, rule)}
    marks = marks_of_stores(*(store.properties for store in stores))
    for sink, milliseconds in watermarks_of_sinks(marks).items():
        found[f"{SINK}{sink}"] = None if milliseconds is None else Watermark(_at(milliseconds, _OF_SINKS, None), _OF_SINKS, None)
    return found


def said(history: History, rule: WatermarkRule, remembered: Mapping[int, Sequence[Said]] | None = None) -> tuple[Said, ...]:
    """What a reader at the head of main finds, by the rule: all that the newest snapshot with a key says, or that of each writer by itself.

    A walk that ends where snapshots have expired goes on with what is remembered of the newest snapshot that it passed, or of the first one
    that is gone. This is what to remember for the head, too: then it is not lost when the snapshots expire.
    """
    head = history.refs.get(MAIN)
    groups = [(key,) for key in rule.writers.values()] if rule.writers else [(*rule.keys, REPORTED)]
    return () if head is None else _said_at(history, head.snapshot_id, groups, remembered or {})


def carried(history: History, parent_id: int | None, rule: WatermarkRule) -> dict[str, str]:
    """What a snapshot of ours must say, so that a reader of it finds what a reader of its parent finds: keys and texts.

    It is what counts with the writers of the rule, and what counts without them, because a person may change that. A key that the newest
    snapshot outdoes under another one does not count, so it is not copied: beside the newer key it would count again. Long.MAX means the
    time of its own snapshot, and becomes that number here.
    """
    if parent_id is None:
        return {}
    found = _said_at(history, parent_id, [rule.keys, *((key,) for key in rule.writers.values())], {})
    return {each.key: str((each.made_at - _EPOCH) // timedelta(milliseconds=1)) if _is_end(each.value) else each.value for each in found}


def alternating_jobs(history: History, rule: WatermarkRule) -> str | None:
    """A warning when several jobs of Flink say watermarks in turn, because the newest one then says it for all; None when none do.

    Each job that is the only one for a time is no such case: a job that is started anew has another id.
    """
    head = history.refs.get(MAIN)
    if head is None or rule.writers:
        return None
    jobs: list[str] = []
    for snapshot in history.ancestry(head.snapshot_id):
        job = snapshot.summary.get(_JOB_KEY)
        if job is not None and any(says_watermark(snapshot.summary, key) for key in rule.keys) and jobs[-1:] != [job]:
            if job in jobs:
                return (
                    f"the jobs of Flink {jobs[-1]} and {job} say watermarks in turn, and the newest one counts for both: give each a key "
                    f"of its own, and name them in '{WATERMARK_WRITERS_KEY}'"
                )
            jobs.append(job)
    return None


def too_early(found: Watermark | None) -> str | None:
    """A warning when a watermark is before 1980, because seconds since 1970 read as milliseconds are; None for any other."""
    if found is None or found.at >= _EARLY:
        return None
    return f"a watermark before 1980 is likely one in seconds: let the writer of {found.key!r} give milliseconds since 1970"


def _said_at(
    history: History, snapshot_id: int, groups: Sequence[tuple[str, ...]], remembered: Mapping[int, Sequence[Said]]
) -> tuple[Said, ...]:
    walked = tuple(history.ancestry(snapshot_id))
    found = {each.key: each for group in groups for each in _of_group(walked, group, remembered)}
    return tuple(found.values())


def _of_group(walked: Sequence[Snapshot], group: tuple[str, ...], remembered: Mapping[int, Sequence[Said]]) -> Sequence[Said]:
    copies = [one for one in walked if is_of_upkeep(one)]
    below = _below(walked, group, remembered)
    reported = _reported(walked, remembered) if REPORTED in group else {}
    for one in (*(one for one in walked if not is_of_upkeep(one)), *copies):
        found = [Said(key, one.summary[key], one.snapshot_id, one.made_at) for key in group if says_watermark(one.summary, key)]
        if one.snapshot_id in reported:
            found.append(reported[one.snapshot_id])
        elif found and is_of_upkeep(one):
            # Who copied knew no report. One of a snapshot that has expired may have been lower than the copy.
            found += [each for each in below if each.key == REPORTED]
        if found:
            return found
    return below


def _below(walked: Sequence[Snapshot], group: tuple[str, ...], remembered: Mapping[int, Sequence[Said]]) -> Sequence[Said]:
    """What is remembered of the newest snapshot of a walk that ends where snapshots have expired, or of the first one that is gone."""
    last = walked[-1] if walked else None
    if last is None or last.parent_id is None or last.parent_id in {one.snapshot_id for one in walked}:
        return ()
    # Main was at these snapshots once, and is a descendant of them now. Nothing newer said anything.
    for snapshot_id in (*(one.snapshot_id for one in walked), last.parent_id):
        known = [each for each in remembered.get(snapshot_id, ()) if each.key in group]
        if known:
            return known
    return ()


def _reported(walked: Sequence[Snapshot], remembered: Mapping[int, Sequence[Said]]) -> Mapping[int, Said]:
    """What was reported, by the snapshots of which it was. Only some heads are remembered, and each newer one has the report that counts
    there, so of heads that speak of one snapshot the newest is believed after the snapshot itself."""
    heads = [one.snapshot_id for one in walked if one.snapshot_id in remembered]
    spoken = [(head, each) for head in (*heads, *remembered) for each in remembered[head] if each.key == REPORTED]
    found = {head: each for head, each in spoken if each.snapshot_id == head}
    for _, each in spoken:
        found.setdefault(each.snapshot_id, each)
    return found


def _of_writers(of_stores: Sequence[Mapping[str, Said]], rule: WatermarkRule) -> Mapping[str, Watermark | None]:
    return {name: _greatest(_read(found[key]) for found in of_stores if key in found) for name, key in rule.writers.items()}


def _by_key(found: Iterable[Said]) -> Mapping[str, Said]:
    return {each.key: each for each in found}


def _is_end(value: str) -> bool:
    return value.strip() == str(_LONG_MOST)


def _is_whole(value: str) -> bool:
    return _WHOLE.fullmatch(value.strip()) is not None


def _read(one: Said) -> Watermark:
    if _is_end(one.value):
        return Watermark(one.made_at, one.key, one.snapshot_id)
    at = _at(int(one.value), one.key, one.snapshot_id) if _is_whole(one.value) else _of_text(one)
    return Watermark(at, one.key, one.snapshot_id)


def _of_text(one: Said) -> datetime:
    match = _ISO.fullmatch(one.value.strip())
    if match is None:
        raise _unreadable(one.key, one.value, one.snapshot_id)
    minute, second, fraction, offset = match.groups()
    # Python 3.10 reads three or six digits only, and no Z. Digits below a microsecond are cut off, which makes a watermark lower.
    text = f"{minute}{second or ':00'}.{(fraction or '')[:6]:0<6}{'+00:00' if offset == 'Z' else offset}"
    try:
        return datetime.fromisoformat(text).astimezone(timezone.utc)
    except (ValueError, OverflowError):
        raise _unreadable(one.key, one.value, one.snapshot_id) from None


def _of_property(store: WatermarkStore) -> Watermark | None:
    # The end of a bounded load has no time here: no snapshot tells when it was set.
    if not says_watermark(store.properties, AMORO_KEY) or _is_end(store.properties[AMORO_KEY]):
        return None
    value = store.properties[AMORO_KEY]
    if not _is_whole(value):
        raise _unreadable(AMORO_KEY, value, None)
    return Watermark(_at(int(value), AMORO_KEY, None), AMORO_KEY, None)


def _at(milliseconds: int, key: str, snapshot_id: int | None) -> datetime:
    try:
        return _EPOCH + timedelta(milliseconds=milliseconds)
    except OverflowError:
        raise _unreadable(key, str(milliseconds), snapshot_id) from None


def _least(found: Iterable[Watermark | None]) -> Watermark | None:
    return min(_known(found), key=lambda each: each.at, default=None)


def _greatest(found: Iterable[Watermark | None]) -> Watermark | None:
    return max(_known(found), key=lambda each: each.at, default=None)


def _known(found: Iterable[Watermark | None]) -> Iterator[Watermark]:
    return (each for each in found if each is not None)


def _unreadable(key: str, value: str, snapshot_id: int | None) -> ConfigError:
    where = "the table's properties" if snapshot_id is None else f"the summary of snapshot {snapshot_id}"
    return ConfigError(
        f"'{key}' in {where} is {value!r} but must be milliseconds since 1970, or a time with an offset like 2026-01-01T00:00:00Z: let the "
        f"writer write such a value with its next commit, or name other keys in '{WATERMARK_KEYS_KEY}'"
    )


def _broken(key: str, value: str | None, rule: str) -> ConfigError:
    return ConfigError(f"'{key}' is {value!r} but must be {rule}: correct the property of the table or of its catalog")
