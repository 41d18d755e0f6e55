"""The stages of `make test`: each test runs in exactly one of them, that of its most expensive marker.

`pytest --stage=NAME` runs the tests of one stage. It imports only the folders and modules that `PLACES` names for that stage, because
to collect all tests takes as long as some stages do.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path

EVERYWHERE: tuple[str, ...] = ("",)

PLACES: Mapping[str, tuple[str, ...]] = {
    "fast": EVERYWHERE,
    "spark": ("spark", "defs/test_spark_run.py", "merging/test_memory.py", "scenarios/test_model.py"),
    "postgres": ("behaviours", "iceberg/test_sql_catalog.py", "storage"),
    "interop": ("interop",),
    "scenario": (
        "defs/test_other_host.py",
        "scenarios",
    ),
    "browser": ("browser",),
    "long": EVERYWHERE,
}
"""Where the tests of each stage lie, below the folder of this module. The stages are in the order of their cost. `fast` has no marker."""

GROUPS: Mapping[str, tuple[str, ...]] = {
    # The nodes that a test of pages or of the UI leaves are those that the next one expects. Tests of links expect others.
    "pages": ("browser/test_pages.py", "browser/test_ui.py"),
    # It has a deployment of its own, in which one run waits for the other.
    "terminated": ("browser/test_terminated.py",),
    "links": ("browser/test_deployment.py", "browser/test_two_locations.py", "browser/test_ui_links.py"),
    "demo goes on": ("scenarios/test_demo_again.py",),
    "demo was cut off": ("scenarios/test_demo_again.py::test_a_demo_that_was_cut_off",),
    "demo": ("scenarios/test_demo.py",),
    "chaos": ("scenarios/test_chaos.py",),
    "optimizers": ("scenarios/test_optimizers.py",),
    "local container": ("scenarios/test_local_container.py",),
    "standalone": ("scenarios/test_standalone_cluster.py",),
    "java": ("scenarios/test_examples.py::test_java_reads", "scenarios/test_model.py::test_every_row_stays_whatever"),
    "crash": ("scenarios/test_crash.py",),
    "keyed crash": ("scenarios/test_delta_rewrite_crash.py", "scenarios/test_keyed_crash.py"),
    "bad input": ("scenarios/test_bad_input.py",),
    "flink": (
        "interop/test_readers_and_writers_after_expiry.py",
        "interop/test_streaming_readers.py",
        "interop/test_tables_written_by_flink.py",
        "interop/test_writers_keep_committing.py",
    ),
    "s3": (
        "interop/test_catalogs_page.py",
        "interop/test_expiry_model_on_s3.py",
        "interop/test_expiry_on_s3.py",
        "interop/test_faults.py",
        "interop/test_glue.py",
        "interop/test_logins.py",
        "interop/test_readiness_of_catalogs.py",
        "interop/test_rest_catalog_on_s3.py",
        "interop/test_v3_manifests_read_by_java.py",
    ),
    "hive": (
        "interop/test_hive_commits.py",
        "interop/test_catalogs_page.py::test_the_commands_for_hive",
        "interop/test_readiness_of_catalogs.py::test_a_metastore",
    ),
}
"""Modules, and single tests by the beginning of their names, that one worker runs one after the other: they share a Dagster, or a server
that takes long to start.

Workers begin with these groups in this order, so that no long one is left for the end. A module in no group is one by itself.
"""

TESTS = Path(__file__).parent


def stage_of(markers: Collection[str]) -> str:
    """The stage of a test with these markers."""
    return next((stage for stage in reversed(PLACES) if stage in markers), "fast")


def group_of(node_id: str) -> tuple[int, str]:
    """The place in the order of groups, and the group, of a test with this id (`compaction_pipeline_tests/folder/module.py::test`)."""
    test = node_id.removeprefix(f"{TESTS.name}/")
    groups = [(len(part), number, name) for number, (name, parts) in enumerate(GROUPS.items()) for part in parts if test.startswith(part)]
    if groups:
        _, number, name = max(groups)
        return number, name
    return len(GROUPS), test.partition("::")[0]


def lies_in(stage: str, path: Path) -> bool:
    """Whether tests of this stage may lie in this module or folder."""
    return any(path.is_relative_to(TESTS / place) for place in PLACES[stage])


def leads_to(stage: str, path: Path) -> bool:
    """Whether this module or folder is in a place of the stage, or is a folder above such a place."""
    return lies_in(stage, path) or any((TESTS / place).is_relative_to(path) for place in PLACES[stage])


def misplaced(stage: str) -> str:
    """The message for a test that lies where its stage does not look."""
    return (
        f"No stage of `make test` would run this test: it has the marker {stage!r}, and PLACES[{stage!r}] in "
        "compaction_pipeline_tests/stages.py does not name its module. Move the test, or add its module there."
    )
