"""`group` and `queue`: what a person sees of groups, and what they may change."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path

from compaction_pipeline.core.queue.optimizer import Optimizer, OptimizerState
from compaction_pipeline.settings import load_settings
from compaction_pipeline.storage.stores import open_stores
from compaction_pipeline_tests.behaviours.example_tasks import LEASE, example
from compaction_pipeline_tests.builders import NOW
from compaction_pipeline_tests.cli.conftest import Desk

DEFAULT = {"group": "default", "capacity": 10_000, "order": "priority", "container": "external", "properties": {}}


def test_groups_are_made_changed_and_deleted(desk: Desk) -> None:
    assert desk.json("group", "list") == [DEFAULT]
    made = desk.json("group", "add", "heavy", "--capacity", "50", "--order", "quota", "-p", "instances=2", "-p", "memory=1024")
    assert made == {
        "group": "heavy",
        "capacity": 50,
        "order": "quota",
        "container": "external",
        "properties": {"instances": "2", "memory": "1024"},
    }
    changed = desk.json("group", "change", "heavy", "--capacity", "70", "-p", "memory=", "-p", "instances=3")
    assert changed == {**made, "capacity": 70, "properties": {"instances": "3"}}
    assert desk.json("group", "show", "heavy") == changed
    assert "heavy" in desk.type("group", "list").stdout
    assert desk.json("group", "delete", "heavy") == {"group": "heavy", "deleted": True}
    assert desk.json("group", "list") == [DEFAULT]


def test_a_secret_of_a_group_is_never_shown(desk: Desk) -> None:
    made = desk.type("group", "add", "heavy", "--container", "cluster", "-p", "spark.hadoop.fs.s3a.secret.key=hunter2")
    shown = [made, desk.type("group", "list"), desk.type("group", "show", "heavy"), desk.type("group", "list", "--json")]
    assert [answer.exit_code for answer in shown] == [0, 0, 0, 0]
    assert not [answer for answer in shown if "hunter2" in answer.stdout + answer.stderr]


def test_the_containers_of_this_host_are_listed_without_their_secrets(desk: Desk, tmp_path: Path) -> None:
    external = {"container": "external", "kind": "external", "properties": {}}
    assert desk.json("container", "list") == [external]
    file = tmp_path / "containers.yaml"
    file.write_text("workers: {kind: local, env.AWS_SECRET_ACCESS_KEY: hunter2, server: 'https://there:8787'}\n")
    settings = {"COMPACTION_CONTAINERS_FILE": str(file)}
    shown = desk.type("container", "list", "--json", **settings)
    properties = {"env.AWS_SECRET_ACCESS_KEY": "***", "server": "https://there:8787"}
    assert json.loads(shown.stdout) == [external, {"container": "workers", "kind": "local", "properties": properties}]
    assert "hunter2" not in desk.type("container", "list", **settings).stdout
    file.write_text("workers: {kind: flink}\n")
    wrong = desk.type("container", "list", **settings)
    assert (
        wrong.exit_code,
        "is 'flink' but must be one of local, spark, yarn, kubernetes, external" in " ".join(wrong.stderr.split()),
    ) == (2, True)


def test_a_person_sees_how_to_start_an_optimizer_of_a_group_by_hand(desk: Desk, tmp_path: Path) -> None:
    desk.json("group", "add", "heavy", "-p", "parallelism=4", "-p", "memory=1024")
    shown = desk.json("group", "command", "heavy")
    assert shown["command"][:9] == [
        *("compaction-pipeline", "optimizer", "--server", "https://SERVER:8787", "--group", "heavy", "--parallelism", "4", "--memory"),
    ]
    assert shown["command"][-2] == "--token-file"
    assert "optimizer --server https://SERVER:8787 --group heavy" in desk.type("group", "command", "heavy", COLUMNS="200").stdout
    assert desk.type("group", "command", "light").exit_code == 2
    desk.json("group", "change", "heavy", "--container", "workers")
    unknown = desk.type("group", "command", "heavy")
    assert (unknown.exit_code, "has no container 'workers'" in unknown.stderr) == (2, True)


def test_a_group_whose_container_fails_shows_why(desk: Desk) -> None:
    desk.json("group", "add", "heavy", "--container", "workers", "-p", "instances=1")
    stores = open_stores(load_settings().state_database_url)
    for number in range(3):
        at = NOW + timedelta(minutes=number)
        lost = Optimizer(f"o{number}", "heavy", "here", "", "", 1, at, at, OptimizerState.LOST, container="workers", why="no token")
        stores.optimizers.add(lost)
    stores.close()
    says = "container workers failed to start 3 optimizers in a row; the last time: no token; the next start is at "
    assert desk.json("group", "show", "heavy")["problem"].startswith(says)
    assert [group.get("problem", "")[: len(says)] for group in desk.json("group", "list")] == ["", says]
    assert "failed to start 3 optimizers" in desk.type("group", "list", COLUMNS="300").stdout
    assert "workers" in desk.type("optimizer", "list", "--all", COLUMNS="300").stdout
    listed = desk.type("optimizer", "list", COLUMNS="300").stdout
    assert "no optimizers run; --all shows those that ended or were lost, and why" in listed
    assert f"group heavy: {says}" in " ".join(listed.split())


def test_a_bad_request_changes_nothing_and_says_why(desk: Desk) -> None:
    for arguments, message in (
        (("add", "a b"), "the group name 'a b' must have 1 to 64 letters"),
        (("add", "default"), "group default exists already"),
        (("add", "heavy", "--capacity", "0"), "greater than or equal to 1"),
        (("add", "heavy", "-p", "instances=many"), "'instances' of group heavy is 'many' but must be a whole number"),
        (("show", "heavy"), "group 'heavy' does not exist"),
        (("change", "heavy"), "group 'heavy' does not exist"),
        (("delete", "default"), "cannot be deleted"),
    ):
        answer = desk.type("group", *arguments)
        assert answer.exit_code == 2, arguments
        assert message in " ".join(answer.stderr.replace("│", " ").split()), arguments
    assert desk.json("group", "list") == [DEFAULT]


def test_a_container_or_a_property_that_nobody_knows_is_refused_and_a_useless_one_is_told(desk: Desk, tmp_path: Path) -> None:
    file = tmp_path / "containers.yaml"
    file.write_text("workers: {kind: local}\n")
    settings = {"COMPACTION_CONTAINERS_FILE": str(file), "COLUMNS": "400"}

    def answer(*arguments: str, **environment: str) -> tuple[int, str]:
        done = desk.type("group", *arguments, **environment)
        return done.exit_code, " ".join(done.stderr.split())

    for arguments, says in (
        (
            ("--container", "wrokers"),
            f"has no container 'wrokers': the file of COMPACTION_CONTAINERS_FILE, {file}, has only external, workers",
        ),
        (
            ("--container", "workers", "-p", "instnaces=2"),
            "may have only instances, min-instances, parallelism, memory, verify-outputs, team, min-parallelism, and properties that begin "
            "with 'dynamic-allocation.': did you mean 'instances'?",
        ),
        (("-p", "spark.executor.memory=2g"), "has the property 'spark.executor.memory', but a group whose container is of kind external"),
        (("-p", "colour=red"), "has the property 'colour'"),
    ):
        code, told = answer("add", "heavy", *arguments, **settings)
        assert (code, says in told) == (2, True), told
    assert desk.json("group", "list") == [DEFAULT]
    # Without the file, nobody knows whether the container exists.
    code, told = answer("add", "heavy", "--container", "workers", COLUMNS="400")
    assert (code, "warning: nobody can tell here whether there is a container 'workers'" in told) == (0, True)
    assert answer("change", "heavy", "--capacity", "7", **settings) == (0, "")
    code, told = answer("change", "heavy", "--container", "external", "-p", "instances=1", **settings)
    assert (code, "warning: instances of group heavy has no effect, because people start" in told) == (0, True)
    # The container has left the file. The rest of the group can still be changed.
    answer("change", "heavy", "--container", "workers", **settings)
    file.write_text("others: {kind: local}\n")
    code, told = answer("change", "heavy", "--capacity", "8", **settings)
    assert (code, "gets no optimizers on this host, which has no container 'workers'" in told) == (0, True)


def test_a_queue_shows_what_waits_and_what_runs(desk: Desk) -> None:
    desk.json("group", "add", "heavy", "--capacity", "5")
    stores = open_stores(load_settings().state_database_url)
    stores.tasks.insert([example("t1", queue="heavy"), example("t2", queue="heavy")], [], NOW)
    assert stores.tasks.poll("heavy", "worker", NOW, LEASE) is not None
    stores.close()
    default, heavy = desk.json("queue", "list")
    assert (default["group"], default["waiting"], default["oldest_wait_seconds"], default["free"]) == ("default", 0, None, 10_000)
    assert (heavy["waiting"], heavy["merging"], heavy["capacity"], heavy["free"], heavy["slots"]) == (1, 1, 5, 3, 0)
    assert heavy["oldest_wait_seconds"] > 0
    assert desk.json("queue", "show", "heavy")["waiting"] == 1
    assert "2 of 5" in desk.type("queue", "list").stdout
    assert desk.type("queue", "show", "light").exit_code == 2
