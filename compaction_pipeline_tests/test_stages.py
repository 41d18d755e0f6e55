"""Each test runs in exactly one stage, and that stage finds it."""

from __future__ import annotations

import pytest

from compaction_pipeline_tests.conftest import pytest_collection_modifyitems, pytest_runtest_setup
from compaction_pipeline_tests.stages import GROUPS, PLACES, TESTS, group_of, leads_to, lies_in, stage_of


@pytest.mark.parametrize(
    ("markers", "stage"),
    [
        ((), "fast"),
        (("parametrize", "timeout"), "fast"),
        (("spark",), "spark"),
        (("scenario", "spark", "postgres"), "scenario"),
        (("interop", "long"), "long"),
    ],
)
def test_a_test_belongs_to_the_stage_of_its_most_expensive_marker(markers: tuple[str, ...], stage: str) -> None:
    assert stage_of(markers) == stage


@pytest.mark.parametrize("stage", PLACES)
def test_every_place_of_a_stage_is_there_and_is_reached(stage: str) -> None:
    for place in PLACES[stage]:
        path = TESTS / place
        assert path.exists()
        assert lies_in(stage, path)
        assert all(leads_to(stage, folder) for folder in (path, *path.parents))


def test_a_stage_leaves_out_what_is_beside_its_places() -> None:
    for path in (TESTS / "interop", TESTS / "core" / "test_words.py", TESTS / "scenarios" / "test_crash.py", TESTS / "spark_other"):
        assert not leads_to("spark", path)
    assert not lies_in("spark", TESTS)
    assert not lies_in("fast", TESTS.parent / "test_elsewhere.py")


def test_every_part_of_a_group_is_there() -> None:
    for group, parts in GROUPS.items():
        for part in parts:
            module, _, test = part.partition("::")
            assert f"def {test}" in (TESTS / module).read_text(), part
            assert group_of(f"{TESTS.name}/{part}")[1] == group


@pytest.mark.parametrize(
    ("test", "group"),
    [
        ("interop/test_hive_commits.py::test_x[a]", "hive"),
        ("interop/test_catalogs_page.py::test_the_commands_for_hive", "hive"),
        ("interop/test_catalogs_page.py::test_the_commands_for_glue", "s3"),
        ("interop/test_hdfs.py::test_x", "interop/test_hdfs.py"),
    ],
)
def test_a_test_belongs_to_the_group_that_names_it_or_its_module_or_else_to_its_module(test: str, group: str) -> None:
    assert group_of(f"{TESTS.name}/{test}")[1] == group


def test_a_test_that_its_stage_would_not_find_fails_in_every_stage(request: pytest.FixtureRequest) -> None:
    """This test itself is the example. It gets the marker of another stage."""
    item = request.node
    pytest_runtest_setup(item)
    item.add_marker("interop")
    items = [item]
    pytest_collection_modifyitems(request.config, items)
    assert items == [item]
    with pytest.raises(pytest.fail.Exception, match="it has the marker 'interop', and PLACES"):
        pytest_runtest_setup(item)
