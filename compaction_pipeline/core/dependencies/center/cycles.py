"""Ways round between jobs: refused when an instance could wait for itself.

    cycles([Edge("ods.a", "ods.b", ZERO), Edge("ods.b", "ods.a", Offsets.parse("-1"))], calendars, now)   # no way is refused

Each edge is weighed by its latest upstream start minus the downstream's start, the worst of the 400 days before and after now. A way round
is refused when its weights do not sum below zero, because only then does each turn surely go back in time. Edges of every strength count.

By UTC alone this is too strict: a day on its own hours weighs up to 24 hours (of 25), and an hour on the day before at most −23 (of 23),
though neither ever waits for itself; so do a month on its days, and a day on the month before. Any clock that gives each start one number
proves as much as UTC does. So jobs whose ways UTC refuses are weighed again by the local clocks of their zones, also with each month
stretched to 31 days, and their ways are refused when no clock proves them all.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from compaction_pipeline.core.dependencies.center.graph import components, positive_way, way_through, within
from compaction_pipeline.core.dependencies.center.offsets import Offsets
from compaction_pipeline.core.dependencies.center.periods import Calendar
from compaction_pipeline.core.dependencies.center.weights import SCALE, Weights


@dataclass(frozen=True, slots=True)
class Edge:
    """One job waits for another, or for itself, at some offsets."""

    downstream: str
    upstream: str
    offsets: Offsets


@dataclass(frozen=True, slots=True)
class WayRound:
    """Edges that lead from a job back to it, each upstream being the next downstream, and what they weigh together."""

    edges: tuple[Edge, ...]
    weight: timedelta

    def text(self) -> str:
        """The way in words, with what to do."""
        steps = ", ".join(f"{edge.downstream} waits for {edge.upstream} at {edge.offsets.text()}" for edge in self.edges)
        return f"an instance could wait for itself: {steps}; take one of these edges away, or give it an earlier offset such as -1"


@dataclass(frozen=True, slots=True)
class _Part:
    """Edges between jobs that all lead to each other, with jobs as numbers: downstream, upstream."""

    size: int
    ends: Sequence[tuple[int, int]]
    edges: Sequence[Edge]


def cycles(edges: Iterable[Edge], calendars: Mapping[str, Calendar], now: datetime) -> list[WayRound]:
    """Ways round that are refused: at least one for each group of jobs that wait for each other and have one. Empty when all is well.

    `calendars` has the calendar of each job. Raises KeyError for an edge of an unknown job, and ConfigError for a week on a month.
    """
    weights = Weights(now)
    found: list[WayRound] = []
    for part in _parts(list(edges)):
        found += _refused(part, calendars, weights)
    return found


def _parts(edges: Sequence[Edge]) -> list[_Part]:
    numbers: dict[str, int] = {}
    ends = [(numbers.setdefault(edge.downstream, len(numbers)), numbers.setdefault(edge.upstream, len(numbers))) for edge in edges]
    groups = components(len(numbers), ends)
    parts = []
    for group, inner in within(groups, ends).items():
        places = {number: place for place, number in enumerate(groups[group])}
        parts.append(
            _Part(len(places), [(places[ends[each][0]], places[ends[each][1]]) for each in inner], [edges[each] for each in inner])
        )
    return parts


def _refused(part: _Part, calendars: Mapping[str, Calendar], weights: Weights) -> list[WayRound]:
    """The ways of a part that UTC refuses, unless the local clock of one of its zones proves the whole part."""
    kinds = [(edge.offsets, calendars[edge.downstream], calendars[edge.upstream]) for edge in part.edges]

    heavy = weights.of(kinds, weights.utc)
    refused = _ways(part, heavy)
    zones = sorted({calendar.zone for _, *pair in kinds for calendar in pair}) if refused else []
    if any(not _ways(part, weights.of(kinds, clock)) for clock in weights.local_clocks(zones)):
        return []
    return [WayRound(tuple(part.edges[index] for index in way), _time(sum(heavy[index] for index in way))) for way in refused]


def _time(weight: int) -> timedelta:
    return timedelta(seconds=weight / SCALE)


def _ways(part: _Part, heavy: Sequence[int]) -> list[list[int]]:
    """Ways round that do not sum below zero, as numbers of edges."""
    rising = [index for index, weight in enumerate(heavy) if weight >= 0]
    if not rising:
        return []
    rising_ends = [part.ends[index] for index in rising]
    groups = components(part.size, rising_ends)
    found = []
    for inner in within(groups, rising_ends).values():
        way = way_through(rising_ends[inner[0]][0], [rising_ends[each] for each in inner])
        found.append([rising[inner[each]] for each in way or ()])
    if found:
        return found
    order = [members[0] for members in reversed(groups)]
    # Of whole numbers, a sum of at most `size` of them is not below zero exactly when this one is above zero.
    way = positive_way(order, part.ends, [weight * (part.size + 1) + 1 for weight in heavy])
    return [] if way is None else [way]
