"""Why nothing below a table's location may be deleted, although files there look unreferenced: sentences for people.

Each refusal stands for a way in which live files have been lost: the wrong folder was listed, another table lies in it, or metadata tells
less than what is alive.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from itertools import chain

from compaction_pipeline.core.upkeep.orphan_rules import ListedFile, OrphanRules, OtherTable, OwnStore, Standing
from compaction_pipeline.core.upkeep.paths import FOLDERS, FullPath, folder_path, full_path
from compaction_pipeline.core.words import bytes_text

_SHOWN = 3

_MARKERS = {"/_delta_log/": "Delta", "/.hoodie/": "Hudi"}
"""Folders that tables of other formats have, and only they."""
_PAIMON_SNAPSHOT = re.compile(r"(.*/)snapshot/(snapshot-\d+|EARLIEST|LATEST)", re.ASCII | re.DOTALL)
_PAIMON_SCHEMA = re.compile(r"(.*/)schema/schema-\d+", re.ASCII | re.DOTALL)


def refusals(
    files: Mapping[Standing, Sequence[ListedFile]],
    unreferenced_metadata: Iterable[ListedFile],
    reasons: Mapping[str, str],
    rules: OrphanRules,
    now: datetime,
) -> Iterator[str]:
    """Yield every refusal, each as one sentence that names what is wrong and what to do. `reasons` are those of the mismatches."""
    for store in rules.stores:
        yield from _of_store(store)
    for folder in rules.listed_folders:
        yield from _of_folder(folder, rules)
    for other in rules.others:
        if other.unread:
            yield (
                f"nobody has read where table {other.name} names files, and its catalog does not list it any more: files that it names "
                "would look unreferenced; let the catalog list it, or use `--forget-gone-tables` when the table is gone"
            )
    yield from _of_other_formats(chain.from_iterable(files.values()))
    for file in unreferenced_metadata:
        yield from _of_metadata(file, rules, now)
    yield from _of_mismatches(files[Standing.MISMATCH], reasons)
    if rules.shared:
        yield (
            f"another table has {len(rules.shared)} file(s) below the location, e.g. {min(rules.shared)}: more of its files may lie there, "
            "and would look unreferenced; rewrite its files into its own location"
        )


def _of_store(store: OwnStore) -> Iterator[str]:
    if store.state.uuid is None:
        yield (
            f"the metadata of the table at {store.location} names no uuid, so nothing tells whether it is still the same table; "
            "upgrade the table to format version 2, which writes one"
        )
    if not store.gc_enabled:
        yield f"'gc.enabled' is false for the table at {store.location}: another table may share its files; set it to true if none does"


def _of_folder(folder: str, rules: OrphanRules) -> Iterator[str]:
    path = folder_path(folder)
    if not folder.strip() or path.path == "/" or not (path.authority or path.scheme in FOLDERS):
        yield f"the location {folder!r} is empty, relative, or the root of a store, which holds more than one table; move the table"
        return
    for other in rules.others:
        if _overlap(path, other.location, rules):
            yield (
                f"the location {folder} and {other.location}, the location of table {other.name}, are the same or lie in each other: "
                "files of that table would look unreferenced; move one of them"
            )
        if not other.joined:
            yield from _of_roots(folder, other, rules)


def _overlap(path: FullPath, folder: str, rules: OrphanRules) -> bool:
    other = folder_path(folder)
    return path.overlaps(other) and not rules.told.are_different(path, other)


def _of_roots(folder: str, other: OtherTable, rules: OrphanRules) -> Iterator[str]:
    for root in other.roots:
        if _overlap(folder_path(folder), root, rules):
            yield (
                f"table {other.name} names files in {root}, below or above the location {folder}: they would look unreferenced; "
                "look for orphan files with that table's metadata loaded too, or rewrite its files into its own location"
            )


def _of_other_formats(files: Iterable[ListedFile]) -> Iterator[str]:
    found: dict[str, str] = {}
    snapshots, schemas = dict[str, str](), set[str]()
    for file in files:
        for marker, kind in _MARKERS.items():
            if marker in file.path:
                found.setdefault(kind, file.path)
        if "/snapshot/" not in file.path and "/schema/" not in file.path:
            continue
        if (paimon := _PAIMON_SNAPSHOT.fullmatch(file.path)) is not None:
            snapshots.setdefault(paimon[1], file.path)
        elif (paimon := _PAIMON_SCHEMA.fullmatch(file.path)) is not None:
            schemas.add(paimon[1])
    paimon_tables = [path for folder, path in snapshots.items() if folder in schemas]
    found.update({"Paimon": paimon_tables[0]} if paimon_tables else {})
    for kind, path in found.items():
        yield f"{path} is of a {kind} table, whose files would look unreferenced; move that table out of the location"


def _of_metadata(file: ListedFile, rules: OrphanRules, now: datetime) -> Iterator[str]:
    state = rules.metadata.get(file.path)
    if state is None:
        yield f"the metadata file {file.path} was not read, so it may be another table's; look again"
        return
    own = next((store for store in rules.stores if store.state.uuid == state.uuid), None)
    if own is None:
        whose = "names no uuid" if state.uuid is None else f"is of the table with uuid {state.uuid}"
        yield (
            f"the metadata file {file.path} {whose}, so another table lies or lay below the location: its files would look unreferenced; "
            "move that table, or remove this file when the table is gone"
        )
        return
    newer = state.last_sequence_number > own.state.last_sequence_number or state.updated_at > own.state.updated_at
    if newer and file.modified_at <= now - rules.age:
        yield (
            f"the metadata file {file.path} is newer than the metadata that the catalog names: the catalog may have been restored from a "
            "backup, and newer files would look unreferenced; register the newer metadata, or remove this file when its commit failed"
        )


def _of_mismatches(files: Sequence[ListedFile], reasons: Mapping[str, str]) -> Iterator[str]:
    if files:
        shown = "; ".join(f"{file.path}: {reasons[file.path]}" for file in files[:_SHOWN])
        stores = sorted({full_path(file.path).store for file in files})
        yield (
            f"{len(files)} listed file(s) in {', '.join(stores)} may be files that metadata names in another way ({shown}); "
            "tell whether the two stores are one or two"
        )


def excess(files: Mapping[Standing, Sequence[ListedFile]], accepted: float) -> str | None:
    """Say that more of the listed bytes look unreferenced than the `accepted` share; None when not. A person may look at the list, and
    accept it."""
    listed = sum(file.size_bytes for some in files.values() for file in some)
    orphans = sum(file.size_bytes for file in files[Standing.ORPHAN])
    if orphans <= accepted * listed:
        return None
    return (
        f"{bytes_text(orphans)} of the {bytes_text(listed)} that were listed look unreferenced, which is more than {accepted:.0%}: "
        "something may be missing from what was compared; look at the list, and accept a greater share when it is right"
    )
