"""The properties with which a worker opens the files of a table."""

from __future__ import annotations

from collections.abc import Mapping

from pyiceberg.table import Table

from compaction_pipeline.core.tables.kinds import CHANGE_STORE_IO
from compaction_pipeline.formats.file_io.hdfs_clients import for_other_hosts
from compaction_pipeline.iceberg.deletions import with_ban

_PREFIXES = ("s3.", "gcs.", "adls.", "hdfs.", "hf.", "oss.", "abfs.", "wasb.", "client.", "file.", "py-io-impl", "pyarrow.")


def file_io_properties(store: Table, *beside: Table) -> dict[str, str]:
    """The properties that open the files of a store, without those that open the catalog. Vended credentials are among them, and Kerberos
    tickets for HDFS.

    `beside` are the other stores of its table. When one of them forbids deletions, the properties say so.
    """
    io = store.io
    kept = {key: str(value) for key, value in io.properties.items() if key.startswith(_PREFIXES)}
    if any(key.startswith("s3.signer") for key in kept):
        # Remote signing asks the catalog at each request.
        kept.update({key: str(io.properties[key]) for key in ("uri", "token") if key in io.properties})
    return with_ban({**kept, **for_other_hosts(io.properties, store.metadata.location)}, store, *beside)


def with_change_store(of_base: Mapping[str, str], of_change: Mapping[str, str]) -> dict[str, str]:
    """The properties that open the files of both stores of a keyed table.

    A catalog may vend others for the change store. Then they are there too, under `change-store.` and their own keys.
    """
    others = {} if of_change == of_base else {f"{CHANGE_STORE_IO}{key}": value for key, value in of_change.items()}
    return {**of_base, **others}
