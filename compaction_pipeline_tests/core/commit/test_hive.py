"""When a commit to a table of Hive takes a lock, when it must not be made, and what a metastore's answer proves."""

from __future__ import annotations

import pytest

from compaction_pipeline.core.catalogs.definition import CatalogDefinition
from compaction_pipeline.core.catalogs.rules import problems_of
from compaction_pipeline.core.commit.answers import Answer
from compaction_pipeline.core.commit.hive import CHECKS_EXPECTED_PARAMETER, LOCK_ENABLED, LOCKS, Guard, guard_of, of_hive

_DECLARED = {CHECKS_EXPECTED_PARAMETER: "true"}
_OTHER = {LOCKS: "other"}


@pytest.mark.parametrize(
    ("catalog", "table", "guard"),
    [
        ({}, {}, Guard(takes_lock=True, checked=False)),
        ({}, {LOCK_ENABLED: "TRUE"}, Guard(takes_lock=True, checked=False)),
        (_DECLARED, {}, Guard(takes_lock=True, checked=True)),
        (_DECLARED, {LOCK_ENABLED: "false"}, Guard(takes_lock=False, checked=True)),
        (_DECLARED, {LOCK_ENABLED: "0"}, Guard(takes_lock=False, checked=True)),
        ({**_DECLARED, **_OTHER}, {}, Guard(takes_lock=False, checked=True)),
    ],
)
def test_a_lock_is_taken_unless_the_table_or_its_fleet_takes_none(catalog: dict[str, str], table: dict[str, str], guard: Guard) -> None:
    assert guard_of(catalog, table) == guard


@pytest.mark.parametrize(
    ("catalog", "table", "said"),
    [
        ({}, {LOCK_ENABLED: "false"}, f"declare that with {CHECKS_EXPECTED_PARAMETER}=true"),
        ({CHECKS_EXPECTED_PARAMETER: "false"}, {LOCK_ENABLED: "false"}, f"declare that with {CHECKS_EXPECTED_PARAMETER}=true"),
        (_OTHER, {}, "so it only observes"),
        ({LOCKS: "zookeeper"}, {}, "'hive.locks' is 'zookeeper' but must be metastore or other"),
        ({CHECKS_EXPECTED_PARAMETER: "yes"}, {}, "'hive.checks-expected-parameter' is 'yes' but must be true or false"),
    ],
)
def test_without_a_lock_the_metastore_must_be_declared_to_check(catalog: dict[str, str], table: dict[str, str], said: str) -> None:
    guard = guard_of(catalog, table)
    assert isinstance(guard, str)
    assert said in guard


@pytest.mark.parametrize(
    ("properties", "observe", "keys"),
    [
        ({}, False, []),
        (_OTHER, False, ["observe"]),
        (_OTHER, True, []),
        ({**_OTHER, **_DECLARED}, False, []),
        ({LOCKS: "zookeeper", CHECKS_EXPECTED_PARAMETER: "yes"}, False, [LOCKS, CHECKS_EXPECTED_PARAMETER]),
    ],
)
def test_a_definition_says_whether_its_tables_may_be_committed_to(properties: dict[str, str], observe: bool, keys: list[str]) -> None:
    definition = CatalogDefinition("lake", {"type": "hive", "uri": "thrift://host:9083", **properties}, observe)
    assert [problem.key for problem in problems_of(definition)] == keys


@pytest.mark.parametrize(
    ("kind", "said", "answer"),
    [
        ("MetaException", "The table has been modified. The parameter value for key 'metadata_location' is 'b'.", Answer.LOST_RACE),
        ("MetaException", "The metadata of db.t has changed", Answer.LOST_RACE),
        ("MetaException", "java.security.AccessControlException: Permission denied: user=a, access=WRITE", Answer.REFUSED),
        ("MetaException", "javax.jdo.JDODataStoreException: Communications link failure", Answer.UNKNOWN),
        ("InvalidOperationException", "The table has been modified", Answer.UNKNOWN),
        ("TApplicationException", "Internal error processing alter_table_with_environment_context", Answer.UNKNOWN),
    ],
)
def test_an_answer_of_a_metastore_proves_only_what_is_known(kind: str, said: str, answer: Answer) -> None:
    assert of_hive(kind, said) is answer
