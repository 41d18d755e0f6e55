"""Runs each optimizer as a Job of Kubernetes, and takes the answer of its API alone as what is known of them.

Nothing is watched: a list is asked for at each look, so a connection that breaks loses nothing but that look.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from compaction_pipeline.containers.kind import Start
from compaction_pipeline.containers.kubernetes_job import RESOURCE, SELECTOR, job_name, job_of, namespace_of
from compaction_pipeline.core.errors import CompactionError, ConfigError
from compaction_pipeline.core.insight.masking import masked_text
from compaction_pipeline.core.queue.container import CONTEXT, Container
from compaction_pipeline.core.queue.container_answers import Room, Running, Unknown
from compaction_pipeline.core.queue.group import ResourceGroup

if TYPE_CHECKING:
    from kubernetes import client

log = logging.getLogger(__name__)

_TIMES = (5, 20)
"""So many seconds may a connection, and an answer, take."""
_REFUSED = (400, 401, 403, 404, 422)
"""Kubernetes has looked at the request, and made nothing."""
_CONFLICT, _GONE = 409, 404
_LONGEST_WORDS = 300
_MEMORY, _CPU = ("requests.memory", "memory", "limits.memory"), ("requests.cpu", "cpu")


class _Silent(CompactionError):
    """The API did not answer, or refused to. `status` is its HTTP status; 0 when none came."""

    def __init__(self, text: str, status: int = 0) -> None:
        super().__init__(text)
        self.status = status


class Kubernetes:
    """Jobs in the namespaces of a container."""

    def start(self, start: Start) -> None:
        job = job_of(start)
        namespace = job["metadata"]["namespace"]
        try:
            with _asked(start.container) as jobs:
                jobs.create_namespaced_job(namespace, job, _request_timeout=_TIMES)
        except _Silent as error:
            if error.status in _REFUSED:
                raise ConfigError(f"Kubernetes does not start optimizer {start.resource_id} in namespace {namespace}: {error}") from error
            # The name is made of the resource id, so a Job that exists is this one: an answer got lost. Where none came, the Job may exist
            # or not, and the next look tells.
            log.warning("resource=%s Kubernetes may have started it: %s", start.resource_id, error)

    def running(self, container: Container) -> Running | Unknown:
        alive: set[str] = set()
        ended: set[str] = set()
        try:
            with _asked(container) as jobs:
                for namespace in container.namespaces:
                    for job in jobs.list_namespaced_job(namespace, label_selector=SELECTOR, _request_timeout=_TIMES).items:
                        resource_id = (job.metadata.annotations or {}).get(RESOURCE, "")
                        (ended if _end(job) is not None or job.metadata.deletion_timestamp else alive).add(resource_id)
        except (_Silent, ConfigError) as error:
            return Unknown(str(error))
        return Running(frozenset(alive), frozenset(ended - alive))

    def last_words(self, container: Container, resource_id: str) -> str:
        try:
            with _asked(container) as jobs:
                pods, words = _core(jobs), []
                for namespace in container.namespaces:
                    found = pods.list_namespaced_pod(
                        namespace, label_selector=f"batch.kubernetes.io/job-name={job_name(resource_id)}", _request_timeout=_TIMES
                    ).items
                    words += [_words_of(pod) for pod in found]
                    listed = jobs.list_namespaced_job(
                        namespace, field_selector=f"metadata.name={job_name(resource_id)}", _request_timeout=_TIMES
                    )
                    words += [end for job in listed.items if (end := _end(job)) is not None]
        except (_Silent, ConfigError):
            return ""
        return next((masked_text(each)[:_LONGEST_WORDS] for each in words if each), "")

    def stop(self, container: Container, resource_id: str) -> Unknown | None:
        try:
            for namespace in container.namespaces:
                self._delete(container, namespace, job_name(resource_id))
        except (_Silent, ConfigError) as error:
            return Unknown(str(error))
        return None

    def _delete(self, container: Container, namespace: str, name: str) -> None:
        try:
            with _asked(container) as jobs:
                # Without the policy the pod would live on without its Job.
                jobs.delete_namespaced_job(name, namespace, propagation_policy="Background", _request_timeout=_TIMES)
        except _Silent as error:
            if error.status != _GONE:
                raise

    def free(self, container: Container, group: ResourceGroup) -> Room | Unknown:
        """What the ResourceQuotas of the group's namespace leave."""
        try:
            with _asked(container) as jobs:
                quotas = _core(jobs).list_namespaced_resource_quota(namespace_of(container, group), _request_timeout=_TIMES).items
                # A quota with scopes counts only some pods, and Kubernetes itself holds back what does not fit it.
                left = [
                    (quota.status.hard or {}, quota.status.used or {})
                    for quota in quotas
                    if not (quota.spec.scopes or quota.spec.scope_selector)
                ]
                return Room(_left(left, _MEMORY), _left(left, _CPU, 1000))
        except (_Silent, ConfigError) as error:
            return Unknown(str(error))


