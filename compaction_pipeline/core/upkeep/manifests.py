"""Decides which manifests of a snapshot are rewritten into fewer ones, and says what a reader of one partition gains.

Only small manifests are rewritten, so a second decision finds nothing to do in the result of the first. The laws are in
`core/upkeep/CONTRACT.md`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from compaction_pipeline.core.tables.expiry_properties import MANIFEST_PROPERTIES, MIN_COUNT_KEY, TARGET_KEY
from compaction_pipeline.core.tables.properties import values_of
from compaction_pipeline.core.tables.table import TableIdentifier
from compaction_pipeline.core.words import bytes_text, count_text, mean_text

DATA, DELETES = "DATA", "DELETES"
_WORDS = {DATA: "data", DELETES: "delete"}

_PARTS_AT_ONCE = 16
"""A group is held in memory while it is written. It has at most so many times the target size: 128 MiB with Iceberg's own target."""

_MOST_PLACES = 100
"""So many partitions stand for all partitions of a table when manifests are counted that a reader opens."""


@dataclass(frozen=True, slots=True)
class ManifestRules:
    """What the properties of a table ask for."""

    target_bytes: int = 8 << 20
    min_count: int = 100


def resolve_manifest_rules(table: Mapping[str, str], catalog: Mapping[str, str], of: TableIdentifier | None = None) -> ManifestRules:
    """Return the rules in force. `table` are the table's properties, `catalog` the catalog's, `of` the table for messages.

    Raises ConfigError for the first property that breaks its rule.
    """
    values, _ = values_of(MANIFEST_PROPERTIES, table, catalog, of)
    return ManifestRules(**{key: value for key, value in values.items() if key != "rewritten"})


@dataclass(frozen=True, slots=True)
class FieldRange:
    """The values that one partition field has in a manifest. The bounds are None when it has no value but NULL and NaN.

    Bounds of one field compare with each other as Iceberg orders its values, whatever their Python type is.
    """

    lower: Any
    upper: Any
    has_null: bool

    def may_hold(self, value: Any) -> bool:
        """Whether a file with this value may be there; None stands for NULL and NaN."""
        if value is None or self.lower is None:
            return value is None and self.has_null
        return bool(self.lower <= value <= self.upper)


@dataclass(frozen=True, slots=True)
class Manifest:
    """What a manifest list says of one manifest.

    `content` is DATA or DELETES. `live_files` and `removed_files` count its entries; None when the list does not say. `ranges` has one
    item for each field of the partition spec; None when nothing is known of the partitions. `stays_because` is the reason for which it
    cannot be rewritten.
    """

    path: str
    length_bytes: int
    content: str
    spec_id: int
    live_files: int | None = None
    removed_files: int | None = None
    ranges: tuple[FieldRange, ...] | None = None
    stays_because: str | None = None

    @property
    def live_bytes(self) -> int:
        """About how many of its bytes are entries of live files."""
        if self.live_files == 0:
            return 0
        if self.live_files is None or not self.removed_files:
            return self.length_bytes
        return self.length_bytes * self.live_files // (self.live_files + self.removed_files)

    def may_hold(self, place: Place) -> bool:
        """Whether a reader of this partition opens the manifest."""
        if self.spec_id != place.spec_id or self.live_files == 0:
            return False
        return self.ranges is None or all(one.may_hold(value) for one, value in zip(self.ranges, place.values, strict=True))


@dataclass(frozen=True, slots=True)
class Place:
    """A partition: its spec, and a value for each field of the spec; None stands for NULL and NaN."""

    spec_id: int
    values: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Group:
    """Manifests of one content and one spec. Their live entries go, in the order of their partitions, into at most `parts` new ones."""

    content: str
    spec_id: int
    manifests: tuple[Manifest, ...]
    parts: int


@dataclass(frozen=True, slots=True)
class ManifestPlan:
    """Which manifests are rewritten, and which stay. Each manifest is in exactly one group, or in `kept`.

    `opened_before` is how many manifests a reader of one partition opens, on average over `places`, and `opened_after` an estimate of how
    many it opens afterwards. `reason` says it in words.
    """

    groups: tuple[Group, ...]
    kept: tuple[Manifest, ...]
    places: tuple[Place, ...]
    opened_before: float
    opened_after: float
    target_bytes: int
    reason: str

    @property
    def is_due(self) -> bool:
        """Whether anything is rewritten."""
        return bool(self.groups)

    @property
    def rewritten(self) -> tuple[Manifest, ...]:
        """The manifests that are rewritten."""
        return tuple(manifest for group in self.groups for manifest in group.manifests)


