"""Scores the health of a node or a table from 0 to 100, and says what costs the most points and what raises the score.

The formula is that of Amoro 0.9 (`CommonPartitionEvaluator.getHealthScore`), with two corrections:

- Amoro averages over the files that it would rewrite. Here every data file counts, so large healthy files raise the average.
- Amoro counts a delete file once by its path, and each of its positions as a deleted row. Here positions are counted for each data file
  that they delete from, and they are at most its rows. Deletion vectors that share a Puffin file all count.

A global equality delete counts in a node with the node's share of the table's rows, and not with all its rows in every node.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from math import ceil

from compaction_pipeline.core.fragmentation.health import Health, HealthStatus
from compaction_pipeline.core.fragmentation.verdict import NodeVerdict, PlanReasonCode
from compaction_pipeline.core.tables.figures import NodeMetrics
from compaction_pipeline.core.tables.node import TableNode
from compaction_pipeline.core.tables.properties import TableProperties
from compaction_pipeline.core.words import bytes_text, count_text
from compaction_pipeline.core.work.kinds import CompactionType

SMALL_FILES, EQUALITY_DELETES, POSITION_DELETES = 40, 40, 20
"""The most points of each part."""


@dataclass(frozen=True, slots=True)
class ScoreParts:
    """The points of each part, whole numbers: small files 0–40, equality deletes 0–40, position deletes 0–20. `total` is their sum."""

    total: int
    small_files: int
    equality_deletes: int
    position_deletes: int

    @staticmethod
    def of(small_files: float, equality_deletes: float, position_deletes: float) -> ScoreParts:
        """The parts of these points, each rounded up as Amoro does. What is less than a millionth of a point is an error of arithmetic."""
        return _shared(ceil(round(small_files, 6)), ceil(round(equality_deletes, 6)), ceil(round(position_deletes, 6)))


@lru_cache(4096)
def _shared(small_files: int, equality_deletes: int, position_deletes: int) -> ScoreParts:
    """One object for all nodes with these points, because each tick scores every node."""
    return ScoreParts(small_files + equality_deletes + position_deletes, small_files, equality_deletes, position_deletes)


ALL_POINTS = ScoreParts.of(SMALL_FILES, EQUALITY_DELETES, POSITION_DELETES)


@dataclass(frozen=True, slots=True)
class HealthScore:
    """The score of a node or a table, and sentences: what costs the most points, what to do about it, and what each type would leave.

    `parts` is None when the score is not known; `reason` says why. `after` has the points that each type of compaction would leave, as
    `parts_after` estimates them; it is empty, and `outlook` too, when no point is lost.
    """

    parts: ScoreParts | None
    reason: str
    remedy: str
    after: Mapping[CompactionType, ScoreParts] = field(default_factory=dict)
    outlook: str = ""

    @property
    def total(self) -> int | None:
        """From 0 to 100, where 100 is healthy; None when it is not known."""
        return self.parts.total if self.parts is not None else None

    @property
    def text(self) -> str:
        """The score with its parts and its sentences in one line. The parts are left out when none costs a point."""
        return "; ".join([f"{_number(self.parts)}: {self.reason}", self.advice])

    @property
    def advice(self) -> str:
        """What to do, and what each type of compaction would leave."""
        return f"{self.remedy}; {self.outlook}" if self.outlook else self.remedy


@dataclass(frozen=True, slots=True)
class ScoredNode:
    """A node with its score. Its data files have `data_bytes` bytes together."""

    node: TableNode
    data_bytes: int
    score: HealthScore


UNREAD = HealthScore(None, "the table's files were not read yet", "`compaction-pipeline table list --refresh` reads them")
NO_FILES = HealthScore(ALL_POINTS, "the table has no files", "nothing to do")
_MEASURED_BY_OLDER = "an older version of this program measured the files, and did not count the rows of deletes by kind"
_AGAIN_WITH_FILES = "the score appears when the files change next"


def score_parts(metrics: NodeMetrics, properties: TableProperties) -> ScoreParts | None:
    """Return the points of a node; None when `metrics` come from an older version and lack the rows of deletes.

    The weight of each penalty grows with the number of data files up to the count that makes a MINOR due, and with their bytes up to the
    size at which a file is no longer undersized. A node of one data file loses no point, as in Amoro.
    """
    if not metrics.tells_deletes:
        return None
    files, least = metrics.data_files, properties.undersized_bytes
    if files <= 1:
        return ALL_POINTS
    weight = _share(files, properties.minor_file_count) * _share(metrics.data_bytes, least)
    ratio = properties.major_duplicate_ratio
    return ScoreParts.of(
        SMALL_FILES - SMALL_FILES * weight * (1 - _share(metrics.data_bytes / files, least)),
        EQUALITY_DELETES - EQUALITY_DELETES * weight * _share(_share_of_rows(metrics.equality_delete_rows, metrics), ratio),
        POSITION_DELETES - POSITION_DELETES * weight * _share(_share_of_rows(metrics.deleted_positions, metrics), 2 * ratio),
    )


def parts_after(metrics: NodeMetrics, properties: TableProperties) -> Mapping[CompactionType, ScoreParts]:
    """Return the points that a node would have after a forced compaction of each type (`compact --type`), estimated from its figures.

    The figures tell no single file, so these are the assumptions:

    - Merged files get the target size, and have together as many bytes as before, as plans predict it too.
    - Each delete file reaches all data files of the node, and deletes the same share of the rows of each.
    - A MINOR merges the small data files and applies their deletes. Where conversions are on, equality deletes of the others become
      position deletes. Otherwise they stay as long as any other data file does.
    - A MAJOR also rewrites the other data files when the node has deletes, or when these files have less than the size that is enough, on
      average. A FULL rewrites all data files.

    It is empty when the figures do not tell the rows of deletes (`NodeMetrics.tells_deletes`).
    """
    if not metrics.tells_deletes:
        return {}
    large, large_bytes = metrics.data_files - metrics.small_data_files, metrics.data_bytes - metrics.small_data_bytes
    target, equality, positions = properties.target_size_bytes, metrics.equality_delete_rows, metrics.deleted_positions
    # The estimate is for all deletes together. Only the kinds count from here on.
    alone = replace(metrics, equality_delete_rows=0, deleted_positions=0, deleted_rows_estimate=0)
    whole = replace(alone, data_files=_merged(metrics.data_files, metrics.data_bytes, target))
    converts = properties.conversions_enabled and equality > 0
    minor = replace(
        alone,
        data_files=large + _merged(metrics.small_data_files, metrics.small_data_bytes, target),
        equality_delete_rows=0 if converts or not large else equality,
        deleted_positions=ceil((metrics.deleted_rows_estimate if converts else positions) * _share(large_bytes, metrics.data_bytes)),
    )
    rewrites_all = equality + positions > 0 or (large > 0 and large_bytes / large <= properties.undersized_bytes)
    left = {CompactionType.MINOR: minor, CompactionType.MAJOR: whole if rewrites_all else minor, CompactionType.FULL: whole}
    return {kind: parts for kind, figures in left.items() if (parts := score_parts(figures, properties)) is not None}


def _merged(files: int, size_bytes: int, target_bytes: int) -> int:
    """How many files these become when they are merged to the target size; never more than there are."""
    return min(files, max(1, ceil(size_bytes / target_bytes)))


def _outlook(after: Mapping[CompactionType, ScoreParts]) -> str:
    """What each type would leave, as a sentence."""
    if not after:
        return ""
    minor, *others = ((kind.value, parts.total) for kind, parts in after.items())
    return f"a {minor[0]} would leave about {minor[1]} points" + "".join(f", a {kind} {points}" for kind, points in others)


def node_score(metrics: NodeMetrics, properties: TableProperties, verdict: NodeVerdict | None, health: Health) -> HealthScore:
    """Return the score of a node with its sentences. `verdict` is the newest one of a plan, and `health` the word that people are shown."""
    parts = score_parts(metrics, properties)
    if parts is None:
        return HealthScore(None, _MEASURED_BY_OLDER, _AGAIN_WITH_FILES)
    after = parts_after(metrics, properties) if parts != ALL_POINTS else {}
    remedy = _remedy(parts, metrics, properties, verdict, health)
    return HealthScore(parts, _reason(parts, metrics, properties), remedy, after, _outlook(after))


def table_score(nodes: Iterable[ScoredNode]) -> HealthScore:
    """Return the score of a table whose files were read: each part is the average of its nodes, weighted by the bytes of their data files.

    The sentences are those of the node that costs the table the most points.
    """
    every = list(nodes)
    known = [(each, each.score.parts, each.data_bytes) for each in every if each.score.parts is not None]
    if not every:
        return NO_FILES
    if not known:
        return HealthScore(None, _MEASURED_BY_OLDER, _AGAIN_WITH_FILES)
    parts = average_parts((parts, size) for _, parts, size in known)
    worst, its, _ = max(known, key=lambda one: (one[2] * (ALL_POINTS.total - one[1].total), -one[1].total))
    if len(every) == 1:
        reason = worst.score.reason
    else:
        reason = f"{worst.node}: {worst.score.reason}" if its != ALL_POINTS else f"none of {len(known)} nodes loses a point"
    if len(known) < len(every):
        reason = f"{reason}; {len(every) - len(known)} of {count_text(len(every), 'node')} do not count: {_MEASURED_BY_OLDER}"
    kinds = [kind for kind in CompactionType if any(kind in each.score.after for each, _, _ in known)]
    after = {kind: average_parts((each.score.after.get(kind, own), size) for each, own, size in known) for kind in kinds}
    return HealthScore(parts, reason, worst.score.remedy, after, _outlook(after))


def average_parts(nodes: Iterable[tuple[ScoreParts, int]]) -> ScoreParts:
    """Return the average of the parts of nodes, weighted by the bytes of their data files; all points when there are no bytes."""
    small, equality, position, whole = 0, 0, 0, 0
    for parts, size in nodes:
        small += size * parts.small_files
        equality += size * parts.equality_deletes
        position += size * parts.position_deletes
        whole += size
    return ScoreParts.of(small / whole, equality / whole, position / whole) if whole else ALL_POINTS


def _share(value: float, of: float) -> float:
    """Return value / of, at most 1. `of` is more than 0, except for a target size of one byte, where no file is too small."""
    return min(value / of, 1.0) if of > 0 else 1.0


def _share_of_rows(rows: int, metrics: NodeMetrics) -> float:
    return rows / metrics.rows if metrics.rows else 0.0


def _costs(parts: ScoreParts) -> tuple[int, int, int]:
    """The points that each part costs."""
    return SMALL_FILES - parts.small_files, EQUALITY_DELETES - parts.equality_deletes, POSITION_DELETES - parts.position_deletes


def _number(parts: ScoreParts | None) -> str:
    if parts is None:
        return "not known"
    if parts == ALL_POINTS:
        return f"{parts.total} of 100"
    small, equality = f"small files {parts.small_files}/{SMALL_FILES}", f"equality deletes {parts.equality_deletes}/{EQUALITY_DELETES}"
    return f"{parts.total} of 100 ({small}, {equality}, position deletes {parts.position_deletes}/{POSITION_DELETES})"


def _reason(parts: ScoreParts, metrics: NodeMetrics, properties: TableProperties) -> str:
    small, equality, position = costs = _costs(parts)
    dearest = max(costs)
    if not dearest:
        one = "one data file" if metrics.data_files == 1 else "no data file" if not metrics.data_files else ""
        return f"{one} costs no point" if one else f"{count_text(metrics.data_files, 'data file')} and their deletes cost no point"
    if small == dearest:
        average = bytes_text(metrics.data_bytes // metrics.data_files)
        enough = bytes_text(properties.undersized_bytes)
        return (
            f"{count_text(metrics.data_files, 'data file')} of {average} on average, where {enough} are enough, "
            f"cost {small} of {SMALL_FILES} points"
        )
    if equality == dearest:
        deletes = f"{metrics.equality_delete_rows:,} rows of equality deletes"
        return f"{deletes} for {metrics.rows:,} rows of data cost {equality} of {EQUALITY_DELETES} points"
    return f"{metrics.deleted_positions:,} deleted positions in {metrics.rows:,} rows cost {position} of {POSITION_DELETES} points"


def _remedy(parts: ScoreParts, metrics: NodeMetrics, properties: TableProperties, verdict: NodeVerdict | None, health: Health) -> str:
    """Say which type of compaction is due or would help, or that there is nothing to do."""
    if health.status is HealthStatus.REFUSED:
        return "nothing to do: the program does not compact it as it is now"
    if not properties.enabled:
        # Nobody plans the table, so its nodes have no verdict, or an old one.
        return f"nothing to do: {properties.disabled_by}"
    if health.status is HealthStatus.FAILING:
        return "correct what makes its work fail"
    if health.status is not HealthStatus.HEALTHY:
        if verdict is not None and verdict.type is not None:
            return f"a {verdict.type.value} is due{'' if health.status is HealthStatus.DUE else ', and waits'}"
        return "its tasks wait or run" if health.status is HealthStatus.DUE else "`compaction-pipeline plan` says what is due"
    if parts == ALL_POINTS:
        return "nothing to do"
    helping = _helping(parts, metrics, properties)
    would = f"; a {helping.value} would help, and `compact TABLE --type {helping.value.lower()}` forces it" if helping is not None else ""
    if verdict is None or verdict.reason.code is not PlanReasonCode.NOT_FRAGMENTED:
        # The plan knows better than the figures: the work would gain nothing, or somebody left the node out.
        would = ""
    return f"nothing to do: {health.reason}{would}"


def _helping(parts: ScoreParts, metrics: NodeMetrics, properties: TableProperties) -> CompactionType | None:
    """Return the type that mends what costs the most points; None when no type makes fewer files."""
    small, equality, _ = costs = _costs(parts)
    if small < max(costs):
        # Without conversions, a MINOR leaves the deletes of large files as they are.
        return CompactionType.MINOR if equality == max(costs) and properties.conversions_enabled else CompactionType.MAJOR
    if metrics.data_files <= ceil(metrics.data_bytes / properties.target_size_bytes):
        return None
    return CompactionType.MINOR if metrics.small_data_files > 1 else CompactionType.MAJOR
