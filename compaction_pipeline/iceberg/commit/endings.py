"""Tells how attempts to commit ended: what a failed swap proves, and the errors and sentences for it.

Commits of merged tasks and rewrites of manifests say it alike.
"""

from __future__ import annotations

import logging
from typing import Any, NoReturn

from compaction_pipeline.core.commit.answers import Answer
from compaction_pipeline.core.errors import CommitRefused, RacesLost, StorageUnavailable
from compaction_pipeline.core.ids import RecordId
from compaction_pipeline.core.insight.masking import masked_text
from compaction_pipeline.core.secrets.known import without_secrets
from compaction_pipeline.iceberg.catalogs.commit_answers import answer_in_words, answer_of, no_proof_in_words, why_not_asked
from compaction_pipeline.iceberg.commit.attempts import Failure, LostRace, Refused, Swap, Unknown
from compaction_pipeline.iceberg.deletions import delete_quietly
from compaction_pipeline.iceberg.failures import MAKE_WRITABLE, is_readonly_database

_logger = logging.getLogger(__name__)


def proof_of(name: str, record_id: RecordId, swap: Swap[Any], failure: Failure) -> Answer:
    """What the catalog's answer to a swap proves. `name` is the table's, for messages.

    Raises StorageUnavailable when the catalog was never asked. What the attempt has written is deleted then.
    """
    error, table = failure.error, swap.transaction.table
    why = why_not_asked(table.catalog, error)
    if why is not None:
        delete_quietly(table, swap.transaction.written)
        raise StorageUnavailable(f"table {name}: {why}") from error
    answer = answer_of(table.catalog, error, failure.statuses)
    if answer is Answer.UNKNOWN:
        why = no_proof_in_words(error, failure.statuses)
        _logger.warning("table=%s record=%s the outcome of the commit is unknown: %s", name, record_id, why)
    else:
        _logger.info("table=%s record=%s %s: %s", name, record_id, answer.value, error)
    return answer


def raise_not_committed(name: str, ended: LostRace | Refused, again: str) -> NoReturn:
    """Raise RacesLost or CommitRefused: certainly nothing was committed. `again` says what to do after the refusal is mended."""
    if isinstance(ended, LostRace):
        raise RacesLost(
            f"table {name}: another writer was faster, or held the catalog's lock, {ended.attempts} times "
            f"('commit.retry.num-retries' is {ended.policy.retries}): nothing was committed; the next commit tries again"
        )
    error, statuses = ended.failure.error, ended.failure.statuses
    # What the answer proves was decided before. Whoever prints the chain of errors must see no secret that the catalog repeated.
    without_secrets(error)
    rights = "check the rights of the catalog's credentials and the catalog's log"
    raise CommitRefused(
        f"the catalog refused the commit of table {name} ({answer_in_words(error, statuses)}): nothing was committed; "
        f"{MAKE_WRITABLE if is_readonly_database(error) else rights}, then {again}"
    ) from error


def unknown_in_words(ended: Unknown[Any]) -> str:
    """Why nobody knows how a commit ended, as a sentence."""
    if ended.answer is Answer.UNKNOWN:
        why = no_proof_in_words(ended.failure.error, ended.failure.statuses)
    else:
        why = f"the catalog refused the commit, and the table cannot be read: {ended.unread}"
    return masked_text(f"the outcome of the commit is unknown: {why}; nothing is deleted; the table shows later whether the commit landed")
