"""Containers on this host: real child processes, which are found, read and ended by their resource ids."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from compaction_pipeline.containers.host_containers import HostContainers
from compaction_pipeline.containers.processes import MOST_LOGS, OptimizerProcesses
from compaction_pipeline.containers.spark_submit import submit_command
from compaction_pipeline.core.errors import ConfigError, StorageUnavailable
from compaction_pipeline.core.queue.container import BY_HAND, Container, ContainerKind
from compaction_pipeline.core.queue.container_answers import Running
from compaction_pipeline.core.queue.group import ResourceGroup
from compaction_pipeline.ending.process_table import command_of, family, process_table

PATIENCE_SECONDS = 60
HEAVY = ResourceGroup("heavy", "workers", {"parallelism": "2"})
WORKERS = Container("workers", ContainerKind.LOCAL, {})
SLEEPS = "import subprocess, sys; print('hello', flush=True); subprocess.run(['sleep', '3600'])"


def wait_until(done: Callable[[], bool], what: str) -> None:
    """Look again and again, because other processes do the work. The limit only ends a test that hangs."""
    until = time.monotonic() + PATIENCE_SECONDS
    while not done():
        assert time.monotonic() < until, f"not within {PATIENCE_SECONDS} s: {what}"
        time.sleep(0.02)


def containers(folder: Path, text: str | None = None, server: str = "http://127.0.0.1:1") -> HostContainers:
    file = folder / "containers.yaml"
    if text is not None:
        file.write_text(text)
    return HostContainers(None if text is None else file, folder / "home", lambda: server, lambda: "/java")


@pytest.fixture
def resource_id() -> Iterator[str]:
    name = f"heavy-{uuid4().hex[:12]}"
    yield name
    OptimizerProcesses(Path()).stop(name)


def test_a_process_is_found_and_ended_by_its_resource_id_alone(tmp_path: Path, resource_id: str) -> None:
    processes = OptimizerProcesses(tmp_path / "optimizers")
    assert resource_id not in processes.running()
    processes.start(resource_id, [sys.executable, "-c", SLEEPS, "--resource-id", resource_id], os.environ)
    wait_until(lambda: processes.last_words(resource_id) == "hello", "the log has a line")
    log = tmp_path / "optimizers" / f"{resource_id}.log"
    assert (log.stat().st_mode & 0o777, log.parent.stat().st_mode & 0o777) == (0o600, 0o700)
    # A process that was started by another process of this program is found too.
    others = OptimizerProcesses(tmp_path / "optimizers")
    assert resource_id in others.running()
    assert f"{resource_id}-other" not in others.running()
    others.stop(f"{resource_id}-other")
    assert resource_id in others.running()
    [leader] = [entry.pid for entry in process_table() if resource_id in command_of(entry.pid)]
    assert len(family(leader, process_table())) == 2
    others.stop(resource_id)
    wait_until(lambda: resource_id not in processes.running(), "the process ends")
    wait_until(lambda: family(leader, process_table()) == [], "what it has started ends too")
    others.stop(resource_id)


def test_a_process_that_does_not_show_its_arguments_yet_is_running(tmp_path: Path) -> None:
    # While Linux begins a program, the process exists and has no arguments for a moment.
    processes = OptimizerProcesses(tmp_path, command_of=lambda pid: "")
    processes.start("heavy-1", [sys.executable, "-c", SLEEPS, "--resource-id", "heavy-1"], os.environ)
    assert processes.running() == {"heavy-1"}
    processes.stop("heavy-1")
    wait_until(lambda: processes.running() == frozenset(), "the process ends")


def test_an_optimizer_outlives_the_process_that_started_it(tmp_path: Path, resource_id: str) -> None:
    program = (
        "import os, sys; from pathlib import Path; from compaction_pipeline.containers.processes import OptimizerProcesses\n"
        f"OptimizerProcesses(Path({str(tmp_path)!r})).start({resource_id!r}, "
        f"[sys.executable, '-c', {SLEEPS!r}, '--resource-id', {resource_id!r}], os.environ)\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=PATIENCE_SECONDS)
    assert resource_id in OptimizerProcesses(tmp_path).running()


def test_a_process_that_has_ended_is_not_running_and_its_last_line_stays(tmp_path: Path, resource_id: str) -> None:
    processes = OptimizerProcesses(tmp_path)
    processes.start(resource_id, [sys.executable, "-c", "print('one'); print(' no token '); print()", "--resource-id", resource_id], {})
    wait_until(lambda: resource_id not in processes.running(), "the process ends")
    assert processes.last_words(resource_id) == "no token"
    assert processes.last_words("unknown") == ""


def test_the_last_line_of_a_log_is_shown_without_the_password_of_a_url(tmp_path: Path) -> None:
    (tmp_path / "r.log").write_text("Traceback\nConnectionError: jdbc:postgresql://lake:s3cret@db/lake?token=abc is not there\n")
    assert OptimizerProcesses(tmp_path).last_words("r") == "ConnectionError: jdbc:postgresql://lake:***@db/lake?token=*** is not there"


def test_a_program_that_does_not_exist_is_a_clear_error(tmp_path: Path) -> None:
    with pytest.raises(StorageUnavailable, match="optimizer r cannot be started"):
        OptimizerProcesses(tmp_path).start("r", [str(tmp_path / "missing")], {})


def test_a_variable_that_no_process_can_have_is_a_clear_error(tmp_path: Path) -> None:
    found = containers(tmp_path, "workers: {kind: local, env.A=B: x}\n")
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "optimizer.token").write_text("secret")
    with pytest.raises(StorageUnavailable, match="optimizer r cannot be started: illegal environment variable name"):
        found.start(found.container("workers"), HEAVY, "r")


def test_only_the_newest_logs_are_kept(tmp_path: Path, resource_id: str) -> None:
    for number in range(MOST_LOGS + 5):
        path = tmp_path / f"{number}.log"
        path.write_text("")
        os.utime(path, (number, number))
        path.with_suffix(".conf").write_text("")
    OptimizerProcesses(tmp_path).start(resource_id, [sys.executable, "-c", ""], {})
    names = {path.stem for path in tmp_path.glob("*.log")}
    assert len(names) == MOST_LOGS
    assert {resource_id, str(MOST_LOGS + 4)} <= names
    assert "5" not in names
    assert len(list(tmp_path.glob("*.conf"))) == MOST_LOGS - 1


def test_the_file_is_read_anew_each_time(tmp_path: Path) -> None:
    found = containers(tmp_path, "workers: {kind: local}\n")
    assert found.container("workers") == WORKERS
    (tmp_path / "containers.yaml").write_text("cluster: {kind: spark, master: yarn}\n")
    assert sorted(found.containers()) == ["cluster", "external"]
    with pytest.raises(
        ConfigError, match=r"has no container 'workers': the file of COMPACTION_CONTAINERS_FILE, .* has only cluster, external"
    ):
        found.container("workers")
    for text, says in (("a: [", "which is no YAML"), ("a: {kind: x}", "'kind' of container 'a'")):
        (tmp_path / "containers.yaml").write_text(text)
        with pytest.raises(ConfigError, match=says):
            found.containers()
    (tmp_path / "containers.yaml").unlink()
    with pytest.raises(ConfigError, match="cannot be read: No such file"):
        found.containers()


def test_without_a_file_there_is_only_the_container_of_people(tmp_path: Path) -> None:
    found = containers(tmp_path, server="")
    assert found.containers() == {"external": BY_HAND}
    with pytest.raises(ConfigError, match="COMPACTION_CONTAINERS_FILE is not set, so there is only external"):
        found.container("workers")
    assert found.arguments(BY_HAND, HEAVY)[:3] == ("optimizer", "--server", "https://SERVER:8787")


def test_an_optimizer_is_not_started_without_its_token_or_with_a_wrong_property(tmp_path: Path) -> None:
    found = containers(tmp_path)
    with pytest.raises(ConfigError, match=r"the token file .*optimizer\.token of container workers cannot be read"):
        found.start(WORKERS, HEAVY, "r")
    with pytest.raises(ConfigError, match="has the property 'paralelism'"):
        found.start(WORKERS, ResourceGroup("heavy", "workers", {"paralelism": "1"}), "r")
    assert not (tmp_path / "home" / "optimizers").exists()


def test_a_local_optimizer_gets_the_servers_environment_without_its_database(
    tmp_path: Path, resource_id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COMPACTION_STATE_URL", "postgresql://me:hunter2@db/state")
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "optimizer.token").write_text("id.secret")
    # It does not find a server at this address, and says so in its log.
    found = containers(tmp_path)
    own = Container("workers", ContainerKind.LOCAL, {"env.COMPACTION_MERGE_ENGINE": "in-process", "env.COMPACTION_HOME": str(tmp_path)})
    found.start(own, ResourceGroup("heavy", "workers"), resource_id)
    wait_until(lambda: found.running(own) == Running(OptimizerProcesses(tmp_path).running() - {resource_id}), "the process ends")
    assert "http://127.0.0.1:1/api/v1 did not answer" in found.last_words(own, resource_id)
    assert "hunter2" not in (tmp_path / "home" / "optimizers" / f"{resource_id}.log").read_text()
    assert not (tmp_path / "state.db").exists()


def test_the_properties_of_spark_go_through_a_file_for_its_owner_only(tmp_path: Path) -> None:
    cluster = Container("cluster", ContainerKind.SPARK, {"master": "spark://m:7077", "deploy-mode": "client"})
    secret = {"spark.hadoop.fs.s3a.secret.key": "a\\b\nc", "spark.x": " y"}
    command = submit_command(cluster, "heavy-1", ["optimizer", "--resource-id", "heavy-1"], secret, tmp_path)
    file = tmp_path / "heavy-1.conf"
    assert file.read_text() == "spark.hadoop.fs.s3a.secret.key=a\\\\b\\nc\nspark.x=\\ y\n"
    assert file.stat().st_mode & 0o777 == 0o600
    assert Path(command[0]).is_file()
    assert command[1:] == [
        *("--master", "spark://m:7077", "--deploy-mode", "client", "--name", "compaction-pipeline heavy-1"),
        *("--properties-file", str(file), "--load-spark-defaults", str(tmp_path / "optimizer_program.py")),
        *("optimizer", "--resource-id", "heavy-1"),
    ]
    with pytest.raises(ConfigError, match=r"'spark\.a b' has a character"):
        submit_command(cluster, "heavy-1", [], {"spark.a b": "1"}, tmp_path)
