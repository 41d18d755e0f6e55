"""What an admin does with facts that could not be applied: look at them, try them again, and remove them."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from compaction_pipeline.core.dependencies.center.inbox import SetAside
from compaction_pipeline.core.dependencies.center.ports import CenterStore

_LOG = logging.getLogger(__name__)


class FactsSetAside:
    """The verbs are facts, try_again and remove."""

    def __init__(self, store: CenterStore) -> None:
        self._store = store

    def facts(self, most: int = 100) -> Sequence[SetAside]:
        """Return the oldest facts that could not be applied."""
        return self._store.set_aside(most)

    def try_again(self, number: int, who: str) -> SetAside:
        """Let the leader apply a fact once more. Return it. `who` is named in the log.

        Raises NotFoundError, and ConfigError for one that cannot be read, or that something newer has overtaken.
        """
        one = self._store.try_again(number)
        _LOG.warning("fact %d about %s is tried again, because %s said so", number, one.subject, who)
        return one

    def remove(self, number: int, who: str) -> SetAside:
        """Remove a fact that was set aside. Return it. `who` is named in the log. Raises NotFoundError."""
        one = self._store.remove_fact(number)
        _LOG.warning("fact %d was removed, because %s said so; it was %s, and could not be applied: %s", number, who, one.text, one.problem)
        return one
