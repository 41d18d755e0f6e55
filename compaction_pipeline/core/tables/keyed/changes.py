"""The kinds of changes that a keyed table is written with, and the marks by which a batch lands once.

The marks of a sink are properties. They are set in the store that a batch is committed to, because one commit changes one store: a batch of
changes leaves its mark in the change store, and an insert-overwrite in the base store. The marks of both stores count together. Two drivers
that write a batch of one number at the same moment, one to each store, may both land it: so a sink should use one operation only.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from enum import Enum

from compaction_pipeline.core.errors import ConfigError

CHANGE_TYPE = "_change_type"
"""The column that says what each row is. Iceberg's changelog views call it so too."""
_SINK = re.compile(r"[A-Za-z0-9_-]{1,64}")
_MARK = re.compile(r"compaction\.sink\.([A-Za-z0-9_-]{1,64})\.(last-batch|watermark)")
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


class ChangeKind(str, Enum):
    """What a row of changes is. An update is two rows: the row before it, and the row after it."""

    INSERT = "INSERT"
    DELETE = "DELETE"
    UPDATE_BEFORE = "UPDATE_BEFORE"
    UPDATE_AFTER = "UPDATE_AFTER"


@dataclass(frozen=True, slots=True)
class Batch:
    """One batch of a sink: a writer whose batches have growing numbers. A batch that was written before is not written again.

    `watermark` promises that this sink writes no event before it after this batch; None promises nothing new.

    Raises ConfigError for a sink id that cannot be part of a property's name, for a number below 0, and for a watermark that has no time
    zone or lies before 1970.
    """

    sink_id: str
    number: int
    watermark: datetime | None = None

    def __post_init__(self) -> None:
        check_sink_id(self.sink_id)
        # People call this from notebooks, where nothing checks types.
        if not isinstance(self.number, int) or self.number < 0:
            raise ConfigError(f"the number of a batch of sink {self.sink_id!r} is {self.number!r} but must be a whole number, at least 0")
        if self.watermark is not None and not isinstance(self.watermark, datetime):
            raise ConfigError(f"watermark is {self.watermark!r} but must be a datetime with a time zone")
        if self.watermark is not None and (self.watermark.tzinfo is None or self.watermark < _EPOCH):
            raise ConfigError(f"watermark is {self.watermark.isoformat()} but must have a time zone and lie after 1970")

    @property
    def key(self) -> str:
        """The property that keeps the number of the sink's newest batch."""
        return _last_batch_key(self.sink_id)

    def has_landed(self, properties: Mapping[str, str]) -> bool:
        """Whether this batch, or a later one, is in a keyed table with these marks."""
        newest = _number(properties, self.key)
        return newest is not None and self.number <= newest

    def marks(self, properties: Mapping[str, str]) -> dict[str, str]:
        """The properties to set when this batch is committed to a keyed table with these marks. A watermark never goes back."""
        marks = {self.key: str(self.number)}
        if self.watermark is not None:
            key = _watermark_key(self.sink_id)
            marks[key] = str(max((self.watermark - _EPOCH) // timedelta(milliseconds=1), _number(properties, key) or 0))
        return marks


def check_sink_id(sink_id: str) -> None:
    """Raise ConfigError for a sink id that cannot be part of a property's name."""
    if not isinstance(sink_id, str) or not _SINK.fullmatch(sink_id):
        raise ConfigError(f"sink_id is {sink_id!r} but must be 1 to 64 letters, digits, '_' or '-'")


def marks_of_stores(*stores: Mapping[str, str]) -> dict[str, str]:
    """The marks of all sinks in stores with these properties. When several stores have a mark, the highest number counts.

    Raises ConfigError for a mark that is no number.
    """
    found: dict[str, int] = {}
    for properties in stores:
        for key in filter(_MARK.fullmatch, properties):
            found[key] = max(_number(properties, key) or 0, found.get(key, 0))
    return {key: str(number) for key, number in found.items()}


def sinks(properties: Mapping[str, str]) -> Sequence[str]:
    """The sinks that have marks in a keyed table with these marks, sorted."""
    return sorted({match[1] for key in properties if (match := _MARK.fullmatch(key)) is not None})


def marks_of(sink_id: str) -> Sequence[str]:
    """The properties that keep the marks of a sink."""
    return (_last_batch_key(sink_id), _watermark_key(sink_id))


def watermarks_of_sinks(properties: Mapping[str, str]) -> Mapping[str, int | None]:
    """What each sink of a keyed table with these marks has promised, in milliseconds since 1970; None when it has promised nothing yet."""
    return {sink: _number(properties, _watermark_key(sink)) for sink in sinks(properties)}


def watermark_ms(properties: Mapping[str, str]) -> int | None:
    """The watermark of a keyed table with these marks, in milliseconds since 1970: the lowest one of its sinks.

    It is None when there is no sink, or when one of them has promised nothing yet.
    """
    of_sinks = watermarks_of_sinks(properties).values()
    known = [each for each in of_sinks if each is not None]
    return min(known) if known and len(known) == len(of_sinks) else None


def watermark_of(properties: Mapping[str, str]) -> datetime | None:
    """What `watermark_ms` says, as a time in UTC."""
    milliseconds = watermark_ms(properties)
    return None if milliseconds is None else _EPOCH + timedelta(milliseconds=milliseconds)


def _last_batch_key(sink_id: str) -> str:
    return f"compaction.sink.{sink_id}.last-batch"


def _watermark_key(sink_id: str) -> str:
    return f"compaction.sink.{sink_id}.watermark"


def _number(properties: Mapping[str, str], key: str) -> int | None:
    text = properties.get(key)
    try:
        return None if text is None else int(text)
    except ValueError as error:
        kind = "the sink's last batch" if key.endswith("last-batch") else "the sink's watermark in milliseconds"
        raise ConfigError(f"'{key}' of the keyed table is {text!r} but must be a whole number: set it to {kind}") from error
