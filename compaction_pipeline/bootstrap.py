"""Builds all use cases from the settings, on the parts that `foundations` opens.

Nothing is opened or imported before it is needed, as there. The `wire` of each column in `services/` says what it is built of.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from compaction_pipeline.core.leases.ports import Heartbeat
from compaction_pipeline.foundations import Foundations, new_id, open_state_database, this_process
from compaction_pipeline.process import heartbeat, undisturbed
from compaction_pipeline.services.wire import EveryService

if TYPE_CHECKING:
    from compaction_pipeline.services.held_lease import Leases
    from compaction_pipeline.settings import Settings


def upgrade_state_database(settings: Settings) -> bool:
    """Bring the schema of the state database to this program's version; False if it had it. Raises ConfigError, StorageUnavailable."""
    stores = open_state_database(settings, upgrade=True)
    stores.close()
    return stores.upgraded


def rotate_secret_key(settings: Settings) -> int:
    """Encrypt all stored secrets with a new key. Return how many catalogs and groups have some. Raises ConfigError, StorageUnavailable."""
    stores = open_state_database(settings)
    try:
        return stores.rotate_key()
    finally:
        stores.close()


@dataclass
class Services(Foundations, EveryService):
    """Every use case, built on first use."""

    def close(self) -> None:
        """Write what was measured, stop the Spark session if one was started, and close the connections to the state database."""
        if "meter_own_work" in self.__dict__:
            self.meter_own_work.write()
        super().close()

    @property
    def _settings(self) -> Settings:
        return self.settings

    @cached_property
    def _leases(self) -> Leases:
        from compaction_pipeline.services.held_lease import Leases

        return Leases(self._stores.leases, self.clock, self._heartbeat, self.new_owner, self.meter_own_work.measured)

    @cached_property
    def _new_id(self) -> Callable[[], str]:
        return new_id

    @cached_property
    def _heartbeat(self) -> Heartbeat:
        return heartbeat

    @cached_property
    def _undisturbed(self) -> Callable[[], AbstractContextManager[None]]:
        return undisturbed


def open_services(settings: Settings | None = None, holder: str | None = None) -> Services:
    """Services of these settings, or of those in the environment. The log gets their level. Raises ConfigError for a bad setting.

    `holder` is the name that others see when they must wait for a lease that these services hold. The default names this process.
    """
    from compaction_pipeline.settings import load_settings

    settings = settings or load_settings()
    logging.getLogger("compaction_pipeline").setLevel(settings.log_level)
    return Services(settings, holder=holder or this_process())
