"""Knows which runs of Dagster have no process any more: each run holds a lease, beside those of its tasks."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

from compaction_pipeline.core.queue.ports.optimizers import WatcherStore
from compaction_pipeline.core.queue.watchers import lost_leases
from compaction_pipeline.services.held_lease import Leases

_REMEMBERED = timedelta(days=30)
"""A run that was killed is known as lost for this long."""


class RunLeases:
    """A run has the verb `hold`. The keeper asks `is_lost`."""

    def __init__(self, watchers: WatcherStore, leases: Leases) -> None:
        self._watchers = watchers
        self._leases = leases

    @contextmanager
    def hold(self, run_id: str) -> Iterator[None]:
        """Show that a run has a process, until the block ends. When the process is killed, the run is lost a minute later.

        A run that has several processes at a time never looks lost: the executor of a project may give each step one.
        """
        began = _began(run_id)
        # That it began is known only while it holds its lease: between the two it would look as if its process was gone.
        with self._leases.hold(_run(run_id)) as renew:
            if renew is not None:
                self._leases.note_done(began, _REMEMBERED)
            else:
                # The process that has the lease may end before this one, or may have been killed so that this one repeats its step.
                self._leases.release(began)
            try:
                yield
            finally:
                self._leases.release(began)

    def is_held(self, run_id: str) -> bool:
        """Whether the run holds its lease at this moment."""
        return self._leases.holder(_run(run_id)) is not None

    def is_lost(self, run_id: str) -> bool:
        """Whether a run held its lease, did not give it back, and lost it. A run that nobody has heard of is not lost.

        After a break of the keeper a run has the time to renew its lease first, as tasks have.
        """
        if self._leases.done_at(_began(run_id), _REMEMBERED) is None:
            return False
        ended_by = lost_leases(self._watchers.watchers(), self._leases.clock()).ended_by
        return self._leases.holder(_run(run_id), ended_by) is None


def _run(run_id: str) -> str:
    return f"run:{run_id}"


def _began(run_id: str) -> str:
    return f"run began:{run_id}"
