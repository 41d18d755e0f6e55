"""Decides which rows of a batch are deleted. Merges, copies and conversions all use this one rule."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Mask = NDArray[np.bool_]


@dataclass(slots=True)
class DeletedRows:
    """Counts deleted rows. A row that is deleted by position and by equality counts as deleted by position."""

    by_position: int = 0
    by_equality: int = 0

    def among(self, rows: int, positional: Mask | None, equal: Mask | None) -> Mask | None:
        """The deleted rows among `rows` rows; None if there are none. Each mask has `rows` entries; a mask of None marks no row."""
        if positional is None and equal is None:
            return None
        deleted = np.zeros(rows, dtype=bool)
        if positional is not None:
            deleted |= positional
            self.by_position += int(positional.sum())
        if equal is not None:
            self.by_equality += int((equal & ~deleted).sum())
            deleted |= equal
        return deleted if deleted.any() else None
