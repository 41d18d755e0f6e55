"""Builds the use case of tokens on first use."""

from __future__ import annotations

import secrets
from functools import cached_property
from typing import TYPE_CHECKING

from compaction_pipeline.services.wiring import Wiring

if TYPE_CHECKING:
    from compaction_pipeline.services.access.keep_tokens import KeepTokens


class AccessServices(Wiring):
    """The use case of tokens on first use."""

    @cached_property
    def keep_tokens(self) -> KeepTokens:
        from compaction_pipeline.services.access.keep_tokens import KeepTokens

        return KeepTokens(self._stores.tokens, self.clock, secrets.token_hex)
