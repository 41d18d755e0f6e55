"""Reads from an error what the catalog answered to a commit. `core/commit/answers.py` decides what the answer proves."""

from __future__ import annotations

from collections.abc import Sequence

from pyiceberg.catalog import Catalog
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import CommitFailedException
from sqlalchemy.exc import DBAPIError, OperationalError

from compaction_pipeline.core.commit.answers import Answer, of_aws, of_http, of_sql
from compaction_pipeline.iceberg.catalogs.rest_catalog import BoundedRestCatalog


def answer_of(catalog: Catalog, error: Exception, statuses: Sequence[int | None]) -> Answer:
    """What the catalog answered, read from the error of a commit.

    `statuses` tells how a REST catalog answered each time the request was sent.
    """
    if isinstance(catalog, BoundedRestCatalog):
        return of_http(statuses)
    if isinstance(error, CommitFailedException) or is_lock_timeout(error):
        # PyIceberg makes it of an answer of Glue too. Glue may still carry out a request that its client has sent again.
        return Answer.UNKNOWN if _resent(error.__cause__) else Answer.LOST_RACE
    if isinstance(error, DBAPIError):
        return Answer.REFUSED if _is_readonly(error) else of_sql(getattr(error.orig, "pgcode", None))
    response = getattr(error, "response", None)
    if isinstance(response, dict) and "Error" in response:
        # This is an error of botocore, which is installed only where Glue is used.
        return of_aws(str(response["Error"].get("Code", "")), _resent(error))
    return Answer.UNKNOWN


def answer_in_words(error: Exception, statuses: Sequence[int | None]) -> str:
    """What the catalog said, on one line, with the HTTP status if there is one."""
    text = " ".join(str(error).split()) or type(error).__name__
    return f"HTTP {statuses[-1]}: {text}" if statuses and statuses[-1] is not None else text


def no_proof_in_words(error: Exception, statuses: Sequence[int | None]) -> str:
    """What happened when no answer proves how the commit ended."""
    if statuses and statuses[-1] is not None:
        return f"the catalog answered {answer_in_words(error, statuses)}"
    return f"the catalog's answer got lost ({type(error).__name__}: {error})"


def is_metadata_not_written(catalog: Catalog, error: Exception) -> bool:
    """Whether the catalog's database was never asked, because the new metadata file could not be written.

    SQL catalogs and Glue write the file first, and errors of SQL databases are no OSError. Some errors of botocore are, and they may be
    about the question to Glue.
    """
    writes_first = isinstance(catalog, SqlCatalog) or type(catalog).__name__ == "GlueCatalog"
    of_botocore = any(base.__module__.startswith("botocore.") for base in type(error).__mro__)
    return writes_first and isinstance(error, OSError) and not of_botocore and not isinstance(error, (ConnectionError, TimeoutError))


def _resent(error: BaseException | None) -> int:
    """How often the client of AWS has sent the request of this error again; 0 for an error of another client."""
    response = getattr(error, "response", None)
    return int(response.get("ResponseMetadata", {}).get("RetryAttempts", 0)) if isinstance(response, dict) else 0


def is_lock_timeout(error: BaseException) -> bool:
    """Whether SQLite gave up waiting for a lock. Nothing was written then; this is certain."""
    return isinstance(error, OperationalError) and "database is locked" in str(error)


def _is_readonly(error: DBAPIError) -> bool:
    return "attempt to write a readonly database" in str(error.orig)
