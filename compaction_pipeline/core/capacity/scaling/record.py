"""A record keeps what an action did to a group, and a scale what the group is to have now. Each change gives the scale a new revision."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime
from enum import Enum

from compaction_pipeline.core.capacity.notices.event import Event
from compaction_pipeline.core.capacity.scaling.action import Action, Outcome, PastAction
from compaction_pipeline.core.capacity.scaling.target import Target
from compaction_pipeline.core.words import duration_text


class Step(str, Enum):
    """How far an open action is.

    ASKED: the target is the new one, and the optimizers that it asks for are on their way. ENDING: the action failed, the target is the
    last good one again, and what was started for the new one is ended.
    """

    ASKED = "ASKED"
    ENDING = "ENDING"


@dataclass(frozen=True, slots=True)
class Scale:
    """What a group with a policy is to have now.

    `good` is the last configuration that worked. `person` is the digest of what people say of the group, "" while it has no policy. When it
    changes, an open action ends. `size` is the digest of the number and size that people say; when it changes, theirs count. While
    `replaces` is False, optimizers of another size stay. A change is only stored when `revision` is still the one that its writer read.
    """

    group: str
    revision: int
    target: Target
    good: Target
    person: str
    size: str = ""
    replaces: bool = True

    @property
    def is_on(self) -> bool:
        """Whether the group has a policy now."""
        return bool(self.person)

    def to(self, target: Target, *, good: Target | None = None, replaces: bool = True) -> Scale:
        """Return the next revision, with another target."""
        return replace(self, revision=self.revision + 1, target=target, good=good or self.good, replaces=replaces)


@dataclass(frozen=True, slots=True)
class ScalingRecord:
    """An action, and what became of it. `policy` is the digest of the policy that asked for it. `why` says why it ended as it did.

    `settings` is the digest of the settings of the optimizers that it asked for. `in_force` is the configuration that the action left;
    None while it is open. `team` is that of the group.
    """

    record_id: str
    group: str
    at: datetime
    policy: str
    action: Action
    settings: str
    step: Step = Step.ASKED
    why: str = ""
    outcome: Outcome | None = None
    closed_at: datetime | None = None
    in_force: Target | None = None
    team: str | None = None

    @property
    def is_open(self) -> bool:
        """Whether the action has not ended."""
        return self.outcome is None

    @property
    def past(self) -> PastAction:
        """What later decisions need of it."""
        return PastAction(self.action, self.at, self.policy, self.outcome, self.closed_at)

    def closed(self, outcome: Outcome, why: str, now: datetime, in_force: Target) -> ScalingRecord:
        """Return the record of the action that ended now."""
        return replace(self, outcome=outcome, why=why, closed_at=now, in_force=in_force)

    @property
    def event(self) -> Event | None:
        """What people are told of the action; None while it is open."""
        if self.outcome is None or self.closed_at is None or self.in_force is None:
            return None
        kind = f"scaled {self.action.direction.value}" if self.outcome is Outcome.DONE else _KINDS[self.outcome]
        took = duration_text(self.closed_at - self.at)
        lines = (
            f"why: {self.action.trigger}",
            f"before: {self.action.before.in_words}",
            f"asked for: {self.action.after.in_words}",
            f"now: {self.in_force.in_words}",
            f"outcome: {self.outcome.value} after {took}{': ' * bool(self.why)}{self.why}",
        )
        return Event(f"{self.record_id}-{self.outcome.value}", kind, self.group, self.team, self.closed_at, lines)


_KINDS = {
    Outcome.PARTIAL: "was scaled in part",
    Outcome.FAILED: "was rolled back, because what was asked for did not work",
    Outcome.CANCELED: "is not scaled as was decided",
}
