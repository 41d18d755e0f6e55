"""The containers that a file on this host describes. `Containers` in `core/queue/ports/containers.py` says what each method does."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import yaml

from compaction_pipeline.containers.host_processes import External, Local, Submitted
from compaction_pipeline.containers.kind import Kind, Start
from compaction_pipeline.containers.kubernetes import Kubernetes
from compaction_pipeline.containers.processes import OptimizerProcesses
from compaction_pipeline.containers.yarn import Yarn
from compaction_pipeline.core.errors import ConfigError
from compaction_pipeline.core.queue.container import (
    BY_HAND,
    TOKEN_FILE,
    Container,
    ContainerKind,
    check_group_keys,
    containers_of,
    optimizer_arguments,
)
from compaction_pipeline.core.queue.container_answers import Room, Running, Unknown
from compaction_pipeline.core.queue.group import ResourceGroup

_SETTING = "COMPACTION_CONTAINERS_FILE"
_NOT_INHERITED = (
    "COMPACTION_STATE_URL",
    "COMPACTION_CONTAINERS_FILE",
    "COMPACTION_SECRET_KEY",
    "COMPACTION_SECRET_KEY_FILE",
    "COMPACTION_SECRETS_FOLDER",
)
"""An optimizer needs no state database and opens no catalog, so it gets neither a password nor a key of these."""
_UNKNOWN_SERVER = "https://SERVER:8787"


class HostContainers:
    """Reads the file anew for each question, so that a change needs no restart."""

    def __init__(self, file: Path | None, home: Path, server: Callable[[], str], java_home: Callable[[], str]) -> None:
        """`server` returns the URL of the server, "" when this process is none. `java_home` returns a JAVA_HOME that Spark can use."""
        self.host = socket.gethostname()
        self.has_file = file is not None
        self._file = file
        self._home = home
        self._server = server
        processes = OptimizerProcesses(home / "optimizers")
        self._kinds: Mapping[ContainerKind, Kind] = {
            ContainerKind.LOCAL: Local(processes, _inherited),
            ContainerKind.SPARK: Submitted(processes, _inherited, java_home),
            ContainerKind.YARN: Yarn(processes, _inherited, java_home),
            ContainerKind.KUBERNETES: Kubernetes(),
            ContainerKind.EXTERNAL: External(processes),
        }

    def containers(self) -> Mapping[str, Container]:
        if self._file is None:
            return {BY_HAND.name: BY_HAND}
        try:
            read = yaml.safe_load(self._file.read_text(encoding="utf-8"))
        except OSError as error:
            raise ConfigError(f"{_SETTING} is {str(self._file)!r}, which cannot be read: {error.strerror}; correct it") from error
        except (yaml.YAMLError, UnicodeDecodeError) as error:
            raise ConfigError(f"{_SETTING} is {str(self._file)!r}, which is no YAML: {_yaml_problem(error)}; correct the file") from error
        return containers_of(read, str(self._file))

    def container(self, name: str) -> Container:
        found = self.containers()
        if name not in found:
            where = f"the file of {_SETTING}, {self._file}, has only" if self._file else f"{_SETTING} is not set, so there is only"
            raise ConfigError(f"host {self.host} has no container {name!r}: {where} {', '.join(sorted(found))}")
        return found[name]

    def arguments(self, container: Container, group: ResourceGroup, resource_id: str = "") -> Sequence[str]:
        return optimizer_arguments(container, group, self._server() or _UNKNOWN_SERVER, str(self._token_file), resource_id)

    def start(self, container: Container, group: ResourceGroup, resource_id: str) -> None:
        check_group_keys(container, group)
        self._check_token(container)
        self._kinds[container.kind].start(Start(container, group, resource_id, self.arguments(container, group, resource_id)))

    def running(self, container: Container) -> Running | Unknown:
        return self._kinds[container.kind].running(container)

    def last_words(self, container: Container, resource_id: str) -> str:
        return self._kinds[container.kind].last_words(container, resource_id)

    def stop(self, container: Container, resource_id: str) -> Unknown | None:
        return self._kinds[container.kind].stop(container, resource_id)

    def free(self, container: Container, group: ResourceGroup) -> Room | Unknown:
        return self._kinds[container.kind].free(container, group)

    @property
    def _token_file(self) -> Path:
        return self._home / "optimizer.token"

    def _check_token(self, container: Container) -> None:
        """Raise ConfigError when an optimizer on this host could not read its token."""
        if container.runs_driver_elsewhere:
            return
        path = Path(container.properties.get(TOKEN_FILE) or self._token_file)
        if not os.access(path, os.R_OK):
            raise ConfigError(
                f"the token file {path} of container {container.name} cannot be read: write a token there that "
                "`compaction-pipeline token add --role optimizer` issues, or name another file in 'token-file'"
            )


def _inherited() -> Mapping[str, str]:
    return {key: value for key, value in os.environ.items() if key not in _NOT_INHERITED}


def _yaml_problem(error: Exception) -> str:
    """What is wrong with a text that should be YAML, and where."""
    mark = getattr(error, "problem_mark", None)
    if mark is None:
        return " ".join(str(error).split())
    return f"line {mark.line + 1}, column {mark.column + 1}: {getattr(error, 'problem', None) or 'not understood'}"
