"""Keeps Dagster's warnings about our own choices out of the logs of people who load our definitions."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import dagster as dg


def asset_with_backfill_policy(**options: Any) -> Callable[[Callable[..., Any]], dg.AssetsDefinition]:
    """Do the same as `dg.asset`, which calls its parameter `backfill_policy` beta and warns of it.

    The warning is hidden for this call only, so warnings about other people's definitions appear as before.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", dg.BetaWarning)
        decorator: Callable[[Callable[..., Any]], dg.AssetsDefinition] = dg.asset(**options)
        return decorator
