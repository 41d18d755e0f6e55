"""Reads which partitions the writers of a table call ready, under the key of the rule `flag`.

The value lists paths of partitions (`day=2026-01-01, day=2026-01-02`), or the key has `{partition}` and the value is true: under
`flag:done.{partition}`, `done.day=2026-01-01` = `true`. Any other value says no. What a snapshot of main says counts before what the
table's properties say, and of two snapshots the newer counts.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from compaction_pipeline.core.upkeep.history import MAIN, History

PLACEHOLDER = "{partition}"


def flagged(
    history: History, properties: Mapping[str, str], key: str, remembered: Mapping[int, Mapping[str, bool]] | None = None
) -> Mapping[str, bool]:
    """By path of a partition, whether its writers call it ready. Paths of which nobody says anything are missing.

    A walk back from the head that ends where snapshots have expired goes on with what is `remembered`: by id of a snapshot of main, what
    this function said when that was the head. What is remembered of snapshots that main does not descend from does not count.
    """
    head = history.refs.get(MAIN)
    walked = [] if head is None else list(history.ancestry(head.snapshot_id))
    found: dict[str, bool] = {}
    for snapshot in walked:
        _add(found, said_in(snapshot.summary, key))
    if walked and walked[-1].parent_id is not None:
        known = remembered or {}
        for snapshot_id in (*(one.snapshot_id for one in walked), walked[-1].parent_id):
            if snapshot_id in known:
                _add(found, known[snapshot_id].items())
                break
    _add(found, said_in(properties, key))
    return found


def said_in(properties: Mapping[str, str], key: str) -> Iterator[tuple[str, bool]]:
    """What these properties, or this summary, say: paths, and whether each is ready."""
    if PLACEHOLDER not in key:
        for path in properties.get(key, "").split(","):
            if "=" in path:
                yield path.strip(), True
        return
    before, _, behind = key.partition(PLACEHOLDER)
    for name, value in properties.items():
        path = name[len(before) : len(name) - len(behind)]
        if name.startswith(before) and name.endswith(behind) and "=" in path:
            yield path, value.strip().lower() == "true"


def _add(found: dict[str, bool], said: Iterable[tuple[str, bool]]) -> None:
    for path, ready in said:
        found.setdefault(path, ready)
