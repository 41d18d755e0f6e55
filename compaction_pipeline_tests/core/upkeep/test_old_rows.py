"""Which files hold only old rows: laws against the rows themselves, and examples."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.conversions import to_bytes
from pyiceberg.transforms import DayTransform, HourTransform, IdentityTransform, MonthTransform, Transform, YearTransform
from pyiceberg.types import DateType, LongType, PrimitiveType, StringType, TimestampType, TimestamptzType

from compaction_pipeline.core.errors import ConfigError
from compaction_pipeline.core.tables.columns import Column
from compaction_pipeline.core.tables.data_file import FileContent, LiveFile
from compaction_pipeline.core.tables.node import PartitionValue
from compaction_pipeline.core.upkeep.history import MAIN, History, Ref, Snapshot
from compaction_pipeline.core.upkeep.old_rows import Age, DatedFile, OldRowsPlan, RowRules, age_of, decide_old_rows, resolve_row_rules
from compaction_pipeline.core.upkeep.old_values import OldValues, old_values
from compaction_pipeline.merging.single_values import single_value

EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
CUTOFF = datetime(2024, 3, 15, 12, 30, 30, 500_000, tzinfo=timezone.utc)
MICRO = timedelta(microseconds=1)
FIRST = datetime(1980, 1, 1, tzinfo=timezone.utc)
NO_TIMES = [
    "",
    "-",
    "N/A",
    "null",
    "0000-00-00",
    "２０２３",
    "unknown",
    "03/31/2024",
    "1711882800000",
    "12345",
    "2024",
    "2024-03-1",
    "1999-12-31 x",
]


@dataclass(frozen=True)
class Kind:
    """A way to write times into a column. `unit` is the length of what a value stands for."""

    column: Column
    type: PrimitiveType
    unit: timedelta
    transforms: tuple[Transform[Any, Any], ...] = (IdentityTransform(),)
    pattern: str = "yyyy-MM-dd"
    strftime: str = ""
    number_format: str = "TIMESTAMP_MS"

    def value(self, at: datetime) -> Any:
        """The value that a writer gives a row of this moment, as Iceberg's partition records hold it."""
        if self.strftime:
            return at.strftime(self.strftime)
        return (at - EPOCH) // self.unit

    def is_old(self, value: Any, cutoff: datetime) -> bool:
        """Whether everything that the value may stand for lies before the cutoff."""
        if value is None or value in NO_TIMES:
            return False
        if self.strftime:
            start = datetime.strptime(value, self.strftime).replace(tzinfo=timezone.utc)
            return start >= FIRST and start + self.unit <= cutoff
        start = EPOCH + value * self.unit
        is_time = not isinstance(self.type, LongType) or start >= FIRST
        return is_time and (start + self.unit <= cutoff if isinstance(self.type, DateType) else start < cutoff)

    def old(self, cutoff: datetime) -> OldValues:
        return old_values(self.column, cutoff, self.pattern, self.number_format)


TRANSFORMS: tuple[Transform[Any, Any], ...] = (IdentityTransform(), YearTransform(), MonthTransform(), DayTransform())
KINDS = {
    "timestamp": Kind(Column(7, "timestamp"), TimestampType(), MICRO, (*TRANSFORMS, HourTransform())),
    "timestamptz": Kind(Column(7, "timestamptz"), TimestamptzType(), MICRO, (*TRANSFORMS, HourTransform())),
    "date": Kind(Column(7, "date"), DateType(), timedelta(days=1), TRANSFORMS),
    "ms": Kind(Column(7, "long"), LongType(), timedelta(milliseconds=1)),
    "s": Kind(Column(7, "long"), LongType(), timedelta(seconds=1), number_format="TIMESTAMP_S"),
    "day": Kind(Column(7, "string"), StringType(), timedelta(days=1), strftime="%Y-%m-%d"),
    "hour": Kind(Column(7, "string"), StringType(), timedelta(hours=1), pattern="yyyyMMdd'T'HH", strftime="%Y%m%dT%H"),
    "second": Kind(Column(7, "string"), StringType(), timedelta(seconds=1), pattern="uuuu-MM-dd HH:mm:ss", strftime="%Y-%m-%d %H:%M:%S"),
}
kinds = st.sampled_from(sorted(KINDS))
moments = st.one_of(
    st.datetimes(datetime(1960, 1, 1), datetime(2050, 1, 1)).map(lambda at: at.replace(tzinfo=timezone.utc)),
    st.integers(-3 * 86_400_000_000, 3 * 86_400_000_000).map(lambda micros: CUTOFF + micros * MICRO),
    st.integers(-3, 3).map(lambda micros: CUTOFF + micros * MICRO),
)


