"""Policies of a catalog: what they forbid is forbidden, what they say of a size counts below the table's own properties, and each is told.

The answers are built after `spec/polaris-catalog-apis/policy-apis.yaml` and the schemas of Polaris, commit
4b42186383089e2083ba857a0211c4ab36965703. Polaris has no recorded answers of this endpoint: its own tests compare values in Java
(`PolarisPolicyServiceIntegrationTest`).
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from compaction_pipeline.core.fragmentation.verdict import PlanReasonCode
from compaction_pipeline.core.planning.plan import PlanRequest
from compaction_pipeline.core.tables.policies import TablePolicies, inherited, read_policies
from compaction_pipeline.core.tables.properties import resolve_properties
from compaction_pipeline.core.tables.table import CatalogEntry
from compaction_pipeline.core.upkeep.works import UpkeepWork
from compaction_pipeline.core.work.kinds import CompactionType
from compaction_pipeline_tests.iceberg.lake import LakeTable
from compaction_pipeline_tests.rest_catalog import Call, RestServer, rest_server, status
from compaction_pipeline_tests.services.house import House
from compaction_pipeline_tests.services.upkeep.cleaning import local
from compaction_pipeline_tests.services.upkeep.expiring import DAY, HOUR

MINUTES_10 = 600
COMPACTION, EXPIRY = "system.data-compaction", "system.snapshot-expiry"
ORPHANS, METADATA = "system.orphan-file-removal", "system.metadata-compaction"


def policy(kind: str, enable: object = True, content: dict[str, Any] | str | None = None, name: str = "", **config: Any) -> dict[str, Any]:
    """An `ApplicablePolicy` of the specification."""
    if not isinstance(content, str):
        content = json.dumps({"version": "2025-02-03", "enable": enable, **({"config": config} if config else {}), **(content or {})})
    return {
        "policy-type": kind,
        "inheritable": True,
        "name": name or kind.removeprefix("system."),
        "description": "",
        "content": content,
        "version": 0,
        "inherited": True,
        "namespace": ["finance"],
    }


def told(*policies: dict[str, Any]) -> dict[str, Any]:
    return {"applicable-policies": list(policies)}


class Catalog:
    """A REST catalog with policies, in front of the lake of the house."""

    def __init__(self, house: House, server: RestServer) -> None:
        self.house = house
        self.server = server
        self.policies: list[dict[str, Any]] = []
        self.fault: Any = None
        server.overrides = {"prefix": "finance_catalog"}
        server.policies = self.answer
        self.asked: list[dict[str, list[str]]] = []

    def answer(self, call: Call) -> None:
        parts = urlsplit(call.path)
        assert parts.path == "/polaris/v1/finance_catalog/applicable-policies"
        self.asked.append(parse_qs(parts.query))
        if self.fault is not None:
            self.fault(call)
        else:
            call.answer(200, told(*self.policies))

    def behind(self) -> None:
        self.house.services.stores.catalogs.replace(CatalogEntry("lake", {"type": "rest", "uri": self.server.uri}))


@pytest.fixture
def catalog(house: House) -> Iterator[Catalog]:
    with rest_server(house.lake.catalog) as server:
        yield Catalog(house, server)


def looked(house: House, table: LakeTable) -> TablePolicies | None:
    house.services.refresh_files.refresh(table.identifier)
    return house.services.stores.tables.state(table.identifier).policies


def reason(house: House, table: LakeTable) -> tuple[PlanReasonCode, str]:
    found = house.services.plan_tables.plan(table.identifier).plan.reason
    return found.code, found.text


def test_a_policy_that_forbids_compaction_wins_over_everything_and_is_the_reason(house: House, catalog: Catalog) -> None:
    table = house.fragmented("t", 12, self_optimizing__enabled="true")
    catalog.behind()
    catalog.policies = [policy(COMPACTION, False, name="no-compaction")]
    looked(house, table)
    forced = PlanRequest(frozenset({CompactionType.FULL}), force=True)  # type: ignore[arg-type]
    for plan in (house.services.plan_tables.plan(table.identifier).plan, house.services.plan_tables.explain(table.identifier, forced)):
        assert plan.reason.code is PlanReasonCode.DISABLED
        assert plan.reason.text.startswith("policy of the catalog: 'finance.no-compaction' (system.data-compaction) has 'enable' = false")
    detail = house.services.read_tables.table(table.identifier)
    assert detail.overview.reason.startswith("policy of the catalog: ")
    assert [says.startswith("policy of the catalog: ") for says in detail.catalog_says] == [True]
    assert detail.overview.score.remedy.startswith("nothing to do: policy of the catalog: ")
    catalog.policies = [policy(COMPACTION, True)]
    house.pass_time(MINUTES_10)
    looked(house, table)
    assert table.identifier in house.services.tables_in_line.worth_planning()
    assert reason(house, table)[0] is PlanReasonCode.PLANNED


def test_the_catalog_is_asked_once_in_ten_minutes_and_counts_its_questions(house: House, catalog: Catalog) -> None:
    table = house.fragmented("t", 3)
    catalog.behind()
    for _ in range(3):
        looked(house, table)
    assert catalog.asked == [{"namespace": ["db"], "target-name": ["t"]}]
    house.pass_time(MINUTES_10 - 1)
    looked(house, table)
    assert len(catalog.asked) == 1
    house.pass_time(1)
    policies = looked(house, table)
    assert policies is not None
    assert (len(catalog.asked), policies.asks) == (2, 2)


def test_another_table_under_the_name_is_asked_for_at_once(house: House, catalog: Catalog) -> None:
    table = house.fragmented("t", 3)
    catalog.behind()
    catalog.policies = [policy(COMPACTION, False)]
    looked(house, table)
    house.lake.catalog.drop_table(("db", "t"))
    again = house.lake.table("t")
    catalog.policies = []
    policies = looked(house, again)
    assert policies is not None
    assert (len(catalog.asked), policies.policies) == (2, ())


def test_a_catalog_that_names_no_endpoint_is_not_asked(house: House, catalog: Catalog) -> None:
    table = house.fragmented("t", 12)
    catalog.server.policies = None
    catalog.server.overrides = {}
    catalog.behind()
    assert looked(house, table) is None
    assert catalog.server.count("GET /polaris") == 0
    assert reason(house, table)[0] is PlanReasonCode.PLANNED


FAULTS: dict[str, Any] = {
    "503": status(503),
    "403": status(403),
    "404": status(404),
    "no JSON": lambda call: call.answer_page(200, "<html>login</html>"),
    "cut": lambda call: call.answer(200, told(), cut=True),
    "no list": lambda call: call.answer(200, {"policies": []}),
    "no object": lambda call: call.answer(200, []),
    "bad content": lambda call: call.answer(200, told(policy(COMPACTION, content="{"))),
    "no enable": lambda call: call.answer(200, told(policy(COMPACTION, enable="false"))),
    "two of a type": lambda call: call.answer(200, told(policy(COMPACTION, True), policy(COMPACTION, False, name="other"))),
    "endless pages": lambda call: call.answer(200, {**told(), "next-page-token": "more"}),
}


def test_before_the_first_answer_nothing_is_compacted(house: House, catalog: Catalog) -> None:
    table = house.fragmented("t", 12)
    catalog.behind()
    catalog.fault = status(403)
    first = looked(house, table)
    assert first is not None
    assert first.answered_at is None
    code, text = reason(house, table)
    assert (code, "did not tell them yet" in text) == (PlanReasonCode.DISABLED, True)
    catalog.fault = None
    house.pass_time(MINUTES_10)
    looked(house, table)
    assert reason(house, table)[0] is PlanReasonCode.PLANNED


def test_without_an_answer_nothing_is_deleted_and_the_last_answer_counts_for_compaction(house: House, catalog: Catalog) -> None:
    table = house.fragmented("t", 12)
    catalog.behind()
    looked(house, table)
    for name, fault in FAULTS.items():
        catalog.fault = fault
        house.pass_time(MINUTES_10)
        after = looked(house, table)
        assert after is not None, name
        assert after.problem is not None, name
        assert house.services.plan_tables.explain(table.identifier).reason.code is PlanReasonCode.PLANNED, name
        for refused in (
            house.services.expire_snapshots.expire(table.identifier).stores[0].refusal,
            house.services.clean_orphans.delete(table.identifier).refusals[0],
        ):
            assert refused is not None, name
            assert refused.startswith("policy of the catalog: it does not tell now whether this is allowed: "), name
    assert after.asks == len(FAULTS) + 1


FORBIDDEN = {
    EXPIRY: {UpkeepWork.SNAPSHOTS, UpkeepWork.CHANGE_FILES},
    ORPHANS: {UpkeepWork.ORPHAN_FILES},
    METADATA: {UpkeepWork.MANIFESTS},
    COMPACTION: set[UpkeepWork](),
}


def test_each_policy_forbids_its_own_work(house: House, catalog: Catalog) -> None:
    table = house.fragmented("t", 3)
    catalog.behind()
    why_not = house.services._why_not_change
    for kind, forbidden in FORBIDDEN.items():
        catalog.policies = [policy(kind, False), *(policy(other) for other in FORBIDDEN.keys() - {kind})]
        house.pass_time(MINUTES_10)
        looked(house, table)
        found = {work: why_not.by_policy(table.identifier, work) for work in UpkeepWork}
        assert {work for work, why in found.items() if why is not None} == forbidden
        assert all(why.startswith(f"policy of the catalog: 'finance.{kind[7:]}' ({kind})") for why in found.values() if why is not None)


def test_a_policy_that_comes_between_two_batches_stops_an_expiry(house: House, catalog: Catalog) -> None:
    table = house.fragmented("t", 12)
    catalog.behind()
    assert house.services.compact_tables.compact(table.identifier).committed
    house.pass_time(6 * DAY)
    assert house.services.expire_snapshots.expire(table.identifier).stores[0].record is not None
    house.pass_time(2 * HOUR)

    def comes(step: str) -> None:
        if step == "content-deleted":
            catalog.policies = [policy(EXPIRY, False)]
            house.pass_time(MINUTES_10)

    stores: Any = house.services._snapshot_stores
    stores._on_step = comes
    (record,) = house.services.expire_snapshots.expire(table.identifier).earlier
    assert (record.deleted.content_files, record.deleted.manifests) == (12, 0)
    refusal = house.services.expire_snapshots.expire(table.identifier).stores[0].refusal
    assert refusal is not None
    assert "'finance.snapshot-expiry' (system.snapshot-expiry)" in refusal
    for removed in record.removed:
        assert removed.manifest_list is not None
        assert local(removed.manifest_list).exists()


def test_the_answers_of_polariss_own_tests_are_understood() -> None:
    """`testPolicyMapping` of `PolarisPolicyServiceIntegrationTest`: a table with policies of its own, of its namespace and of its catalog.

    The contents there have neither a version nor a `config`.
    """
    kinds = {"NS1_P1": COMPACTION, "NS1_P2": METADATA, "NS1_P3": ORPHANS}
    listed = [
        {
            "policy-type": kind,
            "inheritable": True,
            "name": name,
            "description": "test policy",
            "content": '{"enable":true}' if name == "NS1_P1" else '{"enable":false}',
            "version": 0,
            "inherited": name != "NS1_P3",
            "namespace": ["NS1"],
        }
        for name, kind in kinds.items()
    ]
    found = read_policies([{"next-page-token": None, "applicable-policies": listed}])
    assert [(one.in_words, one.enabled, one.ignored) for one in found] == [
        ("'NS1.NS1_P1' (system.data-compaction)", True, ()),
        ("'NS1.NS1_P2' (system.metadata-compaction)", False, ()),
        ("'NS1.NS1_P3' (system.orphan-file-removal)", False, ()),
    ]


@pytest.mark.parametrize("content", ["", "null", "{}", '{"enable": invalidToken}', '{"enable": null}', '{"enable": "invalid"}'])
def test_contents_that_polaris_refuses_are_no_policies_here_either(content: str) -> None:
    """Those of Polaris's `MaintenancePolicyContentTest` in which nothing says whether the work is allowed."""
    with pytest.raises(ValueError, match="the content of policy"):
        read_policies([told(policy(COMPACTION, content=content))])


