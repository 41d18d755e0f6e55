"""Containers: what optimizers are started in, and the command that starts one.

A file on the server's host describes them. A group names one, and its properties say how many optimizers it wants and how large they are.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from hashlib import sha256

from compaction_pipeline.core.capacity.scaling.policy import FLOOR
from compaction_pipeline.core.capacity.scaling.policy import PREFIX as POLICY_PREFIX
from compaction_pipeline.core.errors import ConfigError
from compaction_pipeline.core.queue.group import (
    EXTERNAL,
    INSTANCES,
    MEMORY,
    MIN_INSTANCES,
    PARALLELISM,
    TEAM,
    VERIFY_OUTPUTS,
    ResourceGroup,
)
from compaction_pipeline.core.queue.spark_memory import application_memory, spark_bytes
from compaction_pipeline.core.tables.group_name import GROUP_NAME_RULE, is_group_name

KIND, SERVER, TOKEN_FILE, CA_FILE, MASTER, DEPLOY_MODE = "kind", "server", "token-file", "ca-file", "master", "deploy-mode"
MAX_MEMORY, MAX_CORES = "max-memory", "max-cores"
ENVIRONMENT, SPARK_PROPERTY = "env.", "spark."
YARN_MASTER = "yarn"
IMAGE, NAMESPACES, NAMESPACE, CPU = "image", "namespaces", "namespace", "cpu"
CONTEXT, ACCOUNT, TOKEN_SECRET, CA_SECRET, ENVIRONMENT_SECRET = "context", "service-account", "token-secret", "ca-secret", "env-secret"
_MODES = ("client", "cluster")


class ContainerKind(str, Enum):
    """LOCAL starts processes on the server's host. SPARK submits applications to a cluster of which only the submitting host knows, YARN to
    one that can be asked. KUBERNETES makes a Job for each optimizer. EXTERNAL starts nothing."""

    LOCAL = "local"
    SPARK = "spark"
    YARN = "yarn"
    KUBERNETES = "kubernetes"
    EXTERNAL = "external"


_COMMON = (SERVER, TOKEN_FILE, CA_FILE)
_OF_GROUPS = (INSTANCES, MIN_INSTANCES, PARALLELISM, MEMORY, VERIFY_OUTPUTS, TEAM, FLOOR)
_NOT_OF_ONE = (INSTANCES, MIN_INSTANCES, VERIFY_OUTPUTS, TEAM, FLOOR)
"""Properties of a group that do not change how one of its optimizers is started. Neither do those of its policy of scaling."""


@dataclass(frozen=True, slots=True)
class _Rules:
    """What a container of a kind, and a group of such a container, may say.

    `keys` and `prefixes` are those of the container, `group_keys` and `group_prefixes` those of the group. A key of `defaults` has this
    value where the file says nothing. `required` maps keys that must be there to what they are. `elsewhere` says that
    all its optimizers run on hosts of a cluster.
    """

    keys: tuple[str, ...] = _COMMON
    prefixes: tuple[str, ...] = ()
    group_keys: tuple[str, ...] = _OF_GROUPS
    group_prefixes: tuple[str, ...] = (POLICY_PREFIX,)
    defaults: Mapping[str, str] = field(default_factory=dict)
    required: Mapping[str, str] = field(default_factory=dict)
    elsewhere: bool = False


_SUBMITTED = _Rules(
    keys=(*_COMMON, MASTER, DEPLOY_MODE), prefixes=(ENVIRONMENT, SPARK_PROPERTY), group_prefixes=(SPARK_PROPERTY, POLICY_PREFIX)
)
_RULES: Mapping[ContainerKind, _Rules] = {
    ContainerKind.LOCAL: _Rules(keys=(*_COMMON, MAX_MEMORY, MAX_CORES), prefixes=(ENVIRONMENT,)),
    ContainerKind.SPARK: replace(_SUBMITTED, required={MASTER: "the Spark master, e.g. spark://host:7077 or k8s://…"}),
    ContainerKind.YARN: replace(_SUBMITTED, defaults={MASTER: YARN_MASTER}),
    ContainerKind.KUBERNETES: _Rules(
        keys=(SERVER, TOKEN_FILE, IMAGE, NAMESPACES, CPU, CONTEXT, ACCOUNT, TOKEN_SECRET, CA_SECRET, ENVIRONMENT_SECRET),
        prefixes=(ENVIRONMENT,),
        group_keys=(*_OF_GROUPS, NAMESPACE, CPU),
        defaults={
            NAMESPACES: "default",
            TOKEN_SECRET: "compaction-optimizer-token",
            TOKEN_FILE: "/etc/compaction/token/optimizer.token",
        },
        required={
            SERVER: "the URL by which pods reach the server, e.g. https://compaction-server:8787",
            IMAGE: "the image of the optimizers",
        },
        elsewhere=True,
    ),
    ContainerKind.EXTERNAL: _Rules(),
}


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
    def is_submitted(self) -> bool:
        """Whether its optimizers are Spark applications, which spark-submit starts on a cluster."""
        return MASTER in _RULES[self.kind].keys

    @property
    def runs_driver_elsewhere(self) -> bool:
        """Whether an optimizer runs on a host of the cluster, where files of this host are not found."""
        return _RULES[self.kind].elsewhere or self.properties.get(DEPLOY_MODE) == "cluster"

    @property
    def namespaces(self) -> tuple[str, ...]:
        """The namespaces of Kubernetes in which its groups may run, the default one first."""
        return tuple(part.strip() for part in self.properties.get(NAMESPACES, "").split(",") if part.strip())


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
    if kind is ContainerKind.SPARK and keys.get(MASTER) == YARN_MASTER:
        # Files that are older than the kind `yarn` say it so.
        kind = ContainerKind.YARN
    if name == EXTERNAL and kind is not ContainerKind.EXTERNAL:
        raise ConfigError(f"container {name!r} of {source} must have the kind {EXTERNAL}: groups of this container start nothing")
    properties = {**_RULES[kind].defaults, **{key: value for key, value in keys.items() if key != KIND}}
    _check_keys(f"container {name!r} of {source}", kind, properties)
    for key, rule in _VALUES.items():
        if key in properties and not rule.fits(properties[key]):
            raise ConfigError(f"'{key}' of container {name!r} in {source} is {properties[key]!r} but must be {rule.in_words}")
    return Container(name, kind, properties)


def _check_keys(container: str, kind: ContainerKind, properties: Mapping[str, str]) -> None:
    """Raise ConfigError for a key that a container of this kind cannot have, and for one that it lacks."""
    rules = _RULES[kind]
    for key in properties:
        if key not in rules.keys and not key.startswith(rules.prefixes):
            known = ", ".join((*rules.keys, *(f"{prefix}*" for prefix in rules.prefixes)))
            raise ConfigError(f"{container} has the key {key!r}, but a container of kind {kind.value} has only {known}")
    for key, meaning in rules.required.items():
        if key not in properties:
            raise ConfigError(f"{container} lacks '{key}': {meaning}")
    if kind is ContainerKind.YARN and properties[MASTER] != YARN_MASTER:
        raise ConfigError(f"{container} has the '{MASTER}' {properties[MASTER]!r}, but its kind has the master yarn; leave '{MASTER}' out")
    if properties.get(DEPLOY_MODE) == "cluster" and TOKEN_FILE not in properties:
        raise ConfigError(f"{container} lacks '{TOKEN_FILE}': in cluster mode it is the path of the token on the driver's host")


@dataclass(frozen=True, slots=True)
class _Value:
    """A rule for a value, and the rule in words."""

    fits: Callable[[str], bool]
    in_words: str


_VALUES: Mapping[str, _Value] = {
    DEPLOY_MODE: _Value(lambda text: text in _MODES, f"one of {', '.join(_MODES)}"),
    MAX_MEMORY: _Value(lambda text: _bound(text) > 0, "a size such as 8g or 512m, or a number of bytes"),
    CPU: _Value(lambda text: cores_of(text) > 0, "a number of cores such as 2, 0.5 or 500m"),
    NAMESPACES: _Value(lambda text: all(map(_is_label, text.split(","))), "names of namespaces with commas between them"),
    MAX_CORES: _Value(lambda text: text.isascii() and text.isdigit() and int(text) > 0, "a whole number from 1"),
}


def _text(value: object) -> str:
    """A scalar of YAML as Spark and the environment write it."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def spark_properties(container: Container, group: ResourceGroup) -> Mapping[str, str]:
    """Return the Spark properties of an optimizer that is submitted to a cluster. Those of the group win over those of the container.

    Unless they say otherwise, an optimizer gets one core for each task that it merges at a time, and so leaves the other cores of the
    cluster to other optimizers.
    """
    if not container.is_submitted:
        return {}
    slots = str(group.number(PARALLELISM) or 1)
    defaults = {"spark.executor.cores": "1", "spark.cores.max": slots, "spark.executor.instances": slots}
    given = {**container.properties, **group.properties}
    return {**defaults, **{key: value for key, value in given.items() if key.startswith(SPARK_PROPERTY)}}


