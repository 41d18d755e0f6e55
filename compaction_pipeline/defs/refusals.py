"""Turns known errors into failures of a run that say one sentence. The chain of errors below it would help nobody who reads the page."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import dagster as dg

from compaction_pipeline.core.errors import CompactionError, StorageUnavailable


def refused(error: CompactionError) -> dg.Failure:
    """The failure that says what the error says. A retry may help only when a storage or a database did not answer."""
    return dg.Failure(str(error), allow_retries=isinstance(error, StorageUnavailable))


@contextmanager
def failing_in_words() -> Iterator[None]:
    """Raise a known error of the block as such a failure. Raise it `from None`, because Dagster shows each cause with its stack trace."""
    try:
        yield
    except CompactionError as error:
        raise refused(error) from None