def test_the_examples_of_polariss_schemas_are_understood() -> None:
    """The `examples` in `schemas/policies/system/*/2025-02-03.json`, of which the target size alone is taken."""
    answer = told(
        policy(COMPACTION, **{"target_file_size_bytes": 134_217_728, "max-concurrent-file-group-rewrites": 5, "key1": "value1"}),
        policy(METADATA, spec_id=1, key1="value1"),
        policy(EXPIRY, min_snapshot_to_keep=1, max_snapshot_age_days=2, max_ref_age_days=3, key1="value1"),
        policy(ORPHANS, content={"max_orphan_file_age_in_days": 30, "locations": ["s3://my-bucket/my-table-location"]}, key1="value1"),
    )
    policies = TablePolicies("uuid", asked_at=None, policies=read_policies([answer]))  # type: ignore[arg-type]
    assert resolve_properties({}, inherited({}, policies)).target_size_bytes == 134_217_728
    assert {one.type.value: one.ignored for one in policies.policies} == {
        COMPACTION: ("key1", "max-concurrent-file-group-rewrites"),
        METADATA: ("key1", "spec_id"),
        EXPIRY: ("key1", "max_ref_age_days", "max_snapshot_age_days", "min_snapshot_to_keep"),
        ORPHANS: ("key1", "locations", "max_orphan_file_age_in_days"),
    }


