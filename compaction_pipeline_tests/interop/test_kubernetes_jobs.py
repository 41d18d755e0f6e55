"""Jobs of optimizers on an API server of Kubernetes that keeps what it gets: fabric8's, with the official client."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from compaction_pipeline.containers.java_program import java_program
from compaction_pipeline.containers.kind import Start
from compaction_pipeline.containers.kubernetes import Kubernetes
from compaction_pipeline.containers.kubernetes_job import job_name
from compaction_pipeline.core.queue.container import containers_of
from compaction_pipeline.core.queue.container_answers import Room, Running
from compaction_pipeline.core.queue.group import ResourceGroup
from compaction_pipeline_tests.containers.test_kubernetes import KEYS, use
from compaction_pipeline_tests.interop.peers import SPARK_JARS, java, kubernetes_jars

pytestmark = pytest.mark.interop

PODS = containers_of({"pods": {"kind": "kubernetes", **KEYS}}, "F")["pods"]


@dataclass(frozen=True)
class ApiServer:
    """fabric8's server, as an object of Java."""

    jvm: Any
    server: Any

    def requests(self) -> list[tuple[str, str, str]]:
        """Verb, path and body of each request since the last look."""
        found = []
        while (request := self.server.takeRequest(0, self.jvm.java.util.concurrent.TimeUnit.SECONDS)) is not None:
            found.append((request.getMethod(), request.getPath(), request.getBody().readUtf8()))
        return found


@pytest.fixture
def api_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ApiServer]:
    classpath = [f"{kubernetes_jars()}{os.sep}*", f"{SPARK_JARS}{os.sep}*"]
    with java_program(java(), classpath, ["-Xmx256m", "-XX:TieredStopAtLevel=1"], os.environ, 300) as jvm:
        web, mock = jvm.io.fabric8.mockwebserver, jvm.io.fabric8.kubernetes.client.server.mock
        dispatcher = mock.KubernetesCrudDispatcher()
        server = mock.KubernetesMockServer(web.Context(), web.MockWebServer(), jvm.java.util.HashMap(), dispatcher, False)
        server.start()
        use(tmp_path, monkeypatch, server.getPort())
        yield ApiServer(jvm, server)


def test_an_optimizer_is_one_job_from_its_start_to_its_end(api_server: ApiServer) -> None:
    kubernetes = Kubernetes()
    heavy, light = ResourceGroup("heavy", "pods", {"namespace": "heavy"}), ResourceGroup("light", "pods")
    for group, resource_id in ((heavy, "heavy-1"), (light, "light-1"), (light, "light-2")):
        kubernetes.start(Start(PODS, group, resource_id, ("optimizer", "--resource-id", resource_id)))
    # An answer got lost, and the start is tried once more: there is still one Job.
    kubernetes.start(Start(PODS, heavy, "heavy-1", ("optimizer", "--resource-id", "heavy-1")))
    # Another server sees the same.
    assert Kubernetes().running(PODS) == Running(frozenset({"heavy-1", "light-1", "light-2"}))
    assert kubernetes.free(PODS, heavy) == Room()
    assert kubernetes.last_words(PODS, "light-1") == ""

    api_server.requests()
    assert kubernetes.stop(PODS, "light-1") is None
    assert kubernetes.stop(PODS, "never-was") is None
    deleted = [(path, body) for verb, path, body in api_server.requests() if verb == "DELETE"]
    # Without this policy, Kubernetes would leave the pods of the Job alone, and they would go on.
    assert [path for path, _ in deleted] == [
        f"/apis/batch/v1/namespaces/{namespace}/jobs/{job_name(resource_id)}?propagationPolicy=Background"
        for resource_id in ("light-1", "never-was")
        for namespace in ("compaction", "heavy")
    ]
    assert kubernetes.running(PODS) == Running(frozenset({"heavy-1", "light-2"}))
