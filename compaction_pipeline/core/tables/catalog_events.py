"""Reads what catalogs tell of commits: Lakekeeper's CloudEvents, and Polaris's events of its Kafka listener.

An event is only a hint, as the report of a writer is. What it says of files is never believed: it only lets the table be looked at sooner.
Sources: Lakekeeper, `crates/lakekeeper/src/service/events/publisher.rs`; Polaris, `EventToJsonMapper` and `PolarisEventType`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote

from compaction_pipeline.core.tables.commit_report import CommitReport
from compaction_pipeline.core.tables.table import TableIdentifier
from compaction_pipeline.core.words import printable

MOST_EVENTS = 1_000
"""At most so many events of one request are read."""
_LAKEKEEPERS_COMMIT, _POLARISS_COMMIT = "updateTable", "AFTER_UPDATE_TABLE"
_SEPARATOR = "\x1f"
_LONG = 2**63


def report_of(event: object, catalog: str, properties: Mapping[str, str]) -> CommitReport | str:
    """Return the report that an event stands for, or a sentence that says why nothing follows from it.

    `event` is a CloudEvent as JSON, or an event of Polaris alone. `catalog` is the registered catalog that its sender was given, and
    `properties` are those with which it is registered: an event of another warehouse is left out, where the registration tells.
    """
    if not isinstance(event, Mapping):
        return "it is no object of JSON"
    data = event.get("data")
    polaris = event if "event_type" in event else data if isinstance(data, Mapping) and "event_type" in data else None
    if polaris is not None:
        return _of_polaris(polaris, event, catalog, properties)
    return _of_lakekeeper(event, catalog, properties)


def _of_polaris(event: Mapping[str, Any], outer: Mapping[str, Any], catalog: str, properties: Mapping[str, str]) -> CommitReport | str:
    if event.get("event_type") != _POLARISS_COMMIT:
        return f"{_shown(event.get('event_type'))} is no commit to a table"
    # The warehouse of a REST catalog is the name of Polaris's catalog. For other types of catalogs it is a folder.
    warehouse = properties.get("warehouse") if properties.get("uri", "").lower().startswith("http") else None
    if warehouse is not None and event.get("catalog_name", warehouse) != warehouse:
        return f"it is of catalog {_shown(event.get('catalog_name'))}, but {catalog!r} has the warehouse {warehouse!r}"
    named = event.get("table_identifier")
    levels = named if isinstance(named, list) else [*_list(event.get("namespace")), event.get("table_name")]
    # Polaris names no snapshot.
    return _report(levels, catalog, _stands_for(event.get("event_id") or outer.get("id")), 0, {})


def _of_lakekeeper(event: Mapping[str, Any], catalog: str, properties: Mapping[str, str]) -> CommitReport | str:
    if "type" not in event:
        return "it has neither the 'type' of a CloudEvent nor the 'event_type' of Polaris"
    if event.get("type") != _LAKEKEEPERS_COMMIT:
        return f"{_shown(event.get('type'))} is no commit to a table"
    kind, warehouse = _extension(event, "tabular-type"), properties.get("prefix")
    if kind not in (None, "table"):
        return f"it is of a {_shown(kind)}"
    if warehouse is not None and _extension(event, "warehouse-id") not in (None, warehouse):
        return f"it is of warehouse {_shown(_extension(event, 'warehouse-id'))}, but {catalog!r} has the prefix {warehouse!r}"
    namespace = unquote(str(_extension(event, "namespace") or ""))
    snapshot_id, number, added = _snapshot(event.get("data"))
    snapshot_id = snapshot_id or _stands_for(event.get("id"))
    return _report([*namespace.split(_SEPARATOR), _extension(event, "name")], catalog, snapshot_id, number, added)


def _report(levels: list[Any], catalog: str, snapshot_id: int, number: int, added: Mapping[str, int]) -> CommitReport | str:
    if len(levels) < 2 or not all(isinstance(level, str) and level for level in levels):
        return "it names no table with its namespace"
    return CommitReport(TableIdentifier(catalog, tuple(levels[:-1]), levels[-1]), snapshot_id, number, added)


def _snapshot(data: object) -> tuple[int | None, int, Mapping[str, int]]:
    """The snapshot that a commit adds, its sequence number, and how many files it adds: what the request of the commit says."""
    updates = data.get("updates") if isinstance(data, Mapping) else None
    for update in reversed(_list(updates)):
        snapshot = update.get("snapshot") if isinstance(update, Mapping) and update.get("action") == "add-snapshot" else None
        if not isinstance(snapshot, Mapping):
            continue
        snapshot_id, number, summary = snapshot.get("snapshot-id"), snapshot.get("sequence-number"), snapshot.get("summary")
        files = str(summary.get("added-data-files", "")) if isinstance(summary, Mapping) else ""
        added = {"": int(files)} if files.isascii() and files.isdigit() and int(files) < 2**31 else {}
        return _whole(snapshot_id) or None, _whole(number), added
    return None, 0, {}


def _stands_for(event_id: object) -> int:
    """A number in place of a snapshot's id, the same for the same event. It is negative: Iceberg makes only positive ids."""
    return -1 - int.from_bytes(hashlib.sha256(str(event_id).encode()).digest()[:7], "big")


def _whole(value: object) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 < value < _LONG else 0


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def _extension(event: Mapping[str, Any], name: str) -> Any:
    """An attribute of Lakekeeper's. CloudEvents allows no dash in a name, so bridges may leave it out."""
    return event.get(name, event.get(name.replace("-", "")))


def _shown(value: object) -> str:
    return repr(printable(str(value), 100))