@st.composite
def rows_of(draw: st.DrawFn, kind: Kind) -> list[Any]:
    odd: list[Any] = [None, *(NO_TIMES if kind.strftime else []), *([0, -1, 1_700_000_000] if kind.type == LongType() else [])]
    odd = [one for one in odd if one != 1_700_000_000 or kind.number_format == "TIMESTAMP_MS"]
    values = st.one_of(moments.map(kind.value), moments.map(kind.value), st.sampled_from(odd))
    return draw(st.lists(values, min_size=1, max_size=6))


def _cut(draw: st.DrawFn, lower: bytes, upper: bytes) -> tuple[bytes, bytes]:
    """Bounds of texts as writers cut them: the lower one is shortened, and the upper one shortened and then made larger."""
    length = draw(st.integers(1, 16))
    first, last = lower.decode(), upper.decode()
    if len(first) > length:
        first = first[:length]
    if len(last) > length:
        last = last[: length - 1] + chr(ord(last[length - 1]) + 1)
    return first.encode(), last.encode()


@st.composite
def dated_files(draw: st.DrawFn, kind: Kind, whole: bool = False) -> tuple[DatedFile, list[Any], dict[str, str]]:
    """A file with these rows, what a right manifest may say of it, and the transform of its partition. `whole`: it leaves nothing out."""
    rows = draw(rows_of(kind))
    transform = draw(st.sampled_from([None, *kind.transforms]))
    partition: tuple[PartitionValue, ...] = ()
    fields: dict[str, str] = {}
    if transform is not None:
        apply = transform.transform(kind.type)
        # All rows of a partition have one value, so the file keeps those that have the first row's.
        rows = [row for row in rows if apply(row) == apply(rows[0])]
        result = transform.result_type(kind.type)
        partition, fields = (PartitionValue("p", str(result), single_value(result, apply(rows[0]))),), {"p": str(transform)}
    known = [row for row in rows if row is not None]
    lower = upper = None
    if known:
        lower, upper = (to_bytes(kind.type, one) for one in (min(known), max(known)))
        if isinstance(kind.type, StringType):
            lower, upper = min(one.encode() for one in known), max(one.encode() for one in known)
            lower, upper = _cut(draw, lower, upper)
    told = st.just(True) if whole else st.booleans()
    nulls, values = len(rows) - len(known), len(rows)
    file = LiveFile(draw(st.uuids()).hex, FileContent.DATA, 0, partition, 10, len(rows), 1)
    dated = DatedFile(
        file,
        values if draw(told) else None,
        nulls if draw(told) else None,
        lower if draw(told) else None,
        upper if draw(told) else None,
    )
    return dated, rows, fields


@given(st.data(), kinds, st.booleans())
def test_a_file_that_goes_has_only_old_rows(data: st.DataObject, name: str, by_file: bool) -> None:
    kind = KINDS[name]
    cutoff = data.draw(moments)
    drawn = data.draw(st.lists(dated_files(kind), max_size=5))
    transforms = {0: drawn[0][2]} if drawn else {}
    drawn = [one for one in drawn if one[2] == transforms[0]]
    rows = {dated.file.path: found for dated, found, _ in drawn}
    plan = decide_old_rows([dated for dated, _, _ in drawn], kind.old(cutoff), transforms, cutoff=cutoff, by_file=by_file)
    for file in plan.removed:
        assert all(kind.is_old(row, cutoff) for row in rows[file.path]), rows[file.path]
    if not by_file:
        left = {file.partition for file in plan.removed}
        stay = [dated.file for dated, _, _ in drawn if dated.file not in plan.removed]
        assert all(file.partition not in left for file in stay), "a part of a partition went"


