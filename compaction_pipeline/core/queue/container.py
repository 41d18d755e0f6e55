"""Containers: what optimizers are started in, and the command that starts one.

A file on the server's host describes them. A group names one, and its properties say how many optimizers it wants and how large they are.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from hashlib import sha256

from compaction_pipeline.core.errors import ConfigError
from compaction_pipeline.core.queue.group import EXTERNAL, INSTANCES, MEMORY, MIN_INSTANCES, PARALLELISM, VERIFY_OUTPUTS, ResourceGroup
from compaction_pipeline.core.tables.group_name import GROUP_NAME_RULE, is_group_name

KIND, SERVER, TOKEN_FILE, CA_FILE, MASTER, DEPLOY_MODE = "kind", "server", "token-file", "ca-file", "master", "deploy-mode"
ENVIRONMENT, SPARK_PROPERTY = "env.", "spark."
_SIZES = {"": 2**20, "k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40}
_DRIVER_MEMORY, _EXECUTOR_MEMORY = "spark.driver.memory", "spark.executor.memory"
_MODES = ("client", "cluster")


class ContainerKind(str, Enum):
    """LOCAL starts processes on the server's host. SPARK submits applications to a cluster. EXTERNAL starts nothing."""

    LOCAL = "local"
    SPARK = "spark"
    EXTERNAL = "external"


_KEYS: Mapping[ContainerKind, tuple[str, ...]] = {
    ContainerKind.LOCAL: (SERVER, TOKEN_FILE, CA_FILE),
    ContainerKind.SPARK: (SERVER, TOKEN_FILE, CA_FILE, MASTER, DEPLOY_MODE),
    ContainerKind.EXTERNAL: (SERVER, TOKEN_FILE, CA_FILE),
}
_PREFIXES: Mapping[ContainerKind, tuple[str, ...]] = {
    ContainerKind.LOCAL: (ENVIRONMENT,),
    ContainerKind.SPARK: (ENVIRONMENT, SPARK_PROPERTY),
    ContainerKind.EXTERNAL: (),
}
_OF_GROUPS = (INSTANCES, MIN_INSTANCES, PARALLELISM, MEMORY, VERIFY_OUTPUTS)


@dataclass(frozen=True, slots=True)
class Container:
    """A container. `properties` are its keys in the file, all as texts."""

    name: str
    kind: ContainerKind
    properties: Mapping[str, str] = field(default_factory=dict)

    @property
    def environment(self) -> Mapping[str, str]:
        """The variables that its optimizers get beside those of the server."""
        return {key.removeprefix(ENVIRONMENT): value for key, value in self.properties.items() if key.startswith(ENVIRONMENT)}

    @property
    def runs_driver_elsewhere(self) -> bool:
        """Whether an optimizer runs on a host of the cluster, where files of this host are not found."""
        return self.properties.get(DEPLOY_MODE) == "cluster"


BY_HAND = Container(EXTERNAL, ContainerKind.EXTERNAL)
"""The container that exists without a file."""


def containers_of(read: object, source: str) -> Mapping[str, Container]:
    """Return the containers that a YAML document describes, by name. `source` names the document in errors.

    Raises ConfigError, which names the container, the key, the value and the rule.
    """
    if read is None:
        read = {}
    if not isinstance(read, Mapping):
        raise ConfigError(
            f"{source} must hold names of containers, and below each its keys, for example `workers: {{kind: local}}`, but it holds a "
            f"{type(read).__name__}; correct the file"
        )
    found = {EXTERNAL: BY_HAND}
    for name, keys in read.items():
        if not isinstance(name, str) or not is_group_name(name):
            raise ConfigError(f"{source} names a container {str(name)[:100]!r}, but a name must have {GROUP_NAME_RULE}")
        if not isinstance(keys, Mapping):
            raise ConfigError(f"container {name!r} of {source} must have keys below its name, at least `kind: local`")
        found[name] = _container(name, {str(key): _text(value) for key, value in keys.items()}, source)
    return found


def _container(name: str, keys: Mapping[str, str], source: str) -> Container:
    kinds = [kind.value for kind in ContainerKind]
    if keys.get(KIND) not in kinds:
        raise ConfigError(f"'{KIND}' of container {name!r} in {source} is {keys.get(KIND)!r} but must be one of {', '.join(kinds)}")
    kind = ContainerKind(keys[KIND])
    if name == EXTERNAL and kind is not ContainerKind.EXTERNAL:
        raise ConfigError(f"container {name!r} of {source} must have the kind {EXTERNAL}: groups of this container start nothing")
    properties = {key: value for key, value in keys.items() if key != KIND}
    for key in properties:
        if key not in _KEYS[kind] and not key.startswith(_PREFIXES[kind]):
            known = ", ".join((*_KEYS[kind], *(f"{prefix}*" for prefix in _PREFIXES[kind])))
            raise ConfigError(f"container {name!r} of {source} has the key {key!r}, but a container of kind {kind.value} has only {known}")
    if kind is ContainerKind.SPARK:
        if MASTER not in properties:
            raise ConfigError(f"container {name!r} of {source} lacks '{MASTER}': the Spark master, e.g. spark://host:7077, yarn or k8s://…")
        if properties.get(DEPLOY_MODE, _MODES[0]) not in _MODES:
            raise ConfigError(
                f"'{DEPLOY_MODE}' of container {name!r} in {source} is {properties[DEPLOY_MODE]!r} but must be one of {', '.join(_MODES)}"
            )
        if properties.get(DEPLOY_MODE) == "cluster" and TOKEN_FILE not in properties:
            raise ConfigError(
                f"container {name!r} of {source} lacks '{TOKEN_FILE}': in cluster mode it is the path of the token on the driver's host"
            )
    return Container(name, kind, properties)


