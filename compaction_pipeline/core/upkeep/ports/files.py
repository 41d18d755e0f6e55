"""What use cases of upkeep need of the outside world."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from compaction_pipeline.core.tables.table import TableIdentifier
from compaction_pipeline.core.upkeep.history import History
from compaction_pipeline.core.upkeep.orphan_rules import ListedFile, MetadataState, OwnStore


@dataclass(frozen=True)
class FilesLook:
    """The files of one table: those that were listed, and then what the metadata says that was loaded afterwards.

    `stores` and `histories` are those of the table, or of both stores of a keyed one; `names` are their names in the catalog. `properties`
    are those of the first store. `metadata` reads a listed metadata file when it is asked for it, and `referenced` reads manifests while it
    is iterated, once.
    """

    listing: tuple[ListedFile, ...]
    names: tuple[TableIdentifier, ...]
    stores: tuple[OwnStore, ...]
    histories: tuple[History, ...]
    properties: Mapping[str, str]
    metadata: Mapping[str, MetadataState]
    referenced: Iterable[str]


class FilesLooker(Protocol):
    """Looks at all files of tables."""

    def look(self, table: TableIdentifier, roots: Sequence[str] = ()) -> FilesLook:
        """List the files below the table's locations and these folders, then load its metadata afresh.

        Raises NotFoundError when the table is gone, TableRefused when it cannot be read, and StorageUnavailable when the storage or the
        catalog does not tell everything, or when the table became another one, or moved, while it was listed.
        """
