"""Listed files and rules about them for tests: one table at `s3://b/wh/t`, at one moment."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta, timezone
from typing import Any

from hypothesis import strategies as st

from compaction_pipeline.core.upkeep.orphan_rules import ListedFile, MetadataState, OrphanRules, OwnStore, Standing
from compaction_pipeline.core.upkeep.orphans import OrphanDecision, decide_orphans

NOW = datetime(2026, 6, 15, tzinfo=timezone.utc)
DAY, HOUR = timedelta(days=1), timedelta(hours=1)
LOCATION = "s3://b/wh/t"
TASK = "0123456789ab-00001"
STATE = MetadataState("uuid-t", 7, NOW - 10 * DAY)
STORE = OwnStore(LOCATION, STATE)


def name(number: int, suffix: str = "") -> str:
    return f"{number:05d}-0-ce13f4d2-9c1c-4d51-9f0a-2d3f6c1f7a55-00001{suffix}.parquet"


def path(number: int, folder: str = "data") -> str:
    """The path of a file with a name as writers of Iceberg make it."""
    return f"{LOCATION}/{folder}/{name(number)}"


def listed(path: str, days_old: float = 10, size: int = 1, version: str | None = None) -> ListedFile:
    return ListedFile(path, size, NOW - timedelta(days=days_old), version)


# Most of the listed bytes are of a live file, so that no test is refused for the share of its orphans.
LIVE = listed(path(99999), size=10**9)


def rules(**changes: Any) -> OrphanRules:
    return OrphanRules(**{"stores": (STORE,), **changes})


def decided(
    files: Iterable[ListedFile], referenced: Iterable[str] = (), own: OrphanRules | None = None, now: datetime = NOW
) -> OrphanDecision:
    """Decide about these files and a live one that has most of the bytes."""
    return decide_orphans([*files, LIVE], [*referenced, LIVE.path], own or rules(), now)


def standing(path: str, decision: OrphanDecision) -> Standing:
    [found] = [one for one, files in decision.files.items() if path in {file.path for file in files}]
    return found


_FOLDERS = ("data", "data/dt=1", "data/_tmp", "data/_day=1", "metadata", "data/.x")
_NAMES = (
    *(name(number) for number in range(4)),
    "000000_0",
    f"ba9876543210-{TASK}-deadbeef-00001.parquet",
    "a1-sink-0123456789abcdef-deadbeef-00001.parquet",
    "snap-1-0-0123456789ab.avro",
)
_below = st.builds(lambda folder, one: f"{folder}/{one}", st.sampled_from(_FOLDERS), st.sampled_from(_NAMES))
files = st.lists(
    st.builds(
        ListedFile,
        _below.map(lambda below: f"{LOCATION}/{below}"),
        st.integers(0, 100),
        st.integers(-2 * 24, 10 * 24).map(lambda hours: NOW - hours * HOUR),
        st.sampled_from([None, "e1", "e2"]),
    ),
    max_size=12,
)
"""Files below the location, of writers and of others, some of them listed twice."""

references = st.lists(
    st.builds(lambda root, below: f"{root}/{below}", st.sampled_from([LOCATION, "s3a://b/wh/t", "oss://b/wh/t", "s3://b/wh/t2"]), _below),
    max_size=8,
)
all_rules = st.builds(
    rules,
    ids=st.sets(st.sampled_from([TASK, "0123456789ab"])).map(frozenset),
    minimum_age=st.integers(0, 8).map(lambda days: days * DAY),
    stores=st.sampled_from([(STORE,), (OwnStore(LOCATION, STATE, partition_fields=frozenset({"_day"})),)]),
)