def _text(value: object) -> str:
    """A scalar of YAML as Spark and the environment write it."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def spark_properties(container: Container, group: ResourceGroup) -> Mapping[str, str]:
    """Return the Spark properties of an optimizer that is submitted to a cluster. Those of the group win over those of the container.

    Unless they say otherwise, an optimizer gets one core for each task that it merges at a time, and so leaves the other cores of the
    cluster to other optimizers.
    """
    if container.kind is not ContainerKind.SPARK:
        return {}
    slots = str(group.number(PARALLELISM) or 1)
    defaults = {"spark.executor.cores": "1", "spark.cores.max": slots, "spark.executor.instances": slots}
    given = {**container.properties, **group.properties}
    return {**defaults, **{key: value for key, value in given.items() if key.startswith(SPARK_PROPERTY)}}


def check_group_keys(container: Container, group: ResourceGroup) -> None:
    """Raise ConfigError when the group has a property that means nothing to its container, for example a misspelled one."""
    for key in group.properties:
        if key not in _OF_GROUPS and not (container.kind is ContainerKind.SPARK and key.startswith(SPARK_PROPERTY)):
            more = f", and properties that begin with '{SPARK_PROPERTY}'" if container.kind is ContainerKind.SPARK else ""
            near = difflib.get_close_matches(key, _OF_GROUPS, n=1)
            meant = f": did you mean '{near[0]}'?" if near else ";"
            raise ConfigError(
                f"group {group.name} has the property {key!r}, but a group whose container is of kind {container.kind.value} may have only "
                f"{', '.join(_OF_GROUPS)}{more}{meant} leave it out, and `group change {group.name} -p {key}=` removes one that is set"
            )


def without_effect(container: Container, group: ResourceGroup) -> str | None:
    """Say which properties of a group do nothing, because people start its optimizers. None when all have an effect."""
    numbers = [key for key in (INSTANCES, MIN_INSTANCES) if group.number(key)]
    if container.kind is not ContainerKind.EXTERNAL or not numbers:
        return None
    return (
        f"{' and '.join(numbers)} of group {group.name} {'has' if len(numbers) == 1 else 'have'} no effect, because people start the "
        f"optimizers of container {container.name}; name a container of kind local or spark"
    )


def settings_digest(container: Container, group: ResourceGroup) -> str:
    """Return 16 hexadecimal digits that change when an optimizer of this group would be started in another way.

    It is a digest, because properties may be secrets. How many optimizers a group wants does not count.
    """
    own = {key: value for key, value in group.properties.items() if key not in (INSTANCES, MIN_INSTANCES, VERIFY_OUTPUTS)}
    parts = [container.name, container.kind.value, dict(container.properties), own]
    return sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:16]


def memory_of(container: Container, group: ResourceGroup) -> int:
    """Return the bytes of memory of an optimizer in all; 0 when they are not known.

    On a cluster they are those of the driver and of one executor for each task, unless the group says otherwise.
    """
    given = group.number(MEMORY)
    if given is not None or container.kind is not ContainerKind.SPARK:
        return given or 0
    properties = spark_properties(container, group)
    driver, executor = _bytes(properties.get(_DRIVER_MEMORY, "1g")), _bytes(properties.get(_EXECUTOR_MEMORY, "1g"))
    return driver + executor * (group.number(PARALLELISM) or 1)


def _bytes(text: str) -> int:
    """The bytes of a size as Spark writes it, e.g. 512m; 0 for a text that is none, which Spark itself refuses."""
    found = re.fullmatch(r"([0-9]+)\s*([kmgt]?)b?", text.strip().lower())
    return int(found[1]) * _SIZES[found[2]] if found else 0


def optimizer_arguments(container: Container, group: ResourceGroup, server: str, token_file: str, resource_id: str = "") -> tuple[str, ...]:
    """Return the arguments of `compaction-pipeline` that run an optimizer of this group.

    `server` and `token_file` are used unless the container names others. The token itself is never an argument, because every user of a
    host sees the arguments of its processes.
    """
    of = container.properties
    options = (
        ("--server", of.get(SERVER) or server),
        ("--group", group.name),
        ("--parallelism", group.properties.get(PARALLELISM, "")),
        ("--memory", str(memory_of(container, group) or "")),
        ("--resource-id", resource_id),
        ("--token-file", of.get(TOKEN_FILE) or token_file),
        ("--ca-file", of.get(CA_FILE, "")),
        ("--master", of.get(MASTER, "")),
    )
    return ("optimizer", *(part for option, value in options if value for part in (option, value)))
