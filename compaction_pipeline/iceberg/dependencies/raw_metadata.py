"""Reads snapshots, refs, properties and partition specs from the JSON of a table's metadata, of any format version and with any columns.

Nothing else of the JSON is looked at. So a table answers although PyIceberg's models, or this program, refuse it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from compaction_pipeline.core.dependencies.ready_time import SpecField
from compaction_pipeline.core.errors import StorageUnavailable
from compaction_pipeline.core.upkeep.history import MAIN, History, Ref, Snapshot
from compaction_pipeline.iceberg.upkeep.history import age_of, moment_of

_T = TypeVar("_T")


@dataclass(frozen=True)
class RawSnapshot:
    """Where a snapshot's manifests are named: its list, or in early v1 the manifests themselves. A list with a `key_id` is encrypted."""

    manifest_list: str | None
    manifests: Sequence[str] | None
    key_id: str | None


@dataclass(frozen=True)
class RawField:
    """One field of a partition spec: its id, what the core knows of it, and the ids of its source columns."""

    field_id: int
    known: SpecField
    source_ids: Sequence[int]


class RawMetadata:
    """The JSON of one metadata file. Every method raises StorageUnavailable, which names the place, for a value that breaks the rules."""

    def __init__(self, said: Mapping[str, Any], where: str) -> None:
        """`where` names the file or the answer, for messages."""
        self._said = said
        self._where = where

    @property
    def uuid(self) -> str:
        """The table's uuid. Metadata of format v1 may have none; then it is the table's location."""
        return str(self._said.get("table-uuid") or self._said.get("location") or "")

    @property
    def format_version(self) -> int:
        return self._of("format-version", self._said.get("format-version"), int)

    @property
    def properties(self) -> Mapping[str, str]:
        return self._texts("properties", self._said.get("properties"))

    def history(self) -> History:
        """The snapshots and the refs. A current snapshot that no branch names is main's, as in early metadata."""
        snapshots: dict[int, Snapshot] = {}
        for place, one in self._snapshots():
            snapshot_id = self._of(f"{place}.snapshot-id", one.get("snapshot-id"), int)
            if snapshot_id in snapshots:
                raise self._wrong(f"{place}.snapshot-id", snapshot_id, "an id that no other snapshot has")
            made_at = moment_of(self._of(f"{place}.timestamp-ms", one.get("timestamp-ms"), int))
            parent = self._number(f"{place}.parent-snapshot-id", one.get("parent-snapshot-id"))
            sequence = self._number(f"{place}.sequence-number", one.get("sequence-number")) or 0
            snapshots[snapshot_id] = Snapshot(snapshot_id, parent, made_at, self._texts(f"{place}.summary", one.get("summary")), sequence)
        refs = {name: self._ref(name, one) for name, one in self._of("refs", self._said.get("refs") or {}, dict).items()}
        current = self._number("current-snapshot-id", self._said.get("current-snapshot-id"))
        # Early writers say -1 for a table without a snapshot.
        if MAIN not in refs and current is not None and current != -1:
            refs[MAIN] = Ref(MAIN, current, is_branch=True)
        if MAIN in refs and refs[MAIN].snapshot_id not in snapshots:
            raise StorageUnavailable(
                f"{self._where}: the current snapshot id is {refs[MAIN].snapshot_id} but the metadata holds no such snapshot: roll the "
                "table back to one that exists"
            )
        return History(snapshots, refs)

    def raw_snapshots(self) -> Mapping[int, RawSnapshot]:
        """Where the manifests of each snapshot are named, by its id."""
        return {
            one["snapshot-id"]: RawSnapshot(one.get("manifest-list"), one.get("manifests"), one.get("key-id"))
            for _, one in self._snapshots()
        }

    def specs(self) -> Mapping[int, Sequence[RawField]]:
        """The partition specs by their ids."""
        types = self._types()
        listed = self._said.get("partition-specs")
        if listed is None:
            # Early metadata of format v1 has one spec, without an id.
            listed = [{"spec-id": 0, "fields": self._said.get("partition-spec") or []}]
        return {
            self._of("partition-specs.spec-id", self._of("partition-specs", one, dict).get("spec-id"), int): self._fields(one, types)
            for one in self._of("partition-specs", listed, list)
        }

    @property
    def spec_id(self) -> int:
        """The id of the spec by which new files are written."""
        return self._number("default-spec-id", self._said.get("default-spec-id")) or 0

    def _fields(self, spec: Mapping[str, Any], types: Mapping[int, str]) -> Sequence[RawField]:
        return tuple(self._field(number, one, types) for number, one in enumerate(self._of("fields of a spec", spec.get("fields"), list)))

    def _field(self, number: int, said: Any, types: Mapping[int, str]) -> RawField:
        one = self._of("a field of a spec", said, dict)
        name, transform = self._of("a field's name", one.get("name"), str), self._of("a field's transform", one.get("transform"), str)
        # Transforms of several columns have "source-ids" in format v3.
        given = one["source-ids"] if one.get("source-ids") else [one.get("source-id")]
        sources = [self._of(f"source id of partition field {name!r}", each, int) for each in self._of("source-ids", given, list)]
        # Fields of format v1 may have no ids. They are then numbered from 1000 on.
        field_id = self._number(f"field-id of partition field {name!r}", one.get("field-id"))
        known = SpecField(name, transform, sources[0], types.get(sources[0], ""))
        return RawField(1000 + number if field_id is None else field_id, known, sources)

    def _types(self) -> Mapping[int, str]:
        """The types of all columns that are no struct, list or map, by their ids. The newest schema tells that of a dropped column."""
        schemas = self._of("schemas", self._said.get("schemas") or [self._said.get("schema") or {}], list)
        current = self._said.get("current-schema-id")
        known = [self._of("schemas", one, dict) for one in schemas]
        found: dict[int, str] = {}
        for schema in sorted(known, key=lambda one: (one.get("schema-id") == current, one.get("schema-id") or 0)):
            found.update(_primitives(schema))
        return found

    def _snapshots(self) -> Iterator[tuple[str, Mapping[str, Any]]]:
        for number, one in enumerate(self._of("snapshots", self._said.get("snapshots") or [], list)):
            yield f"snapshots.{number}", self._of(f"snapshots.{number}", one, dict)

    def _ref(self, name: str, said: Any) -> Ref:
        one = self._of(f"refs.{name}", said, dict)
        ages = (age_of(self._number(f"refs.{name}.{key}", one.get(key))) for key in ("max-snapshot-age-ms", "max-ref-age-ms"))
        least = self._number(f"refs.{name}.min-snapshots-to-keep", one.get("min-snapshots-to-keep"))
        return Ref(name, self._of(f"refs.{name}.snapshot-id", one.get("snapshot-id"), int), one.get("type") == "branch", least, *ages)

    def _texts(self, place: str, said: Any) -> Mapping[str, str]:
        read = self._of(place, {} if said is None else said, dict)
        return {key: value if isinstance(value, str) else json.dumps(value) for key, value in read.items() if value is not None}

    def _number(self, place: str, said: Any) -> int | None:
        return None if said is None else self._of(place, said, int)

    def _of(self, place: str, said: Any, kind: type[_T]) -> _T:
        # A bool is an int in Python.
        if not isinstance(said, kind) or (kind is int and isinstance(said, bool)):
            raise self._wrong(place, said, _WORDS[kind])
        return said

    def _wrong(self, place: str, said: Any, rule: str) -> StorageUnavailable:
        return StorageUnavailable(f"{self._where}: its {place!r} is {said!r:.100} but must be {rule}; restore it or roll the table back")


_WORDS: Mapping[type, str] = {int: "a whole number", str: "a text", dict: "an object", list: "a list"}


def _primitives(said: Any) -> Iterator[tuple[int, str]]:
    """The columns inside a type of a schema that are no struct, list or map: their ids and types."""
    if not isinstance(said, dict):
        return
    inner = [(one.get("id"), one.get("type")) for one in said.get("fields") or () if isinstance(one, dict)]
    inner += [(said.get(f"{part}-id"), said.get(part)) for part in ("element", "key", "value") if part in said]
    for number, kind in inner:
        if isinstance(number, int) and isinstance(kind, str):
            yield number, kind
        else:
            yield from _primitives(kind)