@pytest.mark.parametrize(
    ("own", "registered", "size"),
    [
        ({}, {}, 1_000_000),
        ({"write.target-file-size-bytes": "2000000"}, {}, 2_000_000),
        ({"self-optimizing.target-size": "3000000"}, {}, 3_000_000),
        ({}, {"table.self-optimizing.target-size": "4000000"}, 4_000_000),
        ({}, {"table.write.target-file-size-bytes": "5000000"}, 5_000_000),
    ],
)
def test_only_the_target_size_is_taken_and_table_properties_win(own: dict[str, str], registered: dict[str, str], size: int) -> None:
    answer = told(policy(COMPACTION, target_file_size_bytes=1_000_000, compaction_strategy="bin-pack"))
    policies = TablePolicies("uuid", asked_at=None, policies=read_policies([answer]))  # type: ignore[arg-type]
    assert resolve_properties(own, inherited(registered, policies)).target_size_bytes == size
    assert policies.ignored == ("policy 'finance.data-compaction' (system.data-compaction): 'compaction_strategy' without effect here",)


@pytest.mark.parametrize("value", ["-1", 0, 2**61, "many", True, None])
def test_a_size_that_is_none_is_not_taken(value: object) -> None:
    policies = TablePolicies(
        "uuid",
        asked_at=None,  # type: ignore[arg-type]
        policies=read_policies([told(policy(COMPACTION, target_file_size_bytes=value))]),
    )
    assert inherited({}, policies) == {}


