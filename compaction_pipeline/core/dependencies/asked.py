"""Decides what a question about a table means: which partitions, of which specs, and up to which time their data must be there.

A partition is named as in the paths of its files (`day=2026-01-01`, `day=2026-01-01/region=eu`); fields that are not named may have any
value. A window names every partition that overlaps it, of every spec.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from urllib.parse import unquote

from compaction_pipeline.core.dependencies.ready_time import ReadyTime, SpecField, TimeField, Window, instant_of, ready_time, time_fields
from compaction_pipeline.core.errors import ConfigError
from compaction_pipeline.core.tables.node import Partition, PartitionValue

_VOID = "void"
_IGNORED = ("bucket", "truncate", _VOID)
MOST_BYTES = 1_000
"""A partition's name has at most so many bytes, so that the state database can find it."""


@dataclass(frozen=True, slots=True)
class Asked:
    """What a question means. `what` names it in one way, however it was written.

    `window` is the time that is asked for, and `until` the end of the last partition that overlaps it; None when a partition without a time
    is asked for. `values` has the other fields that are asked for, each with its value as paths have it.
    """

    what: str
    window: Window | None
    until: datetime | None
    values: frozenset[tuple[str, str]] = frozenset()

    def includes(self, values: Mapping[str, str]) -> bool:
        """Whether a partition with these values is asked for. It may hold rows of each value of a field that it lacks."""
        return all(values.get(name, value) == value for name, value in self.values)

    def is_filled_by(self, values: Mapping[str, str]) -> bool:
        """Whether the files of a partition with these values are of what is asked for, and not of something that may include it."""
        return all(values.get(name) == value for name, value in self.values)


@dataclass(frozen=True, slots=True)
class Placed:
    """A partition in the calendar of its table. `has_time` is False where its spec has no field with a time; it may hold rows of any time.

    `window` is None for such a one, and for a value that means no time. `values` lacks fields by bucket, truncate and void: a file of a
    void field may hold rows of each value, as one of a spec without the field.
    """

    path: str
    window: Window | None
    has_time: bool
    values: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Calendar:
    """The partition specs of a table, and which field of each tells the time. `refusal` says why none does; "" when one does."""

    specs: Mapping[int, Sequence[SpecField]]
    spec_id: int
    times: Mapping[int, TimeField]
    refusal: str = ""

    def partition(self, text: str) -> Asked:
        """What the name of a partition means. Raises ConfigError for a name that the table's partitions cannot have."""
        named = self._equalities(text)
        time, window = self._time(named)
        values = {name: value for name, value in named.items() if name != time and not self._is_ignored(name)}
        times = {time: named[time]} if time is not None else {}
        what = "/".join(f"{_quoted(name)}={_quoted(value)}" for name, value in (*times.items(), *sorted(values.items())))
        if not what:
            raise ConfigError(
                f"{text!r} names only fields by bucket or truncate, which say nothing about when a partition is ready; name "
                f"{self._fields_in_words(ignored=False)}"
            )
        if len(what.encode()) > MOST_BYTES:
            raise ConfigError(f"the name of the partition {what[:100]!r}… has more than {MOST_BYTES} bytes; name fewer of its fields")
        return Asked(what, window, window.end if window is not None else None, frozenset(values.items()))

    def of_files(self, spec_id: int, partition: Partition) -> Asked:
        """What the partition of a file means. Raises ConfigError as `partition`, so also for a value that means no time."""
        fields = {field.name: field for field in self.specs.get(spec_id, ())}
        return self.partition("/".join(f"{_quoted(one.name)}={_quoted(path_text(fields.get(one.name), one))}" for one in partition))

    def called_ready(self, text: str) -> Asked:
        """What a name that somebody calls ready means. Raises ConfigError as `partition`, and for a part of a partition."""
        part = next((name for name in self._equalities(text) if self._is_ignored(name) and not self._is(name, _VOID)), None)
        if part is not None:
            raise ConfigError(
                f"{text!r} names {part!r}, a field by bucket or truncate, which is only a part of what would be called ready; call it "
                f"ready when all of it is there, and name {self._fields_in_words(ignored=False)}"
            )
        return self.partition(text)

    def window(self, start: datetime, end: datetime) -> Asked:
        """What a window means. Raises ConfigError for one that is empty, has no zone, or has nothing to do with the table's partitions."""
        if start.tzinfo is None or end.tzinfo is None:
            raise ConfigError(f"the window {start.isoformat()}/{end.isoformat()} has no zone: write both times like 2026-01-01T00:00Z")
        window = Window(start.astimezone(timezone.utc), end.astimezone(timezone.utc))
        if window.is_empty:
            raise ConfigError(f"the window {window} is empty: its end must be after its start")
        if self.refusal:
            raise ConfigError(self.refusal)
        last = window.end - timedelta(microseconds=1)
        units = (time.of_moment(last) for time in self.times.values())
        return Asked(str(window), window, max([window.end, *(unit.end for unit in units if unit is not None)]))

    def asked_before(self, what: str) -> Asked:
        """What a question means that `Asked.what` names. Raises ConfigError as `partition` and `window`."""
        # Partitions have an equals sign, windows have none.
        if "=" in what:
            return self.partition(what)
        start, _, end = what.partition("/")
        return self.window(instant_of(start), instant_of(end))

    def placed(self, spec_id: int, partition: Partition) -> Placed:
        """Where a partition of a spec lies."""
        fields = {field.name: field for field in self.specs.get(spec_id, ())}
        values = {one.name: path_text(fields.get(one.name), one) for one in partition}
        time = self.times.get(spec_id)
        own = next((one for one in partition if time is not None and one.name == time.name), None)
        window = time.window(own.value) if time is not None and own is not None else None
        path = "/".join(f"{name}={value}" for name, value in values.items())
        told = {name: value for name, value in values.items() if name in fields and not fields[name].transform.startswith(_IGNORED)}
        return Placed(path, window, time is not None, told)

    def _equalities(self, text: str) -> Mapping[str, str]:
        if not any(self.specs.values()):
            raise ConfigError(self.refusal)
        named: dict[str, str] = {}
        for part in text.strip().strip("/").split("/"):
            name, equal, value = (unquote(each).strip() for each in part.partition("="))
            if not name or not equal or name in named:
                raise ConfigError(f"{text!r} is no partition: write it as in the paths of files, with {self._fields_in_words()}")
            if all(field.name != name for fields in self.specs.values() for field in fields):
                raise ConfigError(f"{text!r} names {name!r}, but the table has no such partition field; it has {self._fields_in_words()}")
            named[name] = value
        return named

    def _time(self, named: Mapping[str, str]) -> tuple[str | None, Window | None]:
        """The field that tells the time, and its window. Of specs in which it has other units, the newest that reads the value counts."""
        fields = [self.times[spec_id] for spec_id in self._newest_first() if spec_id in self.times]
        fields = [field for field in fields if field.name in named]
        for field in fields:
            # The paths of Java's writers have a plus for a space.
            for text in (named[field.name], named[field.name].replace("+", " ")):
                window = field.named(text)
                if window is not None:
                    return field.name, window
        if fields:
            name, form = fields[0].name, fields[0].format
            raise ConfigError(f"'{name}={named[name]}' means no time: write the value as {form}, or ask for a window of time")
        return None, None

    def _newest_first(self) -> Iterator[int]:
        yield self.spec_id
        yield from sorted((spec_id for spec_id in self.specs if spec_id != self.spec_id), reverse=True)

    def _is_ignored(self, name: str) -> bool:
        return self._is(name, _IGNORED)

    def _is(self, name: str, transforms: str | tuple[str, ...]) -> bool:
        """Whether the field of this name is by one of these transforms in every spec that has it."""
        return all(field.transform.startswith(transforms) for fields in self.specs.values() for field in fields if field.name == name)

    def _fields_in_words(self, *, ignored: bool = True) -> str:
        names = dict.fromkeys(field.name for spec_id in self._newest_first() for field in self.specs.get(spec_id, ()))
        known = [f"{name}=…" for name in names if ignored or not self._is_ignored(name)]
        return " and ".join(known) or "no partition field"