@given(st.data(), kinds)
def test_a_file_goes_when_each_row_is_old_and_its_entry_says_everything(data: st.DataObject, name: str) -> None:
    kind = KINDS[name]
    cutoff = data.draw(moments)
    dated, rows, fields = data.draw(dated_files(kind, whole=True))
    is_old = all(kind.is_old(row, cutoff) for row in rows)
    # A bound that was cut may lie in the time after the cutoff, or among texts that are no times.
    old = kind.old(cutoff)
    bounds = [old.bound(dated.lower, is_upper=False), old.bound(dated.upper, is_upper=True)]
    if is_old and all(bound is not None and bound < old.below for bound in bounds):  # type: ignore[operator]
        assert age_of(dated, kind.old(cutoff), {0: fields}) is Age.OLD


@given(st.data(), kinds, moments)
def test_a_value_is_old_when_everything_that_it_may_stand_for_lies_before_the_cutoff(
    data: st.DataObject, name: str, cutoff: datetime
) -> None:
    kind = KINDS[name]
    for value in data.draw(rows_of(kind)):
        bound = None if value is None else kind.old(cutoff).bound(to_bytes(kind.type, value), is_upper=False)
        # What means a time before 1980 is no time, also when it may be one.
        is_early = value is not None and not kind.strftime and EPOCH + value * kind.unit < FIRST
        assert kind.old(cutoff).has(bound) is (kind.is_old(value, cutoff) and not is_early)


@given(st.sampled_from(["timestamp", "timestamptz", "date"]), moments, moments, st.data())
def test_a_partition_is_old_when_it_ends_before_that_of_the_cutoff(name: str, at: datetime, cutoff: datetime, data: st.DataObject) -> None:
    kind = KINDS[name]
    transform = data.draw(st.sampled_from(kind.transforms[1:]))
    number, limit = (transform.transform(kind.type)(kind.value(one)) for one in (at, cutoff))
    result = transform.result_type(kind.type)
    told = kind.old(cutoff).of_partition(str(transform), PartitionValue("p", str(result), single_value(result, number)))
    assert told is (None if number == limit else number < limit)


@pytest.mark.parametrize("first", NO_TIMES)
def test_a_text_that_is_no_time_keeps_its_file(first: str) -> None:
    lower, upper = sorted((first.encode(), b"2020-01-01"))
    file = DatedFile(LiveFile("a", FileContent.DATA, 0, (), 10, 2, 1), 2, 0, lower, upper)
    assert age_of(file, KINDS["day"].old(CUTOFF), {}) is Age.UNTOLD
    identity = {0: {"text": "identity"}}
    part = DatedFile(LiveFile("a", FileContent.DATA, 0, (PartitionValue("text", "string", first),), 10, 2, 1))
    assert age_of(part, KINDS["day"].old(CUTOFF), identity) is Age.YOUNGER


@pytest.mark.parametrize(
    ("pattern", "text", "is_upper", "is_time"),
    [
        ("yyyy-MM-dd", "2020-01-31", False, True),
        ("yyyyMMdd", "2020-01-31", False, False),
        ("yyyyMMdd", "20200131", True, True),
        ("yyyy-MM-dd HH:mm:ss", "2020-01-31 10:59", False, True),
        ("yyyy-MM-dd HH:mm:ss", "2020-01-31 10:5:", True, True),
        ("yyyy-MM-dd HH:mm:ss", "2020-01-31 10:5:", False, False),
        ("yyyy-MM-dd HH:mm:ss", "2020-01-31", False, False),
        ("yyyy-MM-dd HH:mm:ss", "2020-01-31 10:59:00.5", False, False),
        ("yyyy-MM-dd'T'HH:mm:ss", "2020-01-31T10;5", True, False),
        ("yyyy-MM-dd", "1979-12-31", False, False),
    ],
)
def test_a_bound_of_texts_proves_something_only_in_the_form_of_the_pattern(pattern: str, text: str, is_upper: bool, is_time: bool) -> None:
    old = old_values(Column(1, "string"), CUTOFF, pattern, "")
    assert (old.bound(text.encode(), is_upper=is_upper) is not None) is is_time


