"""What use cases of upkeep need of the outside world."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from compaction_pipeline.core.tables.table import TableIdentifier
from compaction_pipeline.core.upkeep.history import History
from compaction_pipeline.core.upkeep.orphan_looks import Place
from compaction_pipeline.core.upkeep.orphan_rules import ListedFile, MetadataState, OtherTable, OwnStore
from compaction_pipeline.core.upkeep.record import UpkeepRecord


@dataclass(frozen=True)
class FilesLook:
    """The files of one table: those that were listed, and then what the metadata says that was loaded afterwards.

    `stores` and `histories` are those of the table, or of both stores of a keyed one; `names` are their names in the catalog. `properties`
    are those of the first store. `metadata` reads a listed metadata file when it is asked for it, and `referenced` reads manifests while it
    is iterated, once.

    After that, `newer()` loads the metadata again, and tells what it names that was not told before; it raises StorageUnavailable when the
    table became another one, or moved. `delete(paths)` deletes files, and returns the error of each that is still there, or may be.
    """

    listing: tuple[ListedFile, ...]
    names: tuple[TableIdentifier, ...]
    stores: tuple[OwnStore, ...]
    histories: tuple[History, ...]
    properties: Mapping[str, str]
    metadata: Mapping[str, MetadataState]
    referenced: Iterable[str]
    newer: Callable[[], Iterable[str]]
    delete: Callable[[Sequence[str]], Mapping[str, str]]


class FilesLooker(Protocol):
    """Looks at all files of tables, and at the places where tables lie."""

    def look(self, table: TableIdentifier, roots: Sequence[str] = (), kept: Sequence[UpkeepRecord] = ()) -> FilesLook:
        """List the files below the table's locations and these folders, then load its metadata afresh.

        What the snapshots name that the expiries `kept` have removed, and what manifests of Flink list that are not committed yet, counts
        as referenced. Raises NotFoundError when the table is gone, TableRefused when it cannot be read, and StorageUnavailable when the
        storage or the catalog does not tell everything, or when the table became another one, or moved, while it was listed.
        """

    def place(self, store: TableIdentifier, noted: Place | None = None, kept: Sequence[UpkeepRecord] = ()) -> Place:
        """Read all metadata of one Iceberg table, and tell where it lies and names files. `kept` is that of `look`. Raises as `look`.

        Its manifests are not read when its metadata is that of the place that was `noted` earlier, and read.
        """

    def named(self, store: TableIdentifier, kept: Sequence[UpkeepRecord] = ()) -> Iterable[str]:
        """Yield every path that all metadata of one Iceberg table names, some more than once.

        `kept` is that of `look`. Raises as `look`.
        """

    def hidden(self, catalog: str) -> Sequence[OtherTable]:
        """The tables of other formats that a catalog has, and that it does not list, with their locations. Raises StorageUnavailable.

        Only Hive and Glue have such tables, and tell of them.
        """
