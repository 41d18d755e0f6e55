"""Lets a sensor hold a lease for a moment."""

from __future__ import annotations

from datetime import datetime, timedelta

from compaction_pipeline_tests.services.in_hand import InHand


class HeldForAMoment:
    """Refuses the first process that asks for this lease, because a sensor holds it. `refused` is empty before, and has its name then."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.refused: list[str] = []

    def __call__(self, leases: InHand) -> None:
        """Answer for these leases from now on."""
        real = leases.real

        def asked(wanted: str, owner: str, now: datetime, lease: timedelta) -> bool:
            if wanted != self.name or self.refused:
                return bool(real.acquire(wanted, owner, now, lease))
            assert real.acquire(wanted, "sensor#1", now, lease)
            taken = real.acquire(wanted, owner, now, lease)
            real.release(wanted, "sensor#1")
            self.refused.append(wanted)
            return bool(taken)

        leases.instead(acquire=asked)
