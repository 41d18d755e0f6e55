"""What a rewrite of manifests did, and how it ended."""

from __future__ import annotations

from dataclasses import dataclass

from compaction_pipeline.core.commit.ports import CommitState


@dataclass(frozen=True, slots=True)
class ManifestFigures:
    """What a rewrite of manifests did: how many were made, kept as they were and replaced, and how many live entries were moved.

    `opened_before` and `opened_after` are how many manifests a reader of one partition opens, on average.
    """

    created: int = 0
    kept: int = 0
    replaced: int = 0
    entries: int = 0
    opened_before: float = 0.0
    opened_after: float = 0.0


@dataclass(frozen=True, slots=True)
class ManifestsOutcome:
    """How a rewrite of manifests ended. The state NOTHING means that there was nothing to do, or that certainly nothing was committed.

    `unanswered` is True when an attempt got no answer: its request may still arrive, so what it has written must stay.
    """

    state: CommitState
    reason: str
    figures: ManifestFigures = ManifestFigures()
    snapshot_before: int | None = None
    snapshot_after: int | None = None
    attempts: int = 0
    unanswered: bool = False

    @property
    def is_unknown(self) -> bool:
        """Whether the rewrite may have landed, or may still land."""
        return self.state is CommitState.UNKNOWN
