"""The examples of `deploy/` are valid, agree with themselves, and start the program with options and settings that it has."""

from __future__ import annotations

import configparser
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml
from typer.main import get_command

from compaction_pipeline.api.app import http_app
from compaction_pipeline.cli.main import app, seconds_to_end
from compaction_pipeline.containers.kind import Start
from compaction_pipeline.containers.kubernetes_job import job_of
from compaction_pipeline.core.queue.container import check_group_keys, containers_of, optimizer_arguments
from compaction_pipeline.core.queue.group import ResourceGroup
from compaction_pipeline.settings import Settings
from compaction_pipeline_tests.opened import OpenedServices

DEPLOY = Path(__file__).parents[1] / "deploy"
UNITS = sorted((DEPLOY / "systemd").glob("*.service"))
MANIFESTS = sorted((DEPLOY / "kubernetes").glob("*.yaml"))
RESOURCES = [resource for manifest in MANIFESTS for resource in yaml.safe_load_all(manifest.read_text())]
PROGRAM = "/opt/compaction/bin/compaction-pipeline"
SETTINGS = {f"COMPACTION_{name.upper()}" for name in Settings.model_fields}


def named(resource: Any) -> str:
    return f"{resource['kind']} {resource['metadata']['name']}"


def deployments() -> dict[str, Any]:
    return {each["metadata"]["name"]: each["spec"] for each in RESOURCES if each["kind"] == "Deployment"}


def containers(spec: Any) -> Iterator[Any]:
    pod = spec["template"]["spec"]
    yield from pod.get("initContainers", [])
    yield from pod["containers"]


def check_command(arguments: list[str]) -> None:
    """Parse a command line of the program, and run nothing. A wrong command, option or value is an error."""
    command: Any = get_command(app)
    context = command.make_context("compaction-pipeline", list(arguments), resilient_parsing=True)
    name, rest = arguments[0], arguments[1:]
    command = command.get_command(context, name)
    while rest and hasattr(command, "list_commands") and rest[0] in command.list_commands(context):
        command, rest = command.get_command(context, rest[0]), rest[1:]
    if hasattr(command, "list_commands"):
        assert command.invoke_without_command, f"No such command: {arguments}"
        assert not any(word in rest for word in command.list_commands(context))
    parsed = command.make_context(name, rest)
    assert not [*parsed.args, *getattr(parsed, "_protected_args", [])], f"No such command: {arguments}"


@pytest.mark.parametrize("resource", [each for each in RESOURCES if "keda" not in each["apiVersion"]], ids=named)
def test_a_resource_fits_the_schema_of_kubernetes(resource: Any) -> None:
    kubernetes_validate.validate(resource, kubernetes_validate.latest_version(), strict=True)


@pytest.mark.parametrize("arguments", [["serve", "--prt", "1"], ["serve", "--port", "0"], ["state", "upgrad"], ["optimizer", "lst"]])
def test_a_wrong_option_or_command_would_be_found(arguments: list[str]) -> None:
    with pytest.raises(Exception, match=r"No such|greater than or equal to 1"):
        check_command(arguments)


def test_a_misspelt_key_would_be_found() -> None:
    broken = {**RESOURCES[0], "stringdata": {}}
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(broken, kubernetes_validate.latest_version(), strict=True)


@pytest.mark.parametrize("name", sorted(deployments()))
def test_a_pod_starts_the_program_with_settings_that_exist(name: str) -> None:
    for container in containers(deployments()[name]):
        check_command(container["args"])
        names = {variable["name"] for variable in container["env"]}
        assert {each for each in names if each.startswith("COMPACTION_")} <= SETTINGS
        assert container["image"].endswith(f"/compaction-pipeline:{version('compaction-pipeline')}")
        assert all(each in names for argument in container["args"] for each in re.findall(r"\$\((\w+)\)", argument))


@pytest.mark.parametrize("name", sorted(deployments()))
def test_a_pod_mounts_what_it_names(name: str) -> None:
    spec = deployments()[name]
    secrets = {each["metadata"]["name"]: each["stringData"] for each in RESOURCES if each["kind"] == "Secret"}
    maps = {each["metadata"]["name"]: each["data"] for each in RESOURCES if each["kind"] == "ConfigMap"}
    accounts = {each["metadata"]["name"] for each in RESOURCES if each["kind"] == "ServiceAccount"}
    pod = spec["template"]["spec"]
    assert spec["selector"]["matchLabels"].items() <= spec["template"]["metadata"]["labels"].items()
    assert {pod["serviceAccountName"]} <= accounts if "serviceAccountName" in pod else not pod["automountServiceAccountToken"]
    files = {volume["name"]: set(maps[volume["configMap"]["name"]]) for volume in pod["volumes"] if "configMap" in volume}
    for volume in pod["volumes"]:
        secret = volume.get("secret")
        if secret is not None:
            keys = {item["path"]: item["key"] for item in secret.get("items", [])} or {key: key for key in secrets[secret["secretName"]]}
            assert set(keys.values()) <= set(secrets[secret["secretName"]])
            files[volume["name"]] = set(keys)
    for container in containers(spec):
        mounted = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
        assert set(mounted) <= {volume["name"] for volume in pod["volumes"]}
        present = {f"{mounted[volume]}/{name}" for volume, names in files.items() if volume in mounted for name in names}
        assert {argument for argument in container["args"] if argument.startswith("/etc/")} <= present
        for variable in container["env"]:
            key = variable.get("valueFrom", {}).get("secretKeyRef")
            assert key is None or key["key"] in secrets[key["name"]]
        assert {variable.get("value", "") for variable in container["env"] if variable.get("value", "").startswith("/etc/")} <= present
        assert {"COMPACTION_HOME"} <= {variable["name"] for variable in container["env"]}


