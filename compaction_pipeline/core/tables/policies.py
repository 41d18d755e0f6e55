"""The policies that a catalog attaches to a table, to its namespaces or to itself: what they forbid here, and what is taken of them.

Polaris has them. Its specification is `spec/polaris-catalog-apis/policy-apis.yaml`, and the contents are `schemas/policies/system/` there.
`enable` = false wins over every property. `enable` = true switches nothing on.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import Enum
from typing import Any

from compaction_pipeline.core.tables.properties import CATALOG_PREFIX, WRITE_TARGET_KEY

ASKED_EVERY = timedelta(minutes=10)
"""An answer counts for so long. Then the catalog is asked again."""
TARGET_KEY = "target_file_size_bytes"
_SINGLE = "only one policy of a type may count for a table"


class PolicyType(str, Enum):
    """The types of policies that say something about this program's work."""

    COMPACTION = "system.data-compaction"
    EXPIRY = "system.snapshot-expiry"
    ORPHANS = "system.orphan-file-removal"
    MANIFESTS = "system.metadata-compaction"


@dataclass(frozen=True, slots=True)
class Policy:
    """One policy that counts for a table. `namespace` is where the policy itself is stored; it may be attached above the table.

    `config` holds the texts of its values. `others` are the keys of its content beside `enable` and `config`.
    """

    type: PolicyType
    name: str
    namespace: tuple[str, ...]
    enabled: bool
    config: Mapping[str, str] = field(default_factory=dict)
    others: tuple[str, ...] = ()

    @property
    def in_words(self) -> str:
        return f"{'.'.join((*self.namespace, self.name))!r} ({self.type.value})"

    @property
    def ignored(self) -> tuple[str, ...]:
        """The keys of which nothing is taken here."""
        taken = {TARGET_KEY} if self.type is PolicyType.COMPACTION else set()
        return tuple(sorted((*(key for key in self.config if key not in taken), *self.others)))


@dataclass(frozen=True, slots=True)
class TablePolicies:
    """What a catalog that has policies says about the table with this uuid, as far as it answered.

    `asked_at` is when it was asked last, and `asks` how often it was. `answered_at` is when the `policies` were told; None while no
    answer has come. `problem` says why the last question had no answer; None when it had one.
    """

    table_uuid: str
    asked_at: datetime
    asks: int = 1
    answered_at: datetime | None = None
    policies: tuple[Policy, ...] = ()
    problem: str | None = None

    def of(self, type: PolicyType) -> Policy | None:
        return next((policy for policy in self.policies if policy.type is type), None)

    def are_old(self, now: datetime) -> bool:
        return not timedelta(0) <= now - self.asked_at < ASKED_EVERY

    def why_not(self, type: PolicyType) -> str | None:
        """Return why the work of this type is forbidden, as the last answer says; None when it is not.

        Before the first answer nobody knows, and it is forbidden too.
        """
        if self.answered_at is None:
            return (
                f"policy of the catalog: it has policies, and did not tell them yet: {self.problem}; let the catalog answer, and give this "
                "program's principal the right to read the properties of the table"
            )
        policy = self.of(type)
        if policy is None or policy.enabled:
            return None
        return f"policy of the catalog: {policy.in_words} has 'enable' = false; change it in the catalog, or detach it"

    def why_no_deletion(self, type: PolicyType) -> str | None:
        """The same for a work that removes something: an answer that is missing now forbids it too."""
        forbidden = self.why_not(type)
        if forbidden is not None or self.problem is None:
            return forbidden
        return f"policy of the catalog: it does not tell now whether this is allowed: {self.problem}; nothing is removed until it does"

    @property
    def ignored(self) -> tuple[str, ...]:
        """A sentence for each policy of which something has no effect here."""
        return tuple(
            f"policy {policy.in_words}: {', '.join(map(repr, policy.ignored))} without effect here"
            for policy in self.policies
            if policy.ignored
        )


def inherited(catalog: Mapping[str, str], policies: TablePolicies | None) -> Mapping[str, str]:
    """Return the properties that a table inherits: those with which its catalog is registered, and below these the target size of a policy.

    Every property of the table wins over the policy, and so does every property that the registration sets for all tables.
    """
    policy = policies.of(PolicyType.COMPACTION) if policies is not None else None
    target = policy.config.get(TARGET_KEY, "") if policy is not None else ""
    key = CATALOG_PREFIX + WRITE_TARGET_KEY
    is_size = target.isascii() and target.isdigit() and 1 <= int(target) <= 2**60
    return {key: target, **catalog} if is_size else catalog


def read_policies(answers: Sequence[Mapping[str, Any]]) -> tuple[Policy, ...]:
    """Read the pages of the answer of a catalog. Policies of other types are left out.

    Raises ValueError for an answer that breaks the specification, and for two policies of one type: nobody can tell then which one counts.
    """
    found: dict[PolicyType, Policy] = {}
    types = {one.value: one for one in PolicyType}
    for answer in answers:
        listed = answer.get("applicable-policies")
        if not isinstance(listed, list):
            raise ValueError("the answer has no list 'applicable-policies'")
        for one in listed:
            kind = types.get(str(one.get("policy-type")) if isinstance(one, dict) else "")
            if kind is None:
                continue
            policy = _read(kind, one)
            if kind in found and found[kind] != policy:
                raise ValueError(f"two policies of type {kind.value}: {found[kind].name!r} and {policy.name!r}; {_SINGLE}")
            found[kind] = policy
    return tuple(found.values())


def _read(kind: PolicyType, one: Mapping[str, Any]) -> Policy:
    name, namespace = one.get("name"), one.get("namespace", [])
    if not isinstance(name, str) or not isinstance(namespace, list):
        raise ValueError(f"a policy of type {kind.value} has no name or no namespace")
    try:
        content = json.loads(one.get("content") or "")
    except (TypeError, ValueError):
        raise ValueError(f"the content of policy {name!r} is not JSON") from None
    enabled = content.get("enable") if isinstance(content, dict) else None
    if not isinstance(enabled, bool):
        raise ValueError(f"the content of policy {name!r} has no 'enable' that is true or false")
    config = content.get("config") or {}
    if not isinstance(config, dict):
        raise ValueError(f"'config' of policy {name!r} is no object")
    others = tuple(sorted(key for key in content if key not in ("version", "enable", "config")))
    texts = {str(key): value if isinstance(value, str) else json.dumps(value) for key, value in config.items()}
    return Policy(kind, name, tuple(map(str, namespace)), enabled, texts, others)
