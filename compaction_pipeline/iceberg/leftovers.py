"""Finds and deletes files that commits and merges left behind, in a plain table or in both stores of a keyed table."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from pyiceberg.table import Table

from compaction_pipeline.core.commit.ports import Look
from compaction_pipeline.core.errors import AccessDenied, DeletionForbidden, StorageUnavailable
from compaction_pipeline.core.ids import RecordId, TaskId
from compaction_pipeline.core.storage_failures import StorageFailure, advice, needs_a_person, storage_failure
from compaction_pipeline.core.tables.deletion_ban import would_go
from compaction_pipeline.core.tables.kinds import is_store
from compaction_pipeline.core.tables.table import TableIdentifier, data_folder
from compaction_pipeline.iceberg.commit.attempts import head_id
from compaction_pipeline.iceberg.commit.landing import metadata_files, parents_of_attempts
from compaction_pipeline.iceberg.deletions import delete_quietly, why_no_deletion
from compaction_pipeline.iceberg.failures import translated
from compaction_pipeline.iceberg.head_reader import listed_metadata, listed_paths
from compaction_pipeline.iceberg.keyed.statistics import statistics_files
from compaction_pipeline.iceberg.listing import files_under
from compaction_pipeline.iceberg.opened_paths import opened_name, opens_what_it_says
from compaction_pipeline.iceberg.stores import Stores

_WRITE_CHECK = "compaction-write-check"
_LOOKS_AT_ONCE = 8

_logger = logging.getLogger(__name__)


def delete_orphans(table: TableIdentifier, stores: Stores, table_uuid: str, paths: Sequence[str]) -> Sequence[str]:
    """Delete the given files that no snapshot of a store lists. Returns the deleted ones.

    Delta-rewrite may have been switched off since this program wrote to a change store, so both stores of a keyed table are looked at.

    The lists of manifests are deleted last, because they tell which snapshot an attempt was built on. Nothing is deleted when the table is
    not the one with this uuid. Raises DeletionForbidden, with the files that would go, when the catalog or the table forbids deletions.
    """
    if str(stores.tables[0].metadata.table_uuid) != table_uuid:
        _logger.warning("table=%s has another table under its name now: files of uuid=%s stay", table, table_uuid)
        return ()
    strange = [path for path in paths if not opens_what_it_says(path) or path.endswith(".metadata.json")]
    if strange:
        _logger.warning("table=%s %d path(s) open another file, or are metadata, and stay: %r", table, len(strange), strange[:3])
    paths = [path for path in paths if path not in strange]
    named, listed = [path for path in paths if _is_metadata(path)], set[str]()
    with translated(f"the history of table {table}"):
        for store in stores.tables:
            listed.update(listed_paths(store.io, store.metadata, [path for path in paths if not _is_metadata(path)]))
            listed.update(listed_metadata(store.io, store.metadata, [opened_name(path) for path in named]))
    going = [path for path in paths if path not in listed and not (_is_metadata(path) and opened_name(path) in listed)]
    why = why_no_deletion(*stores.tables)
    if why is not None and going:
        raise DeletionForbidden(f"table {table}: {would_go(why, going)}")
    deleted = []
    for path in sorted(going, key=lambda path: _file_name(path).startswith("snap-")):
        try:
            _owner(stores, path).io.delete(path)
        except FileNotFoundError:
            continue
        except OSError as error:
            _logger.warning("table=%s path=%s orphan not deleted: %s", table, path, error)
            continue
        deleted.append(path)
    return tuple(deleted)


def leftovers(table: TableIdentifier, stores: Stores, task_ids: Sequence[TaskId], record_ids: Sequence[RecordId]) -> Sequence[str]:
    """The files in the data folders whose names hold one of these task ids, and the manifests, manifest lists and statistics files with one
    of these record ids."""
    found: list[str] = []
    with translated(f"the files of table {table}"):
        for store in stores.tables:
            if task_ids:
                location = data_folder(store.metadata.location, store.metadata.properties)
                found += [path for path in files_under(store.io, location) if any(one in _file_name(path) for one in task_ids)]
            if record_ids:
                found += metadata_files(store, frozenset(record_ids))
        if record_ids and is_store(stores.tables[0].metadata.properties):
            found += statistics_files(stores.tables[0], frozenset(record_ids))
    # The folders of two stores may lie in each other.
    return tuple(dict.fromkeys(found))


def may_land(table: TableIdentifier, stores: Stores, record_ids: Sequence[RecordId]) -> Sequence[str]:
    """Those of these records that may still land: one of their attempts was built on the snapshot that is the head of its store now."""
    found: set[str] = set()
    with translated(f"the files of table {table}"):
        for store in stores.tables:
            parents, head = parents_of_attempts(store, frozenset(record_ids)), head_id(store.metadata)
            found |= {record_id for record_id in record_ids if head in parents.get(record_id, ())}
    return tuple(record_id for record_id in record_ids if record_id in found)


def check_writable(table: TableIdentifier, store: Table) -> None:
    """Write one tiny file to the folder of merged files, and delete it. Raises AccessDenied if this is not allowed.

    Other failures are ignored here. The merge tries again, and says what is wrong with which file.
    """
    location = data_folder(store.metadata.location, store.metadata.properties)
    try:
        with store.io.new_output(f"{location}/{_WRITE_CHECK}").create(overwrite=True) as stream:
            stream.write(b"may we write?")
    except Exception as error:
        kind = storage_failure(error)
        if needs_a_person(kind):
            raise AccessDenied(f"table {table}: nothing can be written to {location}: {advice(kind)} ({error})") from error
        return
    # All checks use the same name. So only one file stays if nothing may be deleted.
    delete_quietly(store, [f"{location}/{_WRITE_CHECK}"])


def look(table: TableIdentifier, stores: Stores, paths: Sequence[str]) -> Look:
    """Ask the storage for each of these files. Raises StorageUnavailable if it does not answer."""

    def failure(path: str) -> StorageFailure | None:
        try:
            len(_owner(stores, path).io.new_input(path))
        except Exception as error:
            return storage_failure(error)
        return None

    with ThreadPoolExecutor(_LOOKS_AT_ONCE) as pool:
        found = set(pool.map(failure, dict.fromkeys(paths)))
    answers = Look(StorageFailure.ABSENT in found, any(needs_a_person(kind) for kind in found if kind is not None))
    if not answers.absent and not answers.denied and found - {None}:
        raise StorageUnavailable(f"table {table}: its storage did not answer when it was asked for {len(paths)} files; try again later")
    return answers


def _owner(stores: Stores, path: str) -> Table:
    """The store whose credentials open this file."""
    folders = [(f"{folder.rstrip('/')}/", store) for store in stores.tables for folder in _folders(store)]
    holding = [(len(folder), store) for folder, store in folders if path.startswith(folder)]
    return max(holding, key=lambda each: each[0])[1] if holding else stores.tables[0]


def _folders(store: Table) -> tuple[str, str, str]:
    metadata = store.metadata
    folder = metadata.properties.get("write.metadata.path", metadata.location)
    return metadata.location, folder, data_folder(metadata.location, metadata.properties)


def _file_name(path: str) -> str:
    return path.rsplit("/", 1)[-1]


def _is_metadata(path: str) -> bool:
    # Merges write only Parquet files. An Avro file is a manifest or a manifest list, and a Puffin file holds statistics.
    return opened_name(path).endswith((".avro", ".puffin"))