def test_the_container_of_the_manifest_starts_jobs_that_fit_the_manifest() -> None:
    [described] = [each["data"]["containers.yaml"] for each in RESOURCES if each["kind"] == "ConfigMap"]
    pods = containers_of(yaml.safe_load(described), "the ConfigMap")["pods"]
    group = ResourceGroup("heavy", "pods", {"parallelism": "4", "memory": str(6 * 2**30), "cpu": "4"})
    check_group_keys(pods, group)
    arguments = optimizer_arguments(pods, group, "", "", "heavy-1")
    check_command(list(arguments))
    job = job_of(Start(pods, group, "heavy-1", arguments))
    own, ours = job["spec"]["template"]["spec"], deployments()["compaction-optimizer"]["template"]["spec"]
    # It is the optimizer of the Deployment, once.
    [container], [other] = own["containers"], ours["containers"]
    assert container["securityContext"] == other["securityContext"]
    assert (own["securityContext"], own["terminationGracePeriodSeconds"]) == (
        ours["securityContext"],
        ours["terminationGracePeriodSeconds"],
    )
    assert container["image"] == other["image"]
    assert {volume["secret"]["secretName"] for volume in own["volumes"] if "secret" in volume} == {
        volume["secret"]["secretName"] for volume in ours["volumes"] if "secret" in volume
    }
    [role] = [each for each in RESOURCES if each["kind"] == "Role"]
    assert (role["metadata"]["namespace"],) == pods.namespaces
    asked = {(verb, resource) for rule in role["rules"] for resource in rule["resources"] for verb in rule["verbs"]}
    assert asked == {
        *((verb, "jobs") for verb in ("create", "list", "delete")),
        ("list", "pods"),
        ("list", "resourcequotas"),
    }
    [binding] = [each for each in RESOURCES if each["kind"] == "RoleBinding"]
    assert binding["roleRef"]["name"] == role["metadata"]["name"]
    assert [each["name"] for each in binding["subjects"]] == [deployments()["compaction-server"]["template"]["spec"]["serviceAccountName"]]


def test_keda_scales_the_deployment_around_its_size_by_twice_the_tasks_of_an_optimizer() -> None:
    [scaled] = [each["spec"] for each in RESOURCES if each["kind"] == "ScaledObject"]
    deployment = deployments()[scaled["scaleTargetRef"]["name"]]
    [container] = deployment["template"]["spec"]["containers"]
    parallelism = int(container["args"][container["args"].index("--parallelism") + 1])
    [trigger] = scaled["triggers"]
    assert int(trigger["metadata"]["threshold"]) == 2 * parallelism
    assert scaled["minReplicaCount"] <= scaled["fallback"]["replicas"] <= scaled["maxReplicaCount"]
    assert scaled["minReplicaCount"] <= deployment["replicas"] <= scaled["maxReplicaCount"]


def test_the_service_leads_to_the_server_and_its_probes_are_routes(tmp_path: Path) -> None:
    server = deployments()["compaction-server"]
    [service] = [each["spec"] for each in RESOURCES if each["kind"] == "Service"]
    [container] = server["template"]["spec"]["containers"]
    assert service["selector"] == server["selector"]["matchLabels"]
    [port] = container["ports"]
    assert {each["targetPort"] for each in service["ports"]} == {port["name"]}
    assert container["args"][container["args"].index("--port") + 1] == str(port["containerPort"])
    services = OpenedServices(Settings(home=tmp_path))
    routes = http_app(services).openapi()["paths"]
    for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
        assert container[probe]["httpGet"]["path"] in routes
        assert container[probe]["httpGet"]["scheme"] == "HTTPS"
    services.close()


def test_nobody_is_cut_off_while_its_tasks_end() -> None:
    for name, command in (("compaction-server", "serve"), ("compaction-optimizer", "optimizer")):
        assert deployments()[name]["template"]["spec"]["terminationGracePeriodSeconds"] > seconds_to_end(command)
        assert int(service_of(DEPLOY / "systemd" / f"{name}.service")["TimeoutStopSec"]) > seconds_to_end(command)


def service_of(unit: Path) -> Any:
    parser = configparser.RawConfigParser(strict=False, delimiters=("=",))
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read_string(unit.read_text())
    assert set(parser.sections()) == {"Unit", "Service", "Install"}
    return parser["Service"]


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_a_unit_starts_the_program_again_unless_that_is_of_no_use(unit: Path) -> None:
    service = service_of(unit)
    program, *arguments = shlex.split(service["ExecStart"])
    assert program == PROGRAM
    check_command(arguments)
    assert (service["Restart"], service["RestartPreventExitStatus"]) == ("on-failure", "2")
    given = set(re.findall(r"^LoadCredential=([^:]+):", unit.read_text(), re.MULTILINE))
    assert set(re.findall(r"\$\{CREDENTIALS_DIRECTORY\}/(\S+)", service["ExecStart"])) == given
    assert set(re.findall(r"^Environment=(\w+)=", unit.read_text(), re.MULTILINE)) <= SETTINGS


def test_the_jvm_of_an_optimizer_is_not_told_to_end_before_its_tasks_are() -> None:
    assert service_of(DEPLOY / "systemd" / "compaction-optimizer.service")["KillMode"] == "mixed"


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed here")
@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_systemd_accepts_a_unit(unit: Path, tmp_path: Path) -> None:
    # systemd also looks for the program that a unit starts.
    copy = tmp_path / unit.name
    copy.write_text(unit.read_text().replace(PROGRAM, str(Path(sys.executable).with_name("compaction-pipeline"))))
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", "--recursive-errors=no", str(copy)], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
