"""Decides which other tables have a part in the files that an expiry would delete, by where tables lie and name files.

A place counts for ever. A table that nobody can ask any more may be hidden, or registered elsewhere, and may need the files.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from compaction_pipeline.core.tables.table import TableIdentifier
from compaction_pipeline.core.upkeep.orphan_looks import Place
from compaction_pipeline.core.upkeep.paths import FullPath, Relation, compared, folder_path, full_path


@dataclass(frozen=True, slots=True)
class OwnPlaces:
    """The table itself: its names, those of its stores too, and of each store its uuid and its location.

    `folders` are all folders to which it writes: the locations, and those that its properties name.
    """

    names: Collection[TableIdentifier]
    stores: Sequence[tuple[str | None, str]]
    folders: Sequence[str]


@dataclass(frozen=True, slots=True)
class Neighbours:
    """What other tables mean for a deletion. With a `refusal` nothing may be deleted.

    `clones` name files in the folders of the table, or may do so: what they name stays. What lies below a folder of `inside` stays too.
    `unread` are tables of which nobody knows where they name files: each is a clone when it names some in one of the table's `folders`.
    """

    refusal: str | None = None
    clones: tuple[TableIdentifier, ...] = ()
    inside: tuple[str, ...] = ()
    unread: tuple[Place, ...] = ()
    folders: tuple[str, ...] = ()

    def is_clone(self, place: Place) -> bool:
        """Whether a place that was read names files in the folders of the table."""
        return any(_overlaps([folder_path(folder) for folder in self.folders], root) for root in place.roots)


def judge_neighbours(own: OwnPlaces, living: Sequence[Place], noted: Sequence[Place]) -> Neighbours:
    """Say what other tables mean for a deletion. `living` are those that catalogs list now, `noted` all places ever seen."""
    for place in living:
        if any(place.table_uuid == uuid or _is_one_place(place.location, location) for uuid, location in own.stores):
            return Neighbours(f"table {place.table} is another registration of this table, or has its location, and may need the files")
    others = [place for place in noted if not is_own(place, own.names, own.stores)]
    folders = [folder_path(folder) for folder in own.folders]
    by_uuid: dict[tuple[str, str], list[Place]] = {}
    for place in living:
        by_uuid.setdefault((place.table.catalog, place.table_uuid), []).append(place)
    clones = [place.table for place in living if _is_around(folders, place.location)]
    inside = [place.location for place in (*living, *others) if _is_within(folders, place.location)]
    for place in others:
        # A table that was renamed has its uuid.
        now = by_uuid.get((place.table.catalog, place.table_uuid), [])
        shares = _is_around(folders, place.location) or any(_overlaps(folders, root) for root in place.roots)
        if now and shares:
            clones += [one.table for one in now]
        elif not now and (shares or place.is_unread):
            return Neighbours(_gone(place, shares))
    return Neighbours(None, tuple(sorted(set(clones))), tuple(sorted(set(inside))))


def is_own(place: Place, names: Collection[TableIdentifier], stores: Sequence[tuple[str | None, str]]) -> bool:
    """Whether a place that no catalog lists is an earlier one of the table itself. `stores` has the uuid and the location of each store.

    The same uuid under another name of the same catalog is: the table was renamed or moved. In another catalog, the table may live on
    there, hidden. A former table of the same name at the same location left metadata files that tell of it, unless it was purged, or unless
    they lie elsewhere.
    """
    if any(uuid == place.table_uuid for uuid, _ in stores):
        return any(name.catalog == place.table.catalog for name in names)
    location, metadata = folder_path(place.location), place.metadata_location
    is_here = place.table in names and any(folder_path(one) == location for _, one in stores)
    return is_here and metadata is not None and full_path(metadata).is_below(location)


def hidden_names(listed: Collection[TableIdentifier], remembered: Collection[TableIdentifier], most: int) -> Iterator[TableIdentifier]:
    """Yield tables of one catalog that tell whether its listing is true: some of each namespace that should have tables, and lists none.

    At most `most` of each namespace.
    """
    full = {table.namespace for table in listed}
    asked: dict[tuple[str, ...], int] = {}
    for table in sorted(remembered):
        if table.namespace not in full and asked.setdefault(table.namespace, 0) < most:
            asked[table.namespace] += 1
            yield table


def _gone(place: Place, shares: bool) -> str:
    why = "names files in its folders, or lies around them" if shares else "was never read to its end, so nobody knows where it names files"
    return (
        f"table {place.table} (as it was seen earlier, at {place.location}) {why}, and no catalog lists it now: it may need the files; "
        "let its catalog list it, or use `maintain orphans --forget-gone-tables` when it is gone"
    )


def _is_one_place(one: str, other: str) -> bool:
    return compared(folder_path(one), folder_path(other)) is not Relation.DIFFERENT


def _is_around(folders: Sequence[FullPath], text: str) -> bool:
    """Whether one of the folders may be the folder of this text, or lie in it."""
    return any(_overlaps([folder], text) and not folder_path(text).is_below(folder) for folder in folders)


def _is_within(folders: Sequence[FullPath], text: str) -> bool:
    return any(folder_path(text).is_below(folder) for folder in folders)


def _overlaps(folders: Sequence[FullPath], text: str) -> bool:
    other = folder_path(text)
    return any(folder.overlaps(other) for folder in folders)