@pytest.mark.parametrize("type_name", ["timestamp", "timestamptz"])
def test_milliseconds_that_a_writer_took_for_microseconds_prove_nothing(type_name: str) -> None:
    """Java's `add_files` writes such bounds for Parquet files with TIMESTAMP_MILLIS. The partition may tell how old the rows are."""
    millis = [struct.pack("<q", (datetime(2024, 3, day, tzinfo=timezone.utc) - EPOCH) // timedelta(milliseconds=1)) for day in (13, 14)]
    old = KINDS[type_name].old(CUTOFF)
    file = DatedFile(LiveFile("a", FileContent.DATA, 0, (), 10, 2, 1), 2, 0, *millis)
    assert age_of(file, old, {}) is Age.UNTOLD
    for day, age in (("2024-03-13", Age.OLD), ("2024-03-16", Age.YOUNGER)):
        dated_file = DatedFile(LiveFile("a", FileContent.DATA, 0, (PartitionValue("day", "date", day),), 10, 2, 1), 2, 0, *millis)
        assert age_of(dated_file, old, {0: {"day": "day"}}) is age


def dated(
    lower: int | None, upper: int | None, *, nulls: int | None = 0, rows: int = 3, day: str | None = None, path: str = "a", spec: int = 0
) -> DatedFile:
    """A file of a timestamp column. `lower` and `upper` are hours before the cutoff, negative ones after it; `day` is its partition."""
    told = [None if one is None else to_bytes(TimestampType(), (CUTOFF - timedelta(hours=one) - EPOCH) // MICRO) for one in (lower, upper)]
    partition = () if day is None else (PartitionValue("day", "date", None if day == "NULL" else day),)
    return DatedFile(LiveFile(path, FileContent.DATA, spec, partition, 10, rows, 1), rows, nulls, *told)


OLD = KINDS["timestamp"].old(CUTOFF)
BY_DAY = {0: {"day": "day"}}


@pytest.mark.parametrize(
    ("file", "age"),
    [
        (dated(9, 1), Age.OLD),
        (dated(9, 0), Age.YOUNGER),
        (dated(9, -1), Age.YOUNGER),
        (dated(9, 1, nulls=1), Age.NULLS),
        (dated(9, 1, nulls=None), Age.UNTOLD),
        (dated(None, 1), Age.UNTOLD),
        (dated(9, None), Age.UNTOLD),
        (dated(1, 9), Age.CONTRADICTION),
        (replace(dated(9, 1), values=2), Age.CONTRADICTION),
        (replace(dated(9, 1), upper=b"\0\0"), Age.UNTOLD),
    ],
)
def test_bounds_and_counts_tell_the_age(file: DatedFile, age: Age) -> None:
    assert age_of(file, OLD, {}) is age


@pytest.mark.parametrize(
    ("file", "age"),
    [
        (dated(None, None, nulls=None, day="2024-03-14"), Age.OLD),
        (dated(None, None, nulls=None, day="2024-03-15"), Age.UNTOLD),
        (dated(None, None, nulls=None, day="2024-03-16"), Age.YOUNGER),
        (dated(None, None, nulls=None, day="NULL"), Age.YOUNGER),
        (dated(40, 30, nulls=None, day="2024-03-14"), Age.OLD),
        (dated(9, 1, day="2024-03-15"), Age.OLD),
        (dated(40, -1, day="2024-03-14"), Age.CONTRADICTION),
        (dated(40, 30, nulls=1, day="2024-03-14"), Age.CONTRADICTION),
        (dated(40, 30, day="2024-03-16"), Age.CONTRADICTION),
    ],
)
def test_a_partition_tells_the_age_unless_the_bounds_contradict_it(file: DatedFile, age: Age) -> None:
    assert age_of(file, OLD, BY_DAY) is age


@pytest.mark.parametrize("transform", ["bucket[4]", "truncate[8]", "void", "unheard-of"])
def test_a_partition_of_which_the_order_is_unknown_tells_nothing(transform: str) -> None:
    assert age_of(dated(None, None, day="2020-01-01"), OLD, {0: {"day": transform}}) is Age.UNTOLD
    assert age_of(dated(9, 1, day="NULL"), OLD, {0: {"day": transform}}) is Age.OLD


def decided(*files: DatedFile, by_file: bool = False, beside: Sequence[DatedFile] = ()) -> OldRowsPlan:
    return decide_old_rows(files, OLD, BY_DAY, cutoff=CUTOFF, by_file=by_file, beside=beside)


def paths(plan: OldRowsPlan) -> list[str]:
    return [file.path for file in plan.removed]


def test_a_partition_goes_only_as_a_whole_and_single_files_at_the_level_of_files() -> None:
    files = [dated(9, 1, day="2024-03-15", path="a"), dated(9, -1, day="2024-03-15", path="b"), dated(50, 40, day="2024-03-13", path="c")]
    by_partition, by_file = decided(*files), decided(*files, by_file=True)
    assert paths(by_partition) == ["c"]
    assert by_partition.kept == {Age.OLD: 1, Age.YOUNGER: 1}
    assert paths(by_file) == ["a", "c"]
    assert [str(place) for place in by_file.places] == [
        "day=2024-03-13 (1 data file, 3 rows, 10 B)",
        "part of day=2024-03-15 (1 data file, 3 rows, 10 B)",
    ]
    assert by_file.figures == {"partitions": 2, "data_files": 2, "delete_files": 0, "rows": 6, "bytes": 20}
    assert by_file.reason == "only times before 2024-03-15 12:30:30 UTC are in 2 data files of 2 partitions: 6 rows, 20 B"


def test_partitions_of_two_specs_are_judged_apart() -> None:
    plan = decided(dated(50, 40, day="2024-03-13", path="a"), dated(50, -1, day="2024-03-13", path="b", spec=1))
    assert paths(plan) == ["a"]


def test_a_file_that_is_live_twice_stays_with_its_partition() -> None:
    plan = decided(*[dated(50, 40, day="2024-03-13", path="a")] * 2, dated(50, 40, day="2024-03-13", path="b"))
    assert not plan.is_due
    assert plan.reason == (
        "nothing has only times before 2024-03-15 12:30:30 UTC; these stay: 1 data file because each row is old, but another of the "
        "partition may not be; 2 data files because it is live more than once"
    )


def test_files_of_another_store_hold_back_their_partition_and_are_not_removed() -> None:
    base = [dated(50, 40, day="2024-03-13", path="a"), dated(80, 70, day="2024-03-12", path="b")]
    plan = decided(*base, beside=[dated(50, -1, day="2024-03-13", path="c"), dated(80, 70, day="2024-03-12", path="d")])
    assert paths(plan) == ["b"]
    assert plan.figures["rows"] == 6
    assert decided(beside=[dated(80, 70, day="2024-03-12")]).is_due


def test_a_bound_of_before_its_column_became_a_long_is_read() -> None:
    seconds = KINDS["s"].old(CUTOFF)
    assert seconds.bound((1_600_000_000).to_bytes(4, "little"), is_upper=False) == 1_600_000_000
    assert seconds.bound(b"\1\2\3", is_upper=False) is None


@pytest.mark.parametrize("edge", [-(2**63), 2**63 - 1])
def test_values_at_the_ends_of_their_type_are_judged(edge: int) -> None:
    for name in ("timestamp", "ms", "s"):
        assert not KINDS[name].old(CUTOFF).has(edge)
    assert KINDS["date"].old(CUTOFF).of_partition("year", PartitionValue("p", "int", edge >> 32)) is (edge < 0)


@pytest.mark.parametrize(
    "pattern", ["dd/MM/yyyy", "yyyy-dd", "yy-MM-dd", "yyyy-M-d", "yyyy-MM[-dd]", "MM", "", "yyyy-MM-dd HH:mm a", "yyyy-MMM"]
)
def test_a_pattern_whose_texts_do_not_sort_by_time_is_refused(pattern: str) -> None:
    with pytest.raises(ConfigError, match="a pattern whose texts sort by time"):
        resolve_row_rules({"data-expire.datetime-string-pattern": pattern}, {})


@pytest.mark.parametrize(
    ("pattern", "below", "least"),
    [
        ("yyyy-MM-dd", "2024-03-15", "1980-01-01"),
        ("uuuuMMddHHmmssSSS", "20240315123030500", "19800101000000000"),
        ("yyyy-MM-dd'T'HH:mm:ss.SSSSSSSSS'Z'", "2024-03-15T12:30:30.500000000Z", "1980-01-01T00:00:00.000000000Z"),
        ("'at ''o''' yyyy''", "at 'o' 2024'", "at 'o' 1980'"),
    ],
)
def test_the_texts_of_a_pattern_are_those_of_java(pattern: str, below: str, least: str) -> None:
    old = old_values(Column(1, "string"), CUTOFF, pattern, "")
    assert (old.below, old.least) == (below.encode(), least.encode())


NOW = datetime(2024, 5, 1, tzinfo=timezone.utc)


def history(*snapshots: tuple[int, dict[str, str]]) -> History:
    """Snapshots of main, oldest first: of each, how many days before NOW it was made, and its summary."""
    made = {
        number: Snapshot(number, number - 1 or None, NOW - timedelta(days=days), summary)
        for number, (days, summary) in enumerate(snapshots, 1)
    }
    return History(made, {MAIN: Ref(MAIN, len(made), is_branch=True)} if made else {})


APPEND = {"operation": "append"}
NO_WRITERS = [
    {"operation": "replace"},
    {"operation": "delete", "compaction-pipeline.record-id": "r"},
    {"operation": "delete", "snapshot.producer": "DATA_EXPIRATION"},
    {"operation": "overwrite", "snapshot.producer": "OPTIMIZE"},
]


@pytest.mark.parametrize("ours", NO_WRITERS)
def test_the_age_counts_from_the_newest_commit_of_a_writer(ours: dict[str, str]) -> None:
    rules = RowRules(field="at", retention=timedelta(days=10))
    assert rules.cutoff([history((9, APPEND), (4, APPEND), (1, ours))], NOW) == NOW - timedelta(days=14)
    assert rules.cutoff([history((9, APPEND)), history((4, APPEND), (1, ours))], NOW) == NOW - timedelta(days=14)
    assert rules.cutoff([history((1, ours)), history()], NOW) is None


def test_a_commit_at_a_time_to_come_does_not_count() -> None:
    rules = RowRules(retention=timedelta(days=10))
    assert rules.cutoff([history((9, APPEND), (-5, APPEND))], NOW) == NOW - timedelta(days=19)
    assert rules.cutoff([history((-5, APPEND))], NOW) is None


def test_the_age_counts_from_now_where_that_is_asked_for() -> None:
    rules = resolve_row_rules({"data-expire.base-on-rule": "current_time", "data-expire.retention-time": "2d"}, {})
    assert rules.cutoff([history((30, APPEND))], NOW) == NOW - timedelta(days=2)


@pytest.mark.parametrize(
    ("properties", "part"),
    [
        ({"data-expire.field": "at"}, "'data-expire.retention-time' is not set"),
        ({"data-expire.retention-time": "9d"}, "'data-expire.field' is not set"),
        ({"data-expire.field": "at", "data-expire.retention-time": "9d", "gc.enabled": "false"}, "'gc.enabled' is false"),
    ],
)
def test_no_row_is_old_before_the_table_says_how(properties: dict[str, str], part: str) -> None:
    missing = resolve_row_rules(properties, {}).missing
    assert missing is not None
    assert missing.startswith(part)


def test_amoros_values_are_read_in_any_case_and_bad_ones_are_refused() -> None:
    rules = resolve_row_rules({"data-expire.level": "file"}, {"table.data-expire.field": "at"})
    assert (rules.level, rules.field) == ("FILE", "at")
    for key, value in [("level", "row"), ("retention-time", "0d"), ("retention-time", "soon"), ("datetime-number-format", "NANOS")]:
        with pytest.raises(ConfigError, match=f"data-expire.{key}"):
            resolve_row_rules({f"data-expire.{key}": value}, {})


@pytest.mark.parametrize("text", ["90", "0", "-1d", "90 weeks"])
def test_a_retention_of_rows_needs_a_unit(text: str) -> None:
    with pytest.raises(ConfigError, match=r"'data-expire.retention-time' is .* but must be a whole number with one of the units"):
        resolve_row_rules({"data-expire.retention-time": text}, {})
