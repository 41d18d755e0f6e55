"""Commits data and delete files as a streaming writer does: for the writers of the demo, of tests and of benchmarks."""

from __future__ import annotations

import random
import time
from collections.abc import Mapping, Sequence

from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Operation

from compaction_pipeline.core.tables.data_file import OutputFile
from compaction_pipeline.iceberg.deletions import delete_quietly
from compaction_pipeline.iceberg.manifests.entries import data_file_of
from compaction_pipeline.iceberg.manifests.partitions import partition_struct
from compaction_pipeline.iceberg.rewrite_files import AddedFile, SnapshotChange, Transaction

_ATTEMPTS = 20


def row_delta(
    table: Table,
    data: Sequence[OutputFile] = (),
    position_deletes: Sequence[OutputFile] = (),
    equality_deletes: Sequence[tuple[OutputFile, Sequence[int]]] = (),
    properties: Mapping[str, str] | None = None,
) -> None:
    """Commit data and delete files in one snapshot on the table's newest metadata, as Flink does.

    All files get the sequence number of the new snapshot. So an equality delete does not reach data of the same call, but a position delete
    does. The operation is `append` without deletes, `delete` without data, and otherwise `overwrite`. A lost race is tried again, up to 20
    times; then CommitFailedException is raised. `table` is refreshed.
    """
    deletes = bool(position_deletes or equality_deletes)
    operation = Operation.APPEND if not deletes else Operation.OVERWRITE if data else Operation.DELETE
    for attempt in range(1, _ATTEMPTS + 1):
        table.refresh()
        structs = {spec_id: partition_struct(table.metadata, spec_id) for spec_id in table.metadata.specs()}
        files = [data_file_of(output, structs[output.spec_id]) for output in (*data, *position_deletes)]
        files += [data_file_of(output, structs[output.spec_id], ids) for output, ids in equality_deletes]
        transaction = Transaction(table, attempt=attempt)
        try:
            transaction.stage(SnapshotChange(operation, [AddedFile(file) for file in files], properties=properties or {}))
            transaction.commit()
        except CommitFailedException:
            delete_quietly(table, transaction.written)
            if attempt == _ATTEMPTS:
                raise
            time.sleep(random.uniform(0.01, 0.05) * attempt)
        else:
            return
