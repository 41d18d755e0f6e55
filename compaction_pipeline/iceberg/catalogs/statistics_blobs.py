"""Lets PyIceberg load tables whose statistics hold a blob type that it does not know.

PyIceberg 0.12 knows two blob types by name and refuses the whole table for any other (`literal_error`), though a reader may ignore
statistics. Its models are relaxed here, in place, once: what is in the metadata is kept when we commit.
"""

from __future__ import annotations

from pyiceberg.table import CommitTableResponse, metadata, statistics


def accept_any_blob_type() -> None:
    """Relax `BlobMetadata.type` to any text and rebuild the models that hold it. Idempotent."""
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
        CommitTableResponse,
    ):
        model.model_rebuild(force=True)
