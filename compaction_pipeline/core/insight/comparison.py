"""What came out when a table was compared with its newest record."""

from __future__ import annotations

from dataclasses import dataclass

from compaction_pipeline.core.ids import RecordId


@dataclass(frozen=True, slots=True)
class Comparison:
    """A comparison of a record with the metadata at a path. `contradiction` says what does not fit; None when everything fits.

    It holds for ever, because neither a closed record nor a metadata file changes.
    """

    record_id: RecordId
    metadata_location: str
    contradiction: str | None
