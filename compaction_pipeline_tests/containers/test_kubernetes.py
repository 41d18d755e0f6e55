"""The Job that an optimizer is on Kubernetes, and what follows from answers of its API that are refusals, or none.

`interop/test_kubernetes_jobs.py` asks a server that keeps what it gets.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import kubernetes_validate
import pytest
import yaml

from compaction_pipeline.cli.main import seconds_to_end
from compaction_pipeline.containers.host_containers import HostContainers
from compaction_pipeline.containers.kind import Start
from compaction_pipeline.containers.kubernetes import Kubernetes
from compaction_pipeline.containers.kubernetes_job import job_name, job_of
from compaction_pipeline.core.errors import ConfigError
from compaction_pipeline.core.queue.container import Container, ContainerKind, check_group_keys, containers_of
from compaction_pipeline.core.queue.container_answers import Room, Running, Size, Unknown, size_of
from compaction_pipeline.core.queue.group import ResourceGroup

KEYS = {
    "server": "https://compaction-server:8787",
    "image": "registry.example.com/compaction-pipeline:1",
    "namespaces": "compaction, heavy",
}
PODS = containers_of({"pods": {"kind": "kubernetes", **KEYS}}, "F")["pods"]
GROUP = ResourceGroup("Heavy_1", "pods", {"parallelism": "2", "memory": "4000000000", "cpu": "1500m", "namespace": "heavy"})
Answer = tuple[int, dict[str, Any]] | str


def job(resource_id: str, condition: dict[str, str] | None = None) -> dict[str, Any]:
    """A Job as the API lists it."""
    conditions = [] if condition is None else [{"status": "True", **condition}]
    return {**job_of(Start(PODS, GROUP, resource_id, ("optimizer",))), "status": {"conditions": conditions}}


@dataclass
class Api:
    """An API of Kubernetes that answers as a test says. "" breaks the connection before, and another text in the middle of an answer."""

    answer: Callable[[str, str], Answer]
    requests: list[tuple[str, str, dict[str, Any]]] = field(default_factory=list)


@contextmanager
def api(folder: Path, monkeypatch: pytest.MonkeyPatch, answer: Callable[[str, str], Answer]) -> Iterator[Api]:
    """The API, which the kubeconfig of this environment names."""
    found = Api(answer)

    class Handler(BaseHTTPRequestHandler):
        def handle_one(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            found.requests.append((self.command, self.path, json.loads(body or b"{}")))
            answered = found.answer(self.command, self.path)
            if isinstance(answered, str):
                if answered:
                    self.wfile.write(
                        f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 9999\r\n\r\n{answered}".encode()
                    )
                self.close_connection = True
                return
            content = json.dumps(answered[1]).encode()
            self.send_response(answered[0])
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        do_GET = do_POST = do_DELETE = handle_one

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    Thread(target=server.serve_forever, daemon=True).start()
    use(folder, monkeypatch, server.server_port)
    try:
        yield found
    finally:
        server.shutdown()
        server.server_close()


def use(folder: Path, monkeypatch: pytest.MonkeyPatch, port: int) -> None:
    """Let the client find an API on this port."""
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    file = folder / "kubeconfig"
    file.write_text(
        yaml.safe_dump(
            {
                "current-context": "c",
                "clusters": [{"name": "k", "cluster": {"server": f"http://127.0.0.1:{port}"}}],
                "users": [{"name": "u", "user": {"token": "t"}}],
                "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}],
            }
        )
    )
    monkeypatch.setattr("kubernetes.config.kube_config.KUBE_CONFIG_DEFAULT_LOCATION", str(file))


def said(status: int, message: str) -> Answer:
    return status, {"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": message, "code": status}


def test_a_job_fits_the_schema_of_kubernetes_and_says_all_that_its_optimizer_needs() -> None:
    full = replace(PODS, properties={**PODS.properties, "ca-secret": "tls", "env-secret": "s3", "service-account": "a", "env.A": "b"})
    for container in (PODS, full):
        made = job_of(Start(container, GROUP, "heavy_1-abc", ("optimizer", "--group", "Heavy_1")))
        kubernetes_validate.validate(made, kubernetes_validate.latest_version(), strict=True)
        spec, pod = made["spec"], made["spec"]["template"]["spec"]
        assert (spec["backoffLimit"], pod["restartPolicy"], spec["ttlSecondsAfterFinished"]) == (0, "Never", 3600)
        assert pod["terminationGracePeriodSeconds"] > seconds_to_end("optimizer")
        assert made["metadata"]["namespace"] == "heavy"
        assert (
            made["metadata"]["labels"].items()
            >= {"compaction-pipeline/group": "Heavy_1", "compaction-pipeline/resource-id": "heavy_1-abc"}.items()
        )
        assert spec["template"]["metadata"]["labels"] == made["metadata"]["labels"]
        [own] = pod["containers"]
        assert own["resources"] == {"requests": {"cpu": "1500m", "memory": "4000000000"}, "limits": {"memory": "4000000000"}}
        assert {"name": "COMPACTION_SPARK_MASTER", "value": "local[2]"} in own["env"]
        mounted = {mount["name"] for mount in own["volumeMounts"]}
        assert mounted == {volume["name"] for volume in pod["volumes"]}
    assert own["args"] == ["optimizer", "--group", "Heavy_1", "--ca-file", "/etc/compaction/ca/ca.crt"]
    assert own["envFrom"] == [{"secretRef": {"name": "s3"}}]
    assert {"name": "A", "value": "b"} in own["env"]
    assert pod["serviceAccountName"] == "a"


def test_a_long_resource_id_is_a_digest_in_names_and_labels() -> None:
    long = replace(GROUP, name=f"{'g' * 60}_", properties={})
    made = job_of(Start(PODS, long, f"{long.name}-0123456789ab", ("optimizer",)))
    kubernetes_validate.validate(made, kubernetes_validate.latest_version(), strict=True)
    assert made["metadata"]["annotations"]["compaction-pipeline/group"] == long.name
    assert made["metadata"]["namespace"] == "compaction"
    values = [made["metadata"]["name"], *made["metadata"]["labels"].values()]
    assert all(len(value) <= 63 and value[-1].isalnum() for value in values)
    assert job_name("a") != job_name("b")


def test_a_group_may_choose_only_what_its_container_allows() -> None:
    check_group_keys(PODS, GROUP)
    assert size_of(PODS, GROUP) == Size(4_000_000_000, 1500)
    for key, value, says in (
        ("namespace", "kube-system", "container pods may use only compaction, heavy"),
        ("cpu", "many", "must be a number of cores such as 2, 0.5 or 500m"),
        ("image", "evil", "has the property 'image'"),
        ("env.A", "b", "has the property 'env.A'"),
    ):
        with pytest.raises(ConfigError, match=says):
            check_group_keys(PODS, replace(GROUP, properties={key: value}))
    for keys, says in (
        ({"image": "i"}, "lacks 'server'"),
        ({"server": "s"}, "lacks 'image'"),
        ({**KEYS, "namespaces": "A"}, "names of namespaces"),
    ):
        with pytest.raises(ConfigError, match=says):
            containers_of({"pods": {"kind": "kubernetes", **keys}}, "F")


def test_the_token_of_a_pod_is_not_looked_for_on_this_host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "containers.yaml"
    file.write_text(yaml.safe_dump({"pods": {"kind": "kubernetes", **KEYS}}))
    found = HostContainers(file, tmp_path / "home", lambda: "http://127.0.0.1:1", lambda: "/java")
    with api(tmp_path, monkeypatch, lambda verb, path: (201, {})) as asked:
        found.start(found.container("pods"), GROUP, "heavy_1-abc")
    [(verb, path, sent)] = asked.requests
    assert (verb, path) == ("POST", "/apis/batch/v1/namespaces/heavy/jobs")
    [own] = sent["spec"]["template"]["spec"]["containers"]
    assert own["args"][:3] == ["optimizer", "--server", "https://compaction-server:8787"]
    assert own["args"][-4:] == ["--resource-id", "heavy_1-abc", "--token-file", "/etc/compaction/token/optimizer.token"]


@pytest.mark.parametrize(
    ("answer", "refused"),
    [
        (said(403, "jobs.batch is forbidden: exceeded quota"), "HTTP 403: jobs.batch is forbidden: exceeded quota"),
        (said(422, "spec.template: Invalid value"), "HTTP 422: spec.template: Invalid value"),
        # It is there: an answer got lost, and the client asked again.
        (said(409, "jobs.batch already exists"), None),
        # The Job may be there or not. The next list tells.
        (said(500, "etcd timed out"), None),
        ("", None),
    ],
)
def test_a_start_fails_only_when_kubernetes_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: Answer, refused: str | None
) -> None:
    start = Start(PODS, GROUP, "heavy_1-abc", ("optimizer",))
    with api(tmp_path, monkeypatch, lambda verb, path: answer) as asked:
        if refused is None:
            Kubernetes().start(start)
        else:
            with pytest.raises(ConfigError, match=f"does not start optimizer heavy_1-abc in namespace heavy: {refused}"):
                Kubernetes().start(start)
    assert len(asked.requests) == 1


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (said(403, "jobs.batch is forbidden: User cannot list"), "HTTP 403: jobs.batch is forbidden"),
        (said(500, "etcd"), "HTTP 500: etcd"),
        ("", "no answer of Kubernetes: "),
        ('{"kind": "JobList", "items": [', "no answer of Kubernetes: "),
        ((200, {"what": "a proxy's page"}), "no answer of Kubernetes: "),
    ],
)
def test_an_answer_that_did_not_come_is_unknown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: Answer, why: str) -> None:
    found = Kubernetes()
    with api(tmp_path, monkeypatch, lambda verb, path: answer):
        answers = [found.running(PODS), found.free(PODS, GROUP)]
        if answer != (200, {"what": "a proxy's page"}):
            answers.append(found.stop(PODS, "r"))
        for each in answers:
            assert isinstance(each, Unknown)
            assert each.why.startswith(why)
        assert found.last_words(PODS, "r") == ""


def test_nothing_listens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use(tmp_path, monkeypatch, 1)
    answer = Kubernetes().running(PODS)
    assert isinstance(answer, Unknown)
    assert "Connection refused" in answer.why
    other = Kubernetes().running(replace(PODS, properties={**PODS.properties, "context": "prod"}))
    assert isinstance(other, Unknown)
    assert other.why.startswith("the configuration of Kubernetes (KUBECONFIG, ~/.kube/config) cannot be read: ConfigException: ")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("a: [", "ParserError: "),
        ("- 1", "TypeError: "),
        ("clusters: 5\ncontexts: []\ncurrent-context: a\nusers: []", "TypeError: "),
        ("", "ConfigException: "),
    ],
)
def test_a_kubeconfig_that_is_broken_is_an_unknown_answer_that_names_the_fault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, why: str
) -> None:
    use(tmp_path, monkeypatch, 1)
    (tmp_path / "kubeconfig").write_text(text)
    found = Kubernetes()
    for answer in (found.running(PODS), found.free(PODS, GROUP), found.stop(PODS, "r")):
        assert isinstance(answer, Unknown)
        assert answer.why.startswith(f"the configuration of Kubernetes (KUBECONFIG, ~/.kube/config) cannot be read: {why}")
    assert found.last_words(PODS, "r") == ""
    with pytest.raises(ConfigError, match="cannot be read"):
        found.start(Start(PODS, GROUP, "r", ("optimizer",)))


def test_jobs_that_have_ended_or_are_being_deleted_are_not_alive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gone = job("d")
    gone["metadata"]["deletionTimestamp"] = "2026-11-27T12:00:00Z"
    failed = {"type": "Failed", "reason": "BackoffLimitExceeded", "message": "Job has reached the specified backoff limit"}
    jobs = {"compaction": [job("a"), job("b", failed)], "heavy": [job("c", {"type": "Complete"}), gone]}

    def listed(verb: str, path: str) -> Answer:
        return 200, {"kind": "JobList", "apiVersion": "batch/v1", "metadata": {}, "items": jobs[path.split("/")[5]]}

    with api(tmp_path, monkeypatch, listed) as asked:
        assert Kubernetes().running(PODS) == Running(frozenset({"a"}), frozenset({"b", "c", "d"}))
    assert [path.partition("?labelSelector=")[2] for _, path, _ in asked.requests] == 2 * [
        "app.kubernetes.io/managed-by%3Dcompaction-pipeline"
    ]


def pod(**status: Any) -> dict[str, Any]:
    return {"metadata": {"name": "p"}, "status": status}


KILLED = {"terminated": {"reason": "OOMKilled", "exitCode": 137, "message": "one\nMemoryError postgresql://a:s3cret@db/x\n\n"}}


@pytest.mark.parametrize(
    ("pods", "words"),
    [
        ([pod(containerStatuses=[status(KILLED)])], "OOMKilled with exit code 137: MemoryError postgresql://a:***@db/x")
        for status in (lambda state: {"name": "o", "image": "i", "imageID": "", "ready": False, "restartCount": 0, "state": state},)
    ]
    + [
        (
            [
                pod(
                    conditions=[
                        {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/3 nodes are available"}
                    ]
                )
            ],
            "Unschedulable: 0/3 nodes are available",
        ),
        ([], "Failed: BackoffLimitExceeded: no pod is left"),
    ],
)
def test_the_last_words_are_those_of_the_pod_and_else_of_the_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pods: list[dict[str, Any]], words: str
) -> None:
    ended = job("a", {"type": "Failed", "reason": "BackoffLimitExceeded", "message": "no pod is left"})

    def listed(verb: str, path: str) -> Answer:
        kind, items = ("JobList", [ended]) if "/jobs" in path else ("PodList", pods)
        return 200, {"kind": kind, "metadata": {}, "items": items}

    with api(tmp_path, monkeypatch, listed):
        assert Kubernetes().last_words(PODS, "a") == words


def test_the_room_is_what_the_quotas_of_the_groups_namespace_leave(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def quota(hard: dict[str, str], used: dict[str, str], **spec: Any) -> dict[str, Any]:
        return {"metadata": {"name": "q"}, "spec": {"hard": hard, **spec}, "status": {"hard": hard, "used": used}}

    quotas = [
        quota({"requests.memory": "8Gi", "requests.cpu": "4", "pods": "9"}, {"requests.memory": "3Gi", "requests.cpu": "1500m"}),
        quota({"limits.memory": "6G"}, {}),
        quota({"memory": "1"}, {}, scopes=["BestEffort"]),
    ]
    with api(tmp_path, monkeypatch, lambda verb, path: (200, {"kind": "ResourceQuotaList", "metadata": {}, "items": quotas})) as asked:
        assert Kubernetes().free(PODS, GROUP) == Room(5 * 2**30, 2500)
    assert [path for _, path, _ in asked.requests] == ["/api/v1/namespaces/heavy/resourcequotas"]
    with api(tmp_path, monkeypatch, lambda verb, path: (200, {"kind": "ResourceQuotaList", "metadata": {}, "items": []})):
        assert Kubernetes().free(Container("pods", ContainerKind.KUBERNETES, PODS.properties), GROUP) == Room()


@pytest.mark.parametrize(
    ("quota", "cpu", "starts"), [("500m", "500m", 1), ("1", "300m", 3), ("499m", "500m", 0), ("3.3", "1.1", 3), ("2", "2", 1)]
)
def test_a_quota_of_parts_of_a_core_is_used_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, quota: str, cpu: str, starts: int) -> None:
    group = replace(GROUP, properties={**GROUP.properties, "cpu": cpu})
    item = {"metadata": {"name": "q"}, "spec": {"hard": {"cpu": quota}}, "status": {"hard": {"cpu": quota}, "used": {}}}
    with api(tmp_path, monkeypatch, lambda verb, path: (200, {"kind": "ResourceQuotaList", "metadata": {}, "items": [item]})):
        room = Kubernetes().free(PODS, group)
    assert isinstance(room, Room)
    assert room.holds(size_of(PODS, group), 9) == starts
