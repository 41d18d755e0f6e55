"""No metadata file is called lost or corrupt by one look: it is read a second time, afresh, before anybody is told to roll back."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

from pyiceberg.exceptions import RESTError
from sqlalchemy.exc import DatabaseError

from compaction_pipeline.core.errors import AccessDenied, StorageUnavailable
from compaction_pipeline.file_io.object_io import immutable_files

_Read = TypeVar("_Read", bound=Callable[..., Any])


def looked_at_twice(read: _Read) -> _Read:
    """A function that reads metadata files and calls them missing or corrupt, made to do so only after it read them again."""

    @wraps(read)
    def twice(*args: Any, **options: Any) -> Any:
        try:
            return read(*args, **options)
        except (FileNotFoundError, StorageUnavailable) as error:
            if not _blames_a_file(error):
                raise
            # What this process remembers of it may be what is wrong.
            immutable_files.clear()
            return read(*args, **options)

    return twice  # type: ignore[return-value]


def _blames_a_file(error: Exception) -> bool:
    if isinstance(error, AccessDenied):
        return False
    cause = error.__cause__
    return not isinstance(cause, (OSError, RESTError, DatabaseError)) or isinstance(cause, FileNotFoundError)
