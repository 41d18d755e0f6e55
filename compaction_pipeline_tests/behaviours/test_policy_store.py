"""What the store of policies promises, on SQLite and on PostgreSQL."""

from __future__ import annotations

from compaction_pipeline.core.stores import Stores
from compaction_pipeline.core.tables.policies import Policy, PolicyType, TablePolicies
from compaction_pipeline.core.tables.table import CatalogEntry
from compaction_pipeline_tests.builders import NOW, TABLE

POLICIES = TablePolicies(
    "uuid",
    NOW,
    asks=3,
    answered_at=NOW,
    policies=(Policy(PolicyType.EXPIRY, "keep", ("a", "b"), enabled=False, config={"max_ref_age_days": "3"}, others=("locations",)),),
    problem="HTTP 503",
)


def test_policies_of_a_table_are_kept_whole_and_can_be_forgotten(stores: Stores) -> None:
    stores.catalogs.add(CatalogEntry(TABLE.catalog, {}))
    stores.index.add(TABLE)
    assert stores.tables.state(TABLE).policies is None
    version = stores.tables.state(TABLE).index_version
    stores.policies.save(TABLE, POLICIES)
    assert stores.tables.state(TABLE).policies == POLICIES
    assert stores.tables.states()[0].policies == POLICIES
    # The index of the table is another value, so that a refresh that goes on meanwhile is not disturbed.
    assert stores.tables.state(TABLE).index_version == version
    stores.policies.save(TABLE, None)
    assert stores.tables.state(TABLE).policies is None


def test_a_table_that_is_forgotten_leaves_no_policies(stores: Stores) -> None:
    stores.catalogs.add(CatalogEntry(TABLE.catalog, {}))
    stores.index.add(TABLE)
    stores.policies.save(TABLE, POLICIES)
    stores.index.forget(TABLE)
    stores.policies.save(TABLE, POLICIES)
    stores.index.add(TABLE)
    assert stores.tables.state(TABLE).policies is None
