"""Lets PyIceberg load v1 metadata whose snapshots name their manifests themselves, without a manifest list.

The specification allows it in v1, and early writers did so; PyIceberg 0.12 wants a manifest list of every snapshot. Its model is relaxed
here, in place, once; such a snapshot stays as it is when metadata is written again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pydantic import Field
from pydantic.fields import FieldInfo
from pyiceberg.table import CommitTableResponse, metadata, update
from pyiceberg.table.snapshots import Snapshot

_FIELD = "inline_manifests"


def accept_inline_manifests() -> None:
    """Make a snapshot's manifest list optional, keep its `manifests`, and rebuild the models that hold snapshots. Idempotent."""
    fields = Snapshot.model_fields
    if _FIELD in fields:
        return
    kinds: tuple[Any, Any] = str | None, list[str] | None
    fields["manifest_list"] = FieldInfo.from_annotated_attribute(kinds[0], Field(default=None, alias="manifest-list"))
    fields[_FIELD] = FieldInfo.from_annotated_attribute(kinds[1], Field(default=None, alias="manifests"))
    Snapshot.__annotations__ |= {"manifest_list": "str | None", _FIELD: "list[str] | None"}
    for model in (
        Snapshot,
        metadata.TableMetadataV1,
        metadata.TableMetadataV2,
        metadata.TableMetadataV3,
        metadata.TableMetadataWrapper,
        update.AddSnapshotUpdate,
        CommitTableResponse,
    ):
        model.model_rebuild(force=True)


def inline_paths(snapshot: Snapshot) -> Sequence[str] | None:
    """The manifests that a snapshot names itself; None where it names none, which is other than an empty list."""
    paths: Sequence[str] | None = getattr(snapshot, _FIELD, None)
    return paths
