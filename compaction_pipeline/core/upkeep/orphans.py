"""Decides which files below a table's location nobody needs. Nothing here lists, reads or deletes a file.

Every listed file gets one standing, and whatever cannot be judged is kept. The rules, each with the reason for it, are in
`core/upkeep/CONTRACT.md`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from compaction_pipeline.core.upkeep.file_names import carries, is_metadata, strangeness
from compaction_pipeline.core.upkeep.foreign_roots import ForeignRoots
from compaction_pipeline.core.upkeep.orphan_refusals import excess, refusals
from compaction_pipeline.core.upkeep.orphan_rules import ListedFile, OrphanRules, Standing
from compaction_pipeline.core.upkeep.paths import FullPath, Relation, ToldStores, compared, folder_path, full_path, loose_name

BETWEEN_LISTINGS = timedelta(hours=24)
"""Two looks that are closer may both fall into one long write."""


@dataclass(frozen=True, slots=True)
class Total:
    """A number of files and their bytes."""

    files: int = 0
    size_bytes: int = 0


@dataclass(frozen=True, slots=True)
class OrphanList:
    """What one look found unreferenced. It is kept until a second look."""

    listed_at: datetime
    files: tuple[ListedFile, ...]


@dataclass(frozen=True, slots=True)
class OrphanDecision:
    """What every listed file is. `reasons` has a sentence for each strange file and each mismatch, by path.

    With a refusal nothing may be deleted, whatever the files are. `excess` says that too many bytes look unreferenced: nothing may be
    deleted then, but the list may be looked at, and be confirmed. `foreign_roots` are the folders outside the listed ones in which metadata
    names files: looks at other tables must know of them.
    """

    decided_at: datetime
    files: Mapping[Standing, tuple[ListedFile, ...]]
    reasons: Mapping[str, str]
    refusals: tuple[str, ...]
    foreign_roots: tuple[str, ...]
    excess: str | None = None

    @property
    def orphans(self) -> OrphanList:
        """What may be deleted once a second look says the same: nothing, when the look was refused."""
        return OrphanList(self.decided_at, () if self.refusals else self.files[Standing.ORPHAN])

    @property
    def totals(self) -> Mapping[Standing, Total]:
        """How many files and bytes have each standing."""
        return {one: Total(len(files), sum(file.size_bytes for file in files)) for one, files in self.files.items()}


def decide_orphans(listing: Iterable[ListedFile], referenced: Iterable[str], rules: OrphanRules, now: datetime) -> OrphanDecision:
    """Say of every listed file what it is.

    The whole listing is read before the first referenced path is, and whatever either raises goes through: nothing is judged on half a
    look. `referenced` is read once and not kept. It must come from metadata that was loaded after the listing had ended.
    """
    files = _each_once(listing)
    meeting = _Meeting(files, rules.told)
    foreign = ForeignRoots(rules.listed_folders)
    for path in referenced:
        meeting.meet(path)
        foreign.note(path)
    found: dict[Standing, list[ListedFile]] = {one: [] for one in Standing}
    reasons: dict[str, str] = {}
    folders = _Folders(rules)
    for place, file in enumerate(files):
        standing, reason = _standing(place, file, meeting, folders, now)
        found[standing].append(file)
        if reason is not None:
            reasons[file.path] = reason
    by_standing = {one: tuple(some) for one, some in found.items()}
    unreferenced = [file for place, file in enumerate(files) if place not in meeting.same and is_metadata(_name(file.path))]
    refused = tuple(refusals(by_standing, unreferenced, reasons, rules, now))
    return OrphanDecision(now, by_standing, reasons, refused, foreign.roots, excess(by_standing, rules.accept_share))


def confirmed(first: OrphanList, second: OrphanList) -> tuple[ListedFile, ...]:
    """The files that may be deleted: those that both looks found unreferenced and that did not change between them.

    Nothing is confirmed by two looks that are less than 24 hours apart.
    """
    if second.listed_at - first.listed_at < BETWEEN_LISTINGS:
        return ()
    before = frozenset(first.files)
    return tuple(file for file in second.files if file in before)


def confirmed_by_any(earlier: Iterable[OrphanList], second: OrphanList) -> frozenset[ListedFile]:
    """The files that the second look confirms with any of the earlier ones, newest first, when every look in between found them too.

    A look in between may have found a file referenced, or may have been refused.
    """
    unbroken, found = frozenset(second.files), frozenset[ListedFile]()
    for first in earlier:
        unbroken &= frozenset(first.files)
        found |= unbroken.intersection(confirmed(first, second))
    return found


def _each_once(listing: Iterable[ListedFile]) -> tuple[ListedFile, ...]:
    """Each path once, as it was listed when it was youngest. Folders that are listed may lie in each other."""
    files: dict[str, ListedFile] = {}
    for file in listing:
        known = files.get(file.path)
        if known is None or known.modified_at < file.modified_at:
            files[file.path] = file
    return tuple(files.values())


class _Meeting:
    """The listed files, and what referenced paths say of them. Files are known by their place in the listing."""

    def __init__(self, files: Sequence[ListedFile], told: ToldStores) -> None:
        self._files = files
        self._told = told
        self._places = {file.path: place for place, file in enumerate(files)}
        self._first: dict[str, int] = {}
        self._more: dict[str, list[int]] = {}
        for place, file in enumerate(files):
            name = loose_name(file.path)
            first = self._first.setdefault(name, place)
            if first != place:
                self._more.setdefault(name, [first]).append(place)
        self._has_twins = frozenset(place for places in self._more.values() for place in places)
        self.same: set[int] = set()
        self.mismatches: dict[int, str] = {}
        self.namesakes: dict[int, str] = {}
        """Listed files with the name of a referenced one that is certainly another. The names that writers make are unique."""

    def meet(self, reference: str) -> None:
        """Compare a referenced path with the listed files of its name."""
        place = self._places.get(reference)
        if place is not None:
            self.same.add(place)
            if place not in self._has_twins:
                # Nearly always the texts are equal, and nothing else need be compared.
                return
        name = loose_name(reference)
        if name not in self._first:
            return
        path = full_path(reference)
        for place in self._more.get(name, (self._first[name],)):
            listed = full_path(self._files[place].path)
            relation = compared(listed, path, self._told)
            if relation is Relation.SAME:
                self.same.add(place)
            elif relation is Relation.MISMATCH:
                self.mismatches.setdefault(place, reference)
            elif not self._told.are_different(listed, path):
                self.namesakes.setdefault(place, reference)


class _Folders:
    """The listed folders, with what is said of files below them."""

    def __init__(self, rules: OrphanRules) -> None:
        self.rules = rules
        # Of two folders that lie in each other, the outer one says more about the path of a file.
        self._folders = sorted({folder_path(one) for one in rules.listed_folders}, key=lambda one: len(one.path))
        self._fields = frozenset(name for store in rules.stores for name in store.partition_fields)

    def strangeness(self, path: FullPath) -> str | None:
        """Why a file at this path is nobody's garbage; None for one that may be."""
        for folder in self._folders:
            if path.is_below(folder):
                return strangeness(path.path[len(folder.path.rstrip("/")) + 1 :], self._fields)
        return "it lies in none of the folders that were listed"


def _standing(place: int, file: ListedFile, meeting: _Meeting, folders: _Folders, now: datetime) -> tuple[Standing, str | None]:
    if place in meeting.same:
        return Standing.REFERENCED, None
    if carries(_name(file.path), folders.rules.ids):
        return Standing.OURS, None
    if file.modified_at > now - folders.rules.age:
        return Standing.YOUNG, None
    strange = folders.strangeness(full_path(file.path))
    if strange is not None:
        return Standing.STRANGE, strange
    if place in meeting.mismatches:
        return Standing.MISMATCH, f"it may be the file that metadata names as {meeting.mismatches[place]}"
    if place in meeting.namesakes:
        return Standing.STRANGE, f"it has the name of {meeting.namesakes[place]}, which metadata names"
    return Standing.ORPHAN, None


def _name(path: str) -> str:
    return path.rsplit("/", 1)[-1]
