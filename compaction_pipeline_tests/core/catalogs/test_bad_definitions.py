"""Every mistake of a definition is told at once, in words, with its key."""

from __future__ import annotations

import pytest

from compaction_pipeline.core.catalogs.definition import read_definition
from compaction_pipeline.core.catalogs.facts import Facts
from compaction_pipeline.core.catalogs.problem import DefinitionError
from compaction_pipeline.core.catalogs.rules import check_definition
from compaction_pipeline.services.table_filters import why_no_pattern
from compaction_pipeline_tests.core.catalogs.bad_definitions import BAD, SECRET, Bad

FACTS = Facts(why_no_pattern, groups=["default"])


def test_there_are_enough_of_them() -> None:
    assert len({bad.name for bad in BAD}) == len(BAD) >= 50
    assert sum(bad.is_of_texts for bad in BAD) >= 30


@pytest.mark.parametrize("bad", BAD, ids=[bad.name for bad in BAD])
def test_all_problems_are_told_at_once(bad: Bad) -> None:
    definition, problems = read_definition(bad.given)
    with pytest.raises(DefinitionError) as caught:
        check_definition(definition, FACTS, problems)
    assert {problem.key for problem in caught.value.problems} >= bad.keys
    if bad.keys != {""}:
        assert {problem.key for problem in caught.value.problems} == bad.keys
    assert bad.said in str(caught.value)
    assert SECRET not in str(caught.value)
    assert len(str(caught.value)) < 2_500


@pytest.mark.parametrize(
    "given",
    [
        {"name": "lake", "type": "rest", "properties": {"uri": "https://c"}, "formats": ["iceberg", "mixed-iceberg"], "group": "default"},
        {"name": "a" * 100, "type": "hive", "properties": {"uri": "thrift://a:9083,thrift://b:9083"}, "table_filter": "shop[.].*|x[.]y"},
        {"name": "lake", "properties": {"uri": "sqlite:////data/catalog.db"}, "table_properties": {"self-optimizing.quota": "0.2"}},
        {"name": "lake", "type": "glue"},
        {"name": "lake", "type": "dynamodb", "observe": True},
        {"name": "lake", "properties": {"py-catalog-impl": "a.b.C"}},
    ],
)
def test_a_right_definition_passes(given: object) -> None:
    definition, problems = read_definition(given)
    check_definition(definition, FACTS, problems)
