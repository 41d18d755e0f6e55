"""Lets PyIceberg load tables whose statistics hold a blob type that it does not know.

PyIceberg 0.12 knows two blob types, and refuses a table with any other (`literal_error`), although a reader may ignore statistics. This
module changes PyIceberg's models in place, once. A commit of ours keeps what the metadata holds.
"""

from __future__ import annotations

from pyiceberg.catalog.rest import TableResponse
from pyiceberg.table import CommitTableRequest, CommitTableResponse, metadata, statistics, update


def accept_any_blob_type() -> None:
    """Let `BlobMetadata.type` be any text, and rebuild the models that hold it. A second call does nothing."""
    field = statistics.BlobMetadata.model_fields["type"]
    if field.annotation is str:
        return
    field.annotation = str
    statistics.BlobMetadata.__annotations__["type"] = "str"
    for model in (
        statistics.BlobMetadata,
        statistics.StatisticsFile,
        metadata.TableMetadataV1,
        metadata.TableMetadataV2,
        metadata.TableMetadataV3,
        metadata.TableMetadataWrapper,
        update.SetStatisticsUpdate,
        CommitTableRequest,
        CommitTableResponse,
        TableResponse,
    ):
        model.model_rebuild(force=True)
