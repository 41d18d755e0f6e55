"""The kinds of work that upkeep does, and which of them a table asks for."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum

from compaction_pipeline.core.tables.expiry_properties import CLEANS_ORPHANS_KEY, ENABLED_KEY, REWRITE_KEY
from compaction_pipeline.core.tables.policies import PolicyType, TablePolicies
from compaction_pipeline.core.tables.properties import in_force


class UpkeepWork(str, Enum):
    """A kind of work, in the order in which a round does what is due in one table."""

    CHANGE_FILES = "CHANGE_FILES"
    """Change files of a keyed table that are merged into the base store leave the change store."""
    OLD_ROWS = "OLD_ROWS"
    """Files of rows that are older than the table keeps rows leave the table."""
    MANIFESTS = "MANIFESTS"
    """Small manifests are rewritten into fewer ones."""
    SNAPSHOTS = "SNAPSHOTS"
    """Old snapshots leave the metadata, and later the files that only they needed are deleted."""
    ORPHAN_FILES = "ORPHAN_FILES"
    """Files that no metadata names are deleted."""


WORK_IN_WORDS: Mapping[UpkeepWork, str] = {
    UpkeepWork.CHANGE_FILES: "merged change files stay",
    UpkeepWork.OLD_ROWS: "old rows stay",
    UpkeepWork.MANIFESTS: "the manifests are not rewritten",
    UpkeepWork.SNAPSHOTS: "nothing expires",
    UpkeepWork.ORPHAN_FILES: "orphan files stay",
}
"""What it means that a work is not done."""

_KEYS: Mapping[UpkeepWork, str] = {
    # Amoro removes merged change files together with old snapshots.
    UpkeepWork.CHANGE_FILES: ENABLED_KEY,
    UpkeepWork.OLD_ROWS: "data-expire.enabled",
    UpkeepWork.MANIFESTS: REWRITE_KEY,
    UpkeepWork.SNAPSHOTS: ENABLED_KEY,
    UpkeepWork.ORPHAN_FILES: CLEANS_ORPHANS_KEY,
}


POLICY_OF: Mapping[UpkeepWork, PolicyType] = {
    UpkeepWork.CHANGE_FILES: PolicyType.EXPIRY,
    UpkeepWork.MANIFESTS: PolicyType.MANIFESTS,
    UpkeepWork.SNAPSHOTS: PolicyType.EXPIRY,
    UpkeepWork.ORPHAN_FILES: PolicyType.ORPHANS,
}
"""Which policy of a catalog may forbid a work. Polaris has none about old rows."""


def why_forbidden(work: UpkeepWork, policies: TablePolicies | None) -> str | None:
    """Return why a policy of the catalog forbids a work; None when none does. What is not known forbids every work but the manifests'."""
    if policies is None or work not in POLICY_OF:
        return None
    removes = work is not UpkeepWork.MANIFESTS
    return policies.why_no_deletion(POLICY_OF[work]) if removes else policies.why_not(POLICY_OF[work])


def asks_for(work: UpkeepWork, table: Mapping[str, str], catalog: Mapping[str, str]) -> bool:
    """Whether the properties of a table, or of its catalog, ask for a work. Who writes "no" or "off" asks for nothing; `table show` says
    that the value breaks its rule."""
    return in_force(table, catalog).get(_KEYS[work], "").strip().lower() == "true"