def test_what_is_ignored_of_other_policies_is_named() -> None:
    answer = told(
        policy(ORPHANS, content={"max_orphan_file_age_in_days": 30, "locations": ["s3://bucket"]}, prefix_mismatch_mode="ignore"),
        policy(EXPIRY, min_snapshot_to_keep=1),
        {**policy(COMPACTION), "policy-type": "custom.other"},
    )
    policies = TablePolicies("uuid", asked_at=None, policies=read_policies([answer]))  # type: ignore[arg-type]
    assert policies.ignored == (
        "policy 'finance.orphan-file-removal' (system.orphan-file-removal): 'locations', 'max_orphan_file_age_in_days', "
        "'prefix_mismatch_mode' without effect here",
        "policy 'finance.snapshot-expiry' (system.snapshot-expiry): 'min_snapshot_to_keep' without effect here",
    )


def test_a_new_target_size_of_a_policy_judges_the_nodes_anew(house: House, catalog: Catalog) -> None:
    table = house.fragmented("t", 12)
    catalog.behind()
    looked(house, table)
    (before,) = house.services.stores.tables.nodes(table.identifier)
    catalog.policies = [policy(COMPACTION, target_file_size_bytes=2_000)]
    house.pass_time(MINUTES_10)
    looked(house, table)
    (after,) = house.services.stores.tables.nodes(table.identifier)
    assert before.metrics != after.metrics
