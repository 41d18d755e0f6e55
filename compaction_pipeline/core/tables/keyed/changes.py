"""The kinds of changes that a keyed table is written with, and the marks by which a batch lands once."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from compaction_pipeline.core.errors import ConfigError

CHANGE_TYPE = "_change_type"
"""The column that says what each row is. Iceberg's changelog views call it so too."""
_SINK = re.compile(r"[A-Za-z0-9_-]{1,64}")


class ChangeKind(str, Enum):
    """What a row of changes is. An update is two rows: the row before it, and the row after it."""

    INSERT = "INSERT"
    DELETE = "DELETE"
    UPDATE_BEFORE = "UPDATE_BEFORE"
    UPDATE_AFTER = "UPDATE_AFTER"


@dataclass(frozen=True, slots=True)
class Batch:
    """One batch of a sink: a writer whose batches have growing numbers. A batch that was written before is not written again.

    Raises ConfigError for a sink id that cannot be part of a property's name, and for a number below 0.
    """

    sink_id: str
    number: int

    def __post_init__(self) -> None:
        if not _SINK.fullmatch(self.sink_id):
            raise ConfigError(f"sink_id is {self.sink_id!r} but must be 1 to 64 letters, digits, '_' or '-'")
        if self.number < 0:
            raise ConfigError(f"the number of a batch of sink {self.sink_id!r} is {self.number} but must be at least 0")

    @property
    def key(self) -> str:
        """The property of the change store that keeps the number of the sink's newest batch."""
        return f"compaction.sink.{self.sink_id}.last-batch"

    def has_landed(self, properties: Mapping[str, str]) -> bool:
        """Whether this batch, or a later one, is in a change store with these properties."""
        newest = properties.get(self.key)
        try:
            return newest is not None and self.number <= int(newest)
        except ValueError as error:
            raise ConfigError(
                f"'{self.key}' of the change store is {newest!r} but must be a whole number: set it to the last batch"
            ) from error
