"""Lets PyIceberg load tables whose statistics hold a blob type that it does not know.

PyIceberg 0.12 knows two blob types, and refuses a table with any other (`literal_error`), although a reader may ignore statistics. This
module changes PyIceberg's models in place, once. A commit of ours keeps what the metadata holds.
"""

from __future__ import annotations

from pyiceberg.catalog.rest import TableResponse
from pyiceberg.table import CommitTableRequest, CommitTableResponse, metadata, statistics, update

_HOLDERS = (
    statistics.BlobMetadata,
    statistics.StatisticsFile,
    metadata.TableMetadataCommonFields,
    metadata.TableMetadataV1,
    metadata.TableMetadataV2,
    metadata.TableMetadataV3,
    metadata.TableMetadataWrapper,
    update.SetStatisticsUpdate,
    CommitTableRequest,
    CommitTableResponse,
    TableResponse,
)
"""PyIceberg's models that hold a blob's type. Each stands after those that it holds, because pydantic copies the rules of a model into the
models that hold it."""


def read_any_statistics() -> None:
    """Let PyIceberg load a table whatever types of blobs its statistics hold, in this whole process. A second call does nothing.

    Tables and catalogs that are open already keep working. What PyIceberg does with statistics stays as it is: a commit carries them on,
    but for those of snapshots that it expires.
    """
    field = statistics.BlobMetadata.model_fields["type"]
    if field.annotation is str:
        return
    field.annotation = str
    statistics.BlobMetadata.__annotations__["type"] = "str"
    for model in _HOLDERS:
        model.model_rebuild(force=True)
