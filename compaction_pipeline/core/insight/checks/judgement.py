"""What a check answers: how many nodes, tables or groups it judged, which of them fail and why, and how bad a failure is.

A check that could not look has no answer: it neither passes nor fails. A check that has nothing to judge passes, and says so.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from compaction_pipeline.core.tables.node import TableNode
from compaction_pipeline.core.tables.table import TableIdentifier


class Severity(str, Enum):
    """How bad it is when a check fails."""

    ERROR = "ERROR"
    """Something is wrong, and a person must act."""
    WARN = "WARN"
    """Something is not as it should be, and it may mend itself."""


@dataclass(frozen=True, slots=True)
class Failure:
    """A node, a table, a group, a receiver, a job or a team that fails, or that could not be judged, and why. `node` is None when it is
    about the whole table, and `table` when it is about a `group`, a `receiver` of jobs, a `job` or a `team`."""

    table: TableIdentifier | None
    node: TableNode | None
    reason: str
    group: str | None = None
    receiver: str | None = None
    job: str | None = None
    team: str | None = None

    @property
    def place(self) -> str:
        """The table, the group, the receiver, the job, or the team."""
        if self.team is not None:
            return f"team {self.team}"
        if self.job is not None:
            return f"job {self.job}"
        if self.receiver is not None:
            return f"receiver {self.receiver}"
        return f"group {self.group}" if self.table is None else str(self.table)

    @property
    def name(self) -> str:
        """The table or the group, and the node if only that fails."""
        return self.place if self.node is None else f"{self.place} {self.node}"


@dataclass(frozen=True, slots=True)
class Judgement:
    """The result of looking at `judged` nodes, tables or groups. `failures` has those that fail, the worst or the oldest first. `unjudged`
    has those that nobody could judge, because they could not be read or because a history is missing.

    `subject` is "nodes", "tables", "groups", "receivers", "alerts" or "teams". `scope` says which of them were judged, for example "with a
    merge"; it is "" when all were. `nothing` is the text for a judgement of nothing, and `detail` is added to the text of one that passed.
    `figures` are more numbers, by names that end in their unit.
    """

    subject: str
    judged: int
    failures: tuple[Failure, ...] = ()
    scope: str = ""
    nothing: str = ""
    detail: str = ""
    figures: tuple[tuple[str, float], ...] = ()
    unjudged: tuple[Failure, ...] = ()

    @property
    def passed(self) -> bool:
        """Whether nothing fails and everything could be judged."""
        return not self.failures and not self.unjudged

    @property
    def evaluated(self) -> bool:
        """Whether the check has an answer. One failure is an answer, also when something else could not be judged."""
        return bool(self.failures) or not self.unjudged

    @property
    def text(self) -> str:
        """One sentence with numbers and the first failure."""
        if self.failures:
            first = self.failures[0]
            return f"{len(self.failures)} of {self.judged} {self.subject} fail; {first.name}: {first.reason}"
        if self.unjudged:
            first, others = self.unjudged[0], len(self.unjudged) - 1
            more = f"; nor could {others} more be judged" if others else ""
            return f"not evaluated: {first.name} could not be judged: {first.reason}{more}"
        if not self.judged:
            return self.nothing or f"no {self.subject} to judge yet"
        scope = f" {self.scope}" if self.scope else ""
        detail = f"; {self.detail}" if self.detail else ""
        if self.judged == 1:
            return f"the only {self.subject.removesuffix('s')}{scope} passes{detail}"
        return f"all {self.judged} {self.subject}{scope} pass{detail}"
