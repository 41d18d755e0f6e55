"""Lets PyIceberg load v1 metadata in which a snapshot names its manifests itself and has no manifest list.

The specification allows this in v1, and early writers did it. PyIceberg 0.12 requires a manifest list. This module changes PyIceberg's
model in place, once. Such a snapshot is written back as it was.
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
    """Make a snapshot's manifest list optional, keep its `manifests`, and rebuild the models that hold snapshots. A second call does
    nothing."""
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
    """The manifests that a snapshot names itself. None if it names none. An empty list means that the snapshot has no
    files."""
    paths: Sequence[str] | None = getattr(snapshot, _FIELD, None)
    return paths