def check_group_keys(container: Container, group: ResourceGroup) -> None:
    """Raise ConfigError when the group has a property that means nothing to its container, for example a misspelled one."""
    rules = _RULES[container.kind]
    for key in group.properties:
        if key not in rules.group_keys and not key.startswith(rules.group_prefixes):
            more = "".join(f", and properties that begin with '{prefix}'" for prefix in rules.group_prefixes)
            near = difflib.get_close_matches(key, rules.group_keys, n=1)
            meant = f": did you mean '{near[0]}'?" if near else ";"
            raise ConfigError(
                f"group {group.name} has the property {key!r}, but a group whose container is of kind {container.kind.value} may have only "
                f"{', '.join(rules.group_keys)}{more}{meant} leave it out, and "
                f"`group change {group.name} -p {key}=` removes one that is set"
            )

    _check_place(container, group)


def _check_place(container: Container, group: ResourceGroup) -> None:
    """Raise ConfigError for a place in a cluster that a group cannot have."""
    namespace, cpu = group.properties.get(NAMESPACE), group.properties.get(CPU)
    if namespace is not None and container.namespaces and namespace not in container.namespaces:
        raise ConfigError(
            f"'{NAMESPACE}' of group {group.name} is {namespace!r}, but container {container.name} may use only "
            f"{', '.join(container.namespaces)}: name one of these, or add it to '{NAMESPACES}' of the container"
        )
    if cpu is not None and not _VALUES[CPU].fits(cpu):
        raise ConfigError(f"'{CPU}' of group {group.name} is {cpu!r} but must be {_VALUES[CPU].in_words}")


