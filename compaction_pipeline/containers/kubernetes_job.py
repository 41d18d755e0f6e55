"""Says which Job an optimizer is on Kubernetes: one pod that is never started again, because the server starts another optimizer itself."""

from __future__ import annotations

import re
from collections.abc import Mapping
from hashlib import sha256
from pathlib import PurePosixPath
from typing import Any

from compaction_pipeline.containers.kind import Start
from compaction_pipeline.core.queue.container import (
    ACCOUNT,
    CA_SECRET,
    ENVIRONMENT_SECRET,
    IMAGE,
    NAMESPACE,
    TOKEN_FILE,
    TOKEN_SECRET,
    Container,
    cpu_of,
    memory_of,
)
from compaction_pipeline.core.queue.group import PARALLELISM, ResourceGroup

MANAGED_BY = "app.kubernetes.io/managed-by"
MANAGER = "compaction-pipeline"
SELECTOR = f"{MANAGED_BY}={MANAGER}"
GROUP, RESOURCE = "compaction-pipeline/group", "compaction-pipeline/resource-id"
GRACE_SECONDS = 60
"""An optimizer that is told to end gives its merges 30 s, and ends hard after 45 s."""
KEPT_SECONDS = 3_600
"""Kubernetes removes a Job so long after its end. Until then it tells how it ended."""
_HOME = "/home/compaction"
_CA_FILE = PurePosixPath("/etc/compaction/ca/ca.crt")
_LABEL = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")


def job_name(resource_id: str) -> str:
    """Return the name of the Job of an optimizer. It is a digest, because a resource id may have other letters and be too long."""
    return f"compaction-{sha256(resource_id.encode()).hexdigest()[:20]}"


def namespace_of(container: Container, group: ResourceGroup) -> str:
    """Return the namespace in which the optimizers of a group run."""
    return group.properties.get(NAMESPACE) or container.namespaces[0]


def job_of(start: Start) -> Mapping[str, Any]:
    """Return the Job of an optimizer, as the API of Kubernetes takes it."""
    container, group, name = start.container, start.group, job_name(start.resource_id)
    texts = {GROUP: group.name, RESOURCE: start.resource_id}
    labels = {"app.kubernetes.io/name": "compaction-optimizer", MANAGED_BY: MANAGER, **{key: _label(text) for key, text in texts.items()}}
    spec = {
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": GRACE_SECONDS,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": 10001,
            "fsGroup": 10001,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [_container(start)],
        "volumes": _volumes(container),
    }
    if ACCOUNT in container.properties:
        spec["serviceAccountName"] = container.properties[ACCOUNT]
    else:
        # An optimizer asks Kubernetes nothing.
        spec["automountServiceAccountToken"] = False
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": namespace_of(container, group), "labels": labels, "annotations": texts},
        "spec": {
            "backoffLimit": 0,
            "ttlSecondsAfterFinished": KEPT_SECONDS,
            "template": {"metadata": {"labels": labels, "annotations": texts}, "spec": spec},
        },
    }


def _container(start: Start) -> dict[str, Any]:
    container, group = start.container, start.group
    own = {
        "COMPACTION_HOME": _HOME,
        "COMPACTION_SPARK_MASTER": f"local[{group.number(PARALLELISM) or 1}]",
        **container.environment,
    }
    has_ca = CA_SECRET in container.properties
    memory = memory_of(container, group)
    mounts = {"home": (_HOME, False), "tmp": ("/tmp", False), "token": (_folder(container.properties[TOKEN_FILE]), True)}
    mounts |= {"ca": (str(_CA_FILE.parent), True)} if has_ca else {}
    return {
        "name": "optimizer",
        "image": container.properties[IMAGE],
        "args": [*start.arguments, *(("--ca-file", str(_CA_FILE)) if has_ca else ())],
        "env": [{"name": key, "value": value} for key, value in sorted(own.items())],
        "envFrom": [{"secretRef": {"name": container.properties[key]}} for key in (ENVIRONMENT_SECRET,) if key in container.properties],
        "resources": {
            "requests": {"cpu": cpu_of(container, group), **({"memory": str(memory)} if memory else {})},
            "limits": {"memory": str(memory)} if memory else {},
        },
        # The last lines of its log stand with the end of the pod.
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
        "volumeMounts": [
            {"name": name, "mountPath": path, **({"readOnly": True} if read_only else {})} for name, (path, read_only) in mounts.items()
        ],
    }


def _volumes(container: Container) -> list[dict[str, Any]]:
    token = PurePosixPath(container.properties[TOKEN_FILE]).name
    volumes: list[dict[str, Any]] = [
        {"name": "home", "emptyDir": {}},
        {"name": "tmp", "emptyDir": {}},
        _secret("token", container.properties[TOKEN_SECRET], "optimizer.token", token),
    ]
    if CA_SECRET in container.properties:
        volumes.append(_secret("ca", container.properties[CA_SECRET], "ca.crt", _CA_FILE.name))
    return volumes


def _secret(name: str, secret: str, key: str, path: str) -> dict[str, Any]:
    return {"name": name, "secret": {"secretName": secret, "defaultMode": 0o440, "items": [{"key": key, "path": path}]}}


def _folder(file: str) -> str:
    return str(PurePosixPath(file).parent)


def _label(text: str) -> str:
    """A text as the value of a label. One that no label can have is a digest; the annotation of the same name has the text."""
    return text if _LABEL.fullmatch(text) else sha256(text.encode()).hexdigest()[:20]
