"""Reads metadata files again before an error is reported.

A read that fails for a moment is repeated. A file is called lost or corrupt only after a second, fresh read, because a person who is told
so rolls the table back.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

from obstore.exceptions import BaseError
from pyiceberg.exceptions import RESTError
from requests import RequestException
from sqlalchemy.exc import DatabaseError
from tenacity import Retrying, retry_if_exception, stop_after_attempt, stop_after_delay, wait_random_exponential

from compaction_pipeline.core.errors import AccessDenied, StorageUnavailable
from compaction_pipeline.core.storage_failures import StorageFailure, storage_failure
from compaction_pipeline.formats.file_io.object_io import immutable_files
from compaction_pipeline.formats.file_io.s3_stores import LONGEST_PAUSE, RETRIES, RETRY_TIMEOUT

_Arguments = ParamSpec("_Arguments")
_Result = TypeVar("_Result")

sleep = time.sleep
"""Tests replace this."""


def looked_at_twice(read: Callable[_Arguments, _Result]) -> Callable[_Arguments, _Result]:
    """Decorate a function that reads metadata files, so that it reads them again before it raises an error.

    While the storage is busy or connections break, the read is repeated as often, and for as long, as the client for S3 repeats its
    requests. If the read reports a file as missing or corrupt, it is repeated once, from storage.
    """

    @wraps(read)
    def twice(*args: _Arguments.args, **options: _Arguments.kwargs) -> _Result:
        try:
            return _patiently(read, *args, **options)
        except (FileNotFoundError, StorageUnavailable) as error:
            if not _blames_a_file(error):
                raise
            # The copy that this process keeps of the file may be what is wrong.
            immutable_files.clear()
            return _patiently(read, *args, **options)

    return twice


def _patiently(read: Callable[_Arguments, _Result], *args: _Arguments.args, **options: _Arguments.kwargs) -> _Result:
    retrying = Retrying(
        retry=retry_if_exception(_is_passing),
        stop=stop_after_attempt(1 + RETRIES) | stop_after_delay(RETRY_TIMEOUT),
        wait=wait_random_exponential(multiplier=0.1, max=LONGEST_PAUSE),
        sleep=lambda seconds: sleep(seconds),
        reraise=True,
    )
    return retrying(read, *args, **options)


def _is_passing(error: BaseException) -> bool:
    """Whether a file system failed only for a moment.

    Errors of catalogs do not count, because their time limits are short on purpose. Errors of S3 do not count, because its client has
    already repeated the request.
    """
    failure = error.__cause__ if isinstance(error, StorageUnavailable) else error
    if not isinstance(failure, OSError) or isinstance(failure, RequestException) or isinstance(failure.__cause__, BaseError):
        return False
    return storage_failure(failure) is StorageFailure.PASSING


def _blames_a_file(error: Exception) -> bool:
    if isinstance(error, AccessDenied):
        return False
    cause = error.__cause__
    return not isinstance(cause, (OSError, RESTError, DatabaseError)) or isinstance(cause, FileNotFoundError)
