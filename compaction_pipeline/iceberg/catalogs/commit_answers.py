"""Reads from an error what the catalog answered to a commit. `core/commit/answers.py` decides what the answer proves."""

from __future__ import annotations

import traceback
from collections.abc import Sequence

from pyiceberg.catalog import Catalog
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import CommitFailedException
from sqlalchemy.exc import DBAPIError, OperationalError

from compaction_pipeline.core.commit.answers import Answer, of_aws, of_http, of_sql
from compaction_pipeline.iceberg.catalogs.glue_tables import is_glue
from compaction_pipeline.iceberg.catalogs.rest_catalog import BoundedRestCatalog
from compaction_pipeline.iceberg.catalogs.swap_errors import SwapNotAsked, SwapRefused
from compaction_pipeline.iceberg.failures import is_readonly_database

_ASKED_OF_GLUE = frozenset({"GetTable", "UpdateTable"})
"""What a commit asks Glue."""

_NUMBER_WAS_USED = "Cannot add snapshot with sequence number"
"""How PyIceberg's `update_table_metadata` refuses a snapshot whose sequence number another snapshot has got meanwhile."""

_CLIENTS_OF_AWS = frozenset({"botocore", "aiobotocore", "boto3"})


def answer_of(catalog: Catalog, error: Exception, statuses: Sequence[int | None]) -> Answer:
    """What the catalog answered, read from the error of a commit.

    `statuses` tells how a REST catalog answered each time the request was sent.
    """
    if isinstance(catalog, BoundedRestCatalog):
        return of_http(statuses)
    if isinstance(error, SwapRefused):
        return Answer.REFUSED
    if isinstance(error, ValueError) and str(error).startswith(_NUMBER_WAS_USED):
        # These catalogs apply the updates in this process, before they ask anybody: another writer has committed to a branch.
        return Answer.LOST_RACE
    if isinstance(error, CommitFailedException) or is_lock_timeout(error):
        # PyIceberg makes it of an answer of Glue too. Glue may still carry out a request that its client has sent again.
        return Answer.UNKNOWN if _resent(error.__cause__) else Answer.LOST_RACE
    if isinstance(error, DBAPIError):
        return Answer.REFUSED if is_readonly_database(error) else of_sql(getattr(error.orig, "pgcode", None))
    response = getattr(error, "response", None)
    if isinstance(response, dict) and "Error" in response:
        # This is an error of botocore, which is installed only where Glue is used. It may be the answer of another service, which was asked
        # for new credentials before the request would have been sent again.
        of_glue = getattr(error, "operation_name", None) in _ASKED_OF_GLUE
        return of_aws(str(response["Error"].get("Code", "")), _resent(error)) if of_glue else Answer.UNKNOWN
    return Answer.UNKNOWN


def answer_in_words(error: Exception, statuses: Sequence[int | None]) -> str:
    """What the catalog said, on one line, with the HTTP status if there is one."""
    # SQLAlchemy appends the statement and a link.
    said = error.orig if isinstance(error, DBAPIError) and error.orig is not None else error
    text = " ".join(str(said).split()) or type(error).__name__
    return f"HTTP {statuses[-1]}: {text}" if statuses and statuses[-1] is not None else text


def no_proof_in_words(error: Exception, statuses: Sequence[int | None]) -> str:
    """What happened when no answer proves how the commit ended."""
    if statuses and statuses[-1] is not None:
        return f"the catalog answered {answer_in_words(error, statuses)}"
    return f"the catalog's answer got lost ({type(error).__name__}: {error})"


def why_not_asked(catalog: Catalog, error: Exception) -> str | None:
    """Why the catalog was certainly never asked to swap, as a sentence with what to do; None when it may have been asked."""
    if isinstance(error, SwapNotAsked):
        return str(error)
    if is_metadata_not_written(catalog, error):
        return f"the new metadata file cannot be written: {error}; free space, or allow the program to write there"
    return None


def is_metadata_not_written(catalog: Catalog, error: Exception) -> bool:
    """Whether the catalog's database was never asked, because the new metadata file could not be written.

    SQL catalogs and Glue write the file first, and errors of SQL databases are no OSError. Some errors of botocore are, and they may be
    about the question to Glue. While botocore asks, it may also read files for new credentials, and send the question again.
    """
    writes_first = isinstance(catalog, SqlCatalog) or is_glue(catalog)
    return (
        writes_first
        and isinstance(error, OSError)
        and not _is_of_botocore(error)
        and not isinstance(error, (ConnectionError, TimeoutError))
    )


def _is_of_botocore(error: BaseException) -> bool:
    """Whether this is an error of the client of AWS, or was raised while the client worked."""
    modules = [base.__module__ for base in type(error).__mro__]
    modules += [str(frame.f_globals.get("__name__")) for frame, _ in traceback.walk_tb(error.__traceback__)]
    return any(module.partition(".")[0] in _CLIENTS_OF_AWS for module in modules)


def _resent(error: BaseException | None) -> int:
    """How often the client of AWS has sent the request of this error again; 0 for an error of another client."""
    response = getattr(error, "response", None)
    return int(response.get("ResponseMetadata", {}).get("RetryAttempts", 0)) if isinstance(response, dict) else 0


def is_lock_timeout(error: BaseException) -> bool:
    """Whether SQLite gave up waiting for a lock. Nothing was written then; this is certain."""
    return isinstance(error, OperationalError) and "database is locked" in str(error)