def decide_manifests(manifests: Sequence[Manifest], rules: ManifestRules) -> ManifestPlan:
    """Return which manifests of a snapshot are rewritten now."""
    groups: list[Group] = []
    reasons: list[str] = []
    for (content, spec_id), of_kind in sorted(_by_kind(manifests).items()):
        small = [one for one in of_kind if one.stays_because is None and one.live_bytes * 2 < rules.target_bytes]
        least = max(rules.min_count, 2)
        if len(small) < least:
            count = count_text(len(small), f"small {_WORDS[content]} manifest")
            size = f"below {bytes_text(rules.target_bytes // 2)}, half of '{TARGET_KEY}'"
            reasons.append(f"spec {spec_id} has {count} ({size}), and '{MIN_COUNT_KEY}' is {least}")
        else:
            groups += _groups(content, spec_id, small, rules.target_bytes)
    taken = {one.path for group in groups for one in group.manifests}
    kept = tuple(one for one in manifests if one.path not in taken)
    places = places_of(manifests)
    before, after = manifests_opened(manifests, places), _opened_after(kept, groups, places)
    if groups:
        replaced = sum(len(group.manifests) for group in groups)
        reasons = [gain_in_words(replaced, f"about {sum(group.parts for group in groups)}", before, after)]
    reason = "; ".join(reasons) or "the snapshot has no manifest"
    return ManifestPlan(tuple(groups), kept, places, before, after, rules.target_bytes, reason)


def places_of(manifests: Iterable[Manifest]) -> tuple[Place, ...]:
    """Partitions that stand for all of a table: those at the lower bounds of its data manifests, at most a hundred of them."""
    found: dict[Place, None] = {}
    for one in manifests:
        if one.content == DATA and one.ranges is not None and one.live_files != 0:
            found[Place(one.spec_id, tuple(each.lower for each in one.ranges))] = None
    places = list(found)
    step = max(1, len(places) / _MOST_PLACES)
    return tuple(places[int(number * step)] for number in range(min(len(places), _MOST_PLACES)))


def manifests_opened(manifests: Sequence[Manifest], places: Sequence[Place]) -> float:
    """How many of these manifests a reader of one of these partitions opens on average. Without a place: how many have live files."""
    if not places:
        return float(sum(one.live_files != 0 for one in manifests))
    return sum(one.may_hold(place) for place in places for one in manifests) / len(places)


def gain_in_words(replaced: int, created: str, before: float, after: float) -> str:
    """What becomes of small manifests, and what a reader of one partition gains, as a sentence."""
    opened = f"manifests that a reader of one partition opens: {mean_text(before)} → {mean_text(after)}"
    return f"{replaced} small manifests → {created}; {opened}"


def _by_kind(manifests: Iterable[Manifest]) -> Mapping[tuple[str, int], list[Manifest]]:
    kinds: dict[tuple[str, int], list[Manifest]] = defaultdict(list)
    for one in manifests:
        kinds[one.content, one.spec_id].append(one)
    return kinds


def _groups(content: str, spec_id: int, small: Sequence[Manifest], target_bytes: int) -> list[Group]:
    """Cut small manifests of one kind into groups. Neighbours have neighbouring partitions, so groups overlap little."""
    groups: list[list[Manifest]] = []
    size = 0
    for one in sorted(small, key=_order):
        if not groups or size + one.live_bytes > target_bytes * _PARTS_AT_ONCE:
            groups.append([])
            size = 0
        groups[-1].append(one)
        size += one.live_bytes
    return [Group(content, spec_id, tuple(each), _parts(each, target_bytes)) for each in groups]


def _parts(manifests: Sequence[Manifest], target_bytes: int) -> int:
    if all(one.live_files == 0 for one in manifests):
        return 0
    return min(len(manifests), max(1, -(-sum(one.live_bytes for one in manifests) // target_bytes)))


def _order(one: Manifest) -> tuple[Any, ...]:
    ranges = one.ranges or ()
    # Bounds are compared only when the same fields have some, so no value meets one of another field.
    known = [each.lower is not None for each in ranges]
    return (one.ranges is not None, known, [each.lower for each in ranges if each.lower is not None], one.path)


def _opened_after(kept: Sequence[Manifest], groups: Sequence[Group], places: Sequence[Place]) -> float:
    """An estimate: of the new manifests of a group, a reader opens no more than it opened of the old ones."""
    opened = manifests_opened(kept, places)
    for group in groups:
        if not places:
            opened += group.parts
            continue
        held = [sum(one.may_hold(place) for one in group.manifests) for place in places]
        opened += sum(min(group.parts, each) for each in held) / len(places)
    return opened
