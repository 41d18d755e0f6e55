"""Decides which files hold only old rows, and so leave a table (Amoro: `data-expire.*`).

A file goes only when its metadata proves that each of its rows is old. Bounds of columns may be wider than the values, never narrower, so
they prove it; so do partition values. Where both speak and contradict each other, one of them is wrong, and the file stays. The laws are in
`core/upkeep/CONTRACT.md`.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import Enum

from compaction_pipeline.core.tables.data_file import LiveFile
from compaction_pipeline.core.tables.expiry_properties import BY_COMMIT, BY_PARTITION, FIELD_KEY, GC_ENABLED, RETENTION_KEY, ROWS_PROPERTIES
from compaction_pipeline.core.tables.node import Place, TableNode
from compaction_pipeline.core.tables.properties import values_of
from compaction_pipeline.core.tables.table import TableIdentifier
from compaction_pipeline.core.upkeep.history import MAIN, History
from compaction_pipeline.core.upkeep.keepers import is_of_upkeep
from compaction_pipeline.core.upkeep.old_values import OldValues
from compaction_pipeline.core.words import bytes_text, count_text, time_text


@dataclass(frozen=True, slots=True)
class RowRules:
    """What the properties of a table ask for. Without `field` or `retention` no row is ever old."""

    field: str | None = None
    retention: timedelta | None = None
    level: str = BY_PARTITION
    base_on: str = BY_COMMIT
    string_pattern: str = "yyyy-MM-dd"
    number_format: str = "TIMESTAMP_MS"
    gc_enabled: bool = True

    @property
    def missing(self) -> str | None:
        """Why no row can be old, whatever the table holds; None when rows can be."""
        if not self.gc_enabled:
            return "'gc.enabled' is false: nothing of the table is to be removed"
        if self.field is None:
            return f"'{FIELD_KEY}' is not set: it names the column that has the time of a row"
        return f"'{RETENTION_KEY}' is not set: it says how old rows may become, e.g. 90d" if self.retention is None else None

    def cutoff(self, histories: Iterable[History], now: datetime) -> datetime | None:
        """The time before which rows are old. `histories` are those of the table's stores. None when there is nothing to count from.

        The newest commit of a writer counts (Amoro: LAST_COMMIT_TIME), so a table that nobody writes keeps its rows, or the time now
        (CURRENT_TIME). A commit at a time to come is one of a fast clock, and does not count.
        """
        assert self.retention is not None, "`missing` tells when it is not set"
        base: datetime | None = now
        if self.base_on == BY_COMMIT:
            base = max((at for history in histories if (at := _last_commit(history, now)) is not None), default=None)
        return None if base is None else base - self.retention


def resolve_row_rules(table: Mapping[str, str], catalog: Mapping[str, str], of: TableIdentifier | None = None) -> RowRules:
    """Return the rules in force. `table` are the table's properties, `catalog` the catalog's, `of` the table for messages.

    Raises ConfigError for the first property that breaks its rule.
    """
    values, _ = values_of((*ROWS_PROPERTIES, GC_ENABLED), table, catalog, of)
    return RowRules(**values)


def _last_commit(history: History, now: datetime) -> datetime | None:
    main = history.refs.get(MAIN)
    ancestry = history.ancestry(main.snapshot_id) if main is not None else ()
    return next((one.made_at for one in ancestry if not is_of_upkeep(one) and one.made_at <= now), None)


@dataclass(frozen=True, slots=True)
class DatedFile:
    """A data file, and what its manifest entry says of the column with the times: how many values and NULLs there are, and the bounds.

    What the entry does not say is None.
    """

    file: LiveFile
    values: int | None = None
    nulls: int | None = None
    lower: bytes | None = None
    upper: bytes | None = None


class Age(str, Enum):
    """What metadata proves about the rows of a file. The texts say why a file stays."""

    OLD = "each row is old, but another of the partition may not be"
    UNTOLD = "nothing tells how old the rows are"
    NULLS = "a row has no time"
    YOUNGER = "a row may be younger, or its time no time"
    CONTRADICTION = "the bounds and counts of the file, or its partition, contradict each other"
    TWICE = "it is live more than once"


Transforms = Mapping[int, Mapping[str, str]]
"""Of each partition spec, the names and the transforms of those fields that are made of the column with the times."""


def age_of(dated: DatedFile, old: OldValues, transforms: Transforms) -> Age:
    """Return what is proved about the rows of a file. OLD only when each row is old."""
    by_field = transforms.get(dated.file.spec_id, {})
    told = {old.of_partition(by_field[value.name], value) for value in dated.file.partition if value.name in by_field}
    bounds = _age_by_bounds(dated, old)
    if False in told:
        return {Age.OLD: Age.CONTRADICTION, Age.UNTOLD: Age.YOUNGER}.get(bounds, bounds)
    if True in told:
        # Rows without a time have a partition of their own, so the value of a partition proves that there are none here.
        return Age.OLD if bounds in (Age.OLD, Age.UNTOLD) else Age.CONTRADICTION
    return bounds


def _age_by_bounds(dated: DatedFile, old: OldValues) -> Age:
    lower, upper = old.bound(dated.lower, is_upper=False), old.bound(dated.upper, is_upper=True)
    if dated.nulls:
        return Age.NULLS
    if any(bound is not None and bound >= old.below for bound in (lower, upper)):  # type: ignore[operator]
        return Age.YOUNGER
    if lower is None or upper is None or dated.nulls is None:
        return Age.UNTOLD
    # A count of values that is not that of the rows speaks of another column, or of another file.
    is_sound = lower <= upper and dated.values in (None, dated.file.record_count)  # type: ignore[operator]
    return Age.OLD if is_sound else Age.CONTRADICTION


@dataclass(frozen=True, slots=True)
class OldPlace:
    """What of one partition goes: data files, their rows and their bytes. `is_whole` says whether all of it goes.

    Rows that delete files have deleted already are counted too.
    """

    place: Place
    is_whole: bool
    files: int
    rows: int
    bytes: int

    def __str__(self) -> str:
        size = f"{count_text(self.files, 'data file')}, {count_text(self.rows, 'row')}, {bytes_text(self.bytes)}"
        return f"{'' if self.is_whole else 'part of '}{TableNode(*self.place)} ({size})"


@dataclass(frozen=True, slots=True)
class OldRowsPlan:
    """What leaves a table now. `removed` are data files, and the delete files that nothing needs then. `kept` counts the data files that
    stay, by what is proved about them. Rows before `cutoff` are old; it is None when nothing says so."""

    cutoff: datetime | None
    places: tuple[OldPlace, ...] = ()
    removed: tuple[LiveFile, ...] = ()
    kept: Mapping[Age, int] | None = None
    reason: str = ""

    @property
    def is_due(self) -> bool:
        """Whether anything goes."""
        return bool(self.places)

    @property
    def figures(self) -> Mapping[str, int]:
        """How much goes."""
        return {
            "partitions": len(self.places),
            "data_files": sum(place.files for place in self.places),
            "delete_files": sum(not file.is_data for file in self.removed),
            "rows": sum(place.rows for place in self.places),
            "bytes": sum(place.bytes for place in self.places),
        }

    def with_deletes(self, deletes: Iterable[LiveFile]) -> OldRowsPlan:
        """The same, and these delete files go too."""
        return replace(self, removed=(*self.removed, *deletes))


def decide_old_rows(
    files: Sequence[DatedFile],
    old: OldValues,
    transforms: Transforms,
    *,
    cutoff: datetime,
    by_file: bool = False,
    beside: Sequence[DatedFile] = (),
) -> OldRowsPlan:
    """Return which of these data files go. They are all live data files of the table.

    Whole partitions go, or with `by_file` also single files. `beside` are files of another store whose rows a reader sees in the same
    partitions: a partition is whole only with them, and they are counted, but they are not among `removed`.
    """
    copies = Counter(dated.file.path for dated in files)
    by_place: dict[Place, list[tuple[DatedFile, Age]]] = defaultdict(list)
    for dated in (*files, *beside):
        # One entry of a file cannot be removed without the other.
        age = Age.TWICE if copies[dated.file.path] > 1 else age_of(dated, old, transforms)
        by_place[dated.file.spec_id, dated.file.partition].append((dated, age))
    own = {id(dated) for dated in files}
    places: list[OldPlace] = []
    removed: list[LiveFile] = []
    kept: Counter[Age] = Counter()
    for place, found in by_place.items():
        going = [dated for dated, age in found if age is Age.OLD]
        is_whole = len(going) == len(found)
        if not going or not (is_whole or by_file):
            kept.update(age for _, age in found)
            continue
        kept.update(age for _, age in found if age is not Age.OLD)
        gone = [dated.file for dated in going]
        removed += [dated.file for dated in going if id(dated) in own]
        size = sum(file.file_size_bytes for file in gone)
        places.append(OldPlace(place, is_whole, len(gone), sum(file.record_count for file in gone), size))
    places.sort(key=lambda one: (one.place[0], str(one)))
    plan = OldRowsPlan(cutoff, tuple(places), tuple(removed), kept)
    return replace(plan, reason=_reason(plan))


def _reason(plan: OldRowsPlan) -> str:
    before = f"before {time_text(plan.cutoff)} UTC"
    if plan.is_due:
        figures = plan.figures
        files, places, rows = (count_text(figures[key], key[:-1].replace("_", " ")) for key in ("data_files", "partitions", "rows"))
        return f"only times {before} are in {files} of {places}: {rows}, {bytes_text(figures['bytes'])}"
    if not plan.kept:
        return "the table has no data file"
    stays = "; ".join(f"{count_text(count, 'data file')} because {age.value}" for age, count in sorted(plan.kept.items()))
    return f"nothing has only times {before}; these stay: {stays}"
