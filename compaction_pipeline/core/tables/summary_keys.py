"""Says which keys of a snapshot's summary have an owner, so that nobody else writes them: a person, or a copy of a watermark."""

from __future__ import annotations

from collections.abc import Mapping

_COUNTED = "Iceberg counts this and writes it itself"
_STAGED = "Iceberg uses this key to mark snapshots that are staged or made from others"
_PROGRESS = "a streaming writer reads its own progress from it, and would skip data or write data twice"

OF_OTHERS: Mapping[str, str] = {
    "added-": _COUNTED,
    "deleted-": _COUNTED,
    "removed-": _COUNTED,
    "total-": _COUNTED,
    "changed-partition-count": _COUNTED,
    "partitions.": _COUNTED,
    "partition-summaries-included": _COUNTED,
    "manifests-": _COUNTED,
    "entries-processed": _COUNTED,
    "operation": _COUNTED,
    "replace-partitions": _COUNTED,
    "wap.": _STAGED,
    "published-wap-id": _STAGED,
    "source-snapshot-id": _STAGED,
    "flink.job-id": _PROGRESS,
    "flink.operator-id": _PROGRESS,
    "flink.max-committed-checkpoint-id": _PROGRESS,
    "kafka.connect.offsets.": _PROGRESS,
    "kafka.connect.commit-id": _PROGRESS,
    "kafka.connect.task-id": _PROGRESS,
    "spark.sql.streaming.": _PROGRESS,
    "compaction-pipeline.": "this program finds its own snapshots by it",
}
"""Maps the beginning of a key to the reason why only its owner may write the key. None of these keys may hold a watermark: a compaction
copies watermarks, and whoever reads one of these keys from the copy would count wrongly, skip data or write data twice."""


def owner_of(key: str, owners: Mapping[str, str]) -> tuple[str, str] | None:
    """The beginning of this key that has an owner, and the reason why only the owner may write it; None when there is none.

    A beginning that ends in `-` or `.` stands for all keys that begin so, and any other one for itself.
    """
    return next(((one, why) for one, why in owners.items() if (key.startswith(one) if one[-1] in "-." else key == one)), None)