@contextmanager
def _asked(container: Container) -> Iterator[client.BatchV1Api]:
    """Yield a client of Jobs. Raises _Silent for an answer that is none, and ConfigError."""
    try:
        from kubernetes.client.exceptions import ApiException
        from urllib3.exceptions import HTTPError
    except ModuleNotFoundError as error:
        raise ConfigError(
            "containers of kind kubernetes need a package that is missing: pip install 'compaction-pipeline[kubernetes]'"
        ) from error
    try:
        made = _jobs(container)
    except Exception as error:
        # The client checks little of what it reads: a text where a mapping should be is a TypeError, or one of the parser of YAML.
        what = masked_text(" ".join(f"{type(error).__name__}: {error}".split()))[:_LONGEST_WORDS]
        raise ConfigError(f"the configuration of Kubernetes (KUBECONFIG, ~/.kube/config) cannot be read: {what}; correct it") from error
    try:
        yield made
    except ApiException as error:
        raise _Silent(masked_text(f"HTTP {error.status}: {_said(error)}")[:_LONGEST_WORDS], error.status or 0) from error
    except (HTTPError, OSError, ValueError, AttributeError, TypeError, ArithmeticError) as error:
        # The client raises the last four for an answer that was cut off, or that no API of Kubernetes gives.
        # The client's own text names a pool of connections. The cause tells what happened.
        cause = getattr(error, "reason", None) or error
        raise _Silent(masked_text(f"no answer of Kubernetes: {cause}")[:_LONGEST_WORDS]) from error


def _jobs(container: Container) -> client.BatchV1Api:
    """A client with the rights of this pod, or of a kubeconfig where the server runs elsewhere."""
    from kubernetes import client, config

    configuration = client.Configuration()
    context = container.properties.get(CONTEXT)
    if context is None and "KUBERNETES_SERVICE_HOST" in os.environ:
        config.load_incluster_config(client_configuration=configuration)
    else:
        config.load_kube_config(context=context, client_configuration=configuration)
    configuration.retries = 0
    return client.BatchV1Api(client.ApiClient(configuration))


def _core(jobs: client.BatchV1Api) -> client.CoreV1Api:
    from kubernetes import client

    return client.CoreV1Api(jobs.api_client)


def _said(error: Any) -> str:
    """What the API says in its answer, or the reason of HTTP."""
    try:
        return str(json.loads(error.body)["message"])
    except (TypeError, ValueError, KeyError):
        return str(error.reason)


def _end(job: Any) -> str | None:
    """Why a Job has ended; None while it has not."""
    for condition in (job.status.conditions if job.status else None) or ():
        if condition.status == "True" and condition.type in ("Complete", "Failed"):
            return ": ".join(part for part in (condition.type, condition.reason, condition.message) if part)
    return None


def _words_of(pod: Any) -> str:
    """Why a pod has ended or does not begin; "" when nothing is wrong."""
    for status in pod.status.container_statuses or ():
        ended, waits = status.state.terminated, status.state.waiting
        if ended is not None:
            lines = [line.strip() for line in (ended.message or "").splitlines() if line.strip()]
            return ": ".join([f"{ended.reason or 'ended'} with exit code {ended.exit_code}", *lines[-1:]])
        if waits is not None and waits.message:
            return f"{waits.reason}: {waits.message}"
    for condition in pod.status.conditions or ():
        if condition.type == "PodScheduled" and condition.status != "True":
            return f"{condition.reason}: {condition.message}"
    return ""


def _left(quotas: list[tuple[dict[str, str], dict[str, str]]], keys: tuple[str, ...], unit: int = 1) -> int | None:
    """The least that quotas leave of one of these resources; None when none of them bounds it. `unit` is the parts of one to count in."""
    from kubernetes.utils.quantity import parse_quantity

    left: list[Decimal] = [
        parse_quantity(hard[key]) - parse_quantity(used.get(key, "0")) for hard, used in quotas for key in keys if key in hard
    ]
    return min((int(unit * each) for each in left), default=None)