def without_effect(container: Container, group: ResourceGroup) -> str | None:
    """Say which properties of a group do nothing, because people start its optimizers. None when all have an effect."""
    numbers = [key for key in (INSTANCES, MIN_INSTANCES) if group.number(key)]
    if container.kind is not ContainerKind.EXTERNAL or not numbers:
        return None
    others = [kind.value for kind in ContainerKind if kind is not ContainerKind.EXTERNAL]
    return (
        f"{' and '.join(numbers)} of group {group.name} {'has' if len(numbers) == 1 else 'have'} no effect, because people start the "
        f"optimizers of container {container.name}; name a container of kind {' or '.join(others)}"
    )


def settings_digest(container: Container, group: ResourceGroup) -> str:
    """Return 16 hexadecimal digits that change when an optimizer of this group would be started in another way.

    It is a digest, because properties may be secrets. How many optimizers a group wants, who pays for them, and how much a container may
    hold, does not count.
    """
    own = {key: value for key, value in group.properties.items() if key not in _NOT_OF_ONE and not key.startswith(POLICY_PREFIX)}
    its = {key: value for key, value in container.properties.items() if key not in (MAX_MEMORY, MAX_CORES)}
    parts = [container.name, container.kind.value, its, own]
    return sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:16]


def memory_of(container: Container, group: ResourceGroup) -> int:
    """Return the bytes of memory of an optimizer in all; 0 when they are not known.

    On a cluster they are those of the driver and of one executor for each task, unless the group says otherwise, each with what Spark asks
    for beside the heap.
    """
    given = group.number(MEMORY)
    if given is not None or not container.is_submitted:
        return given or 0
    properties = spark_properties(container, group)
    return application_memory(properties, group.number(PARALLELISM) or 1, container.properties.get(MASTER, ""))


def cpu_of(container: Container, group: ResourceGroup) -> str:
    """Return the cores of an optimizer as Kubernetes writes them. Unless something else is said, it gets one for each task."""
    return group.properties.get(CPU) or container.properties.get(CPU) or str(group.number(PARALLELISM) or 1)


def cores_of(cpu: str) -> float:
    """Return a number of cores that Kubernetes would read; 0 for a text that is none."""
    found = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)(m?)", cpu.strip())
    return 0.0 if found is None else float(found[1]) / (1000 if found[2] else 1)


def _is_label(text: str) -> bool:
    """Whether Kubernetes takes a text as the name of a namespace."""
    return re.fullmatch(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", text.strip()) is not None


def bounds_of(container: Container) -> tuple[int | None, int | None]:
    """Return how many bytes of memory and how many cores a container may hold on a host. None stands for no bound."""
    memory, cores = container.properties.get(MAX_MEMORY), container.properties.get(MAX_CORES)
    return None if memory is None else _bound(memory), None if cores is None else int(cores)


def _bound(text: str) -> int:
    """The bytes of a size; a bare number is bytes, as it is in the `memory` of a group."""
    return int(text) if text.isascii() and text.isdigit() else spark_bytes(text)


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