def calendar_of(specs: Mapping[int, Sequence[SpecField]], spec_id: int, properties: Mapping[str, str]) -> Calendar:
    """The calendar of a table with these specs and these properties in force. `spec_id` is the spec of new files.

    Raises ConfigError when a property breaks its rule, or says what does not fit the specs.
    """
    said: ReadyTime | None = ready_time(properties)
    if said is not None:
        return Calendar(specs, spec_id, time_fields(specs, said))
    try:
        return Calendar(specs, spec_id, time_fields(specs, None))
    except ConfigError as error:
        # A table may well have partitions without a time. Only who asks for a time is refused.
        return Calendar(specs, spec_id, {}, str(error))


def _quoted(text: str) -> str:
    """A name or a value so that `what` can be read again, because it is stored: of reports, and of what is awaited."""
    return text.replace("%", "%25").replace("/", "%2F").replace("=", "%3D")


def path_text(field: SpecField | None, value: PartitionValue) -> str:
    """A value of a partition as paths of files have it."""
    found = value.value
    if found is None:
        return "null"
    if isinstance(found, bool):
        return str(found).lower()
    if field is not None and isinstance(found, int) and field.transform in ("year", "month", "day", "hour"):
        return _unit_text(field.transform, found)
    return str(found)


def _unit_text(transform: str, number: int) -> str:
    if transform == "year":
        return f"{1970 + number:04d}"
    if transform == "month":
        return f"{1970 + number // 12:04d}-{number % 12 + 1:02d}"
    try:
        at = datetime(1970, 1, 1) + (timedelta(days=number) if transform == "day" else timedelta(hours=number))
    except OverflowError:
        return str(number)
    return at.strftime("%Y-%m-%d" if transform == "day" else "%Y-%m-%d-%H")
