"""PyIceberg's, SQLAlchemy's and the file system's errors as ours: what, key, value, rule and what to do next."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from pydantic import ValidationError as MalformedMetadata
from pyiceberg.exceptions import (
    AuthorizationExpiredError,
    ForbiddenError,
    NoSuchIdentifierError,
    NoSuchNamespaceError,
    NoSuchPropertyException,
    NoSuchTableError,
    NotInstalledError,
    OAuthError,
    RESTError,
    UnauthorizedError,
)
from sqlalchemy.exc import ArgumentError, NoSuchModuleError, SQLAlchemyError

from compaction_pipeline.core.errors import CompactionError, ConfigError, NotFoundError, StorageUnavailable, TableRefused


@contextmanager
def translated(what: str) -> Iterator[None]:
    """Raise our errors for the outside world's; `what` names what was read, e.g. "table lake.shop.orders"."""
    try:
        yield
    except CompactionError:
        raise
    except (NoSuchTableError, NoSuchNamespaceError, NoSuchIdentifierError) as error:
        raise NotFoundError(f"{what} does not exist: {_text(error)}; it was dropped, renamed or never there") from error
    except (UnauthorizedError, ForbiddenError, OAuthError, AuthorizationExpiredError, PermissionError) as error:
        raise StorageUnavailable(f"{what}: no permission: {_text(error)}; check the catalog's credentials and rights") from error
    except MalformedMetadata as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"])
        raise TableRefused(f"{what}: its metadata cannot be read: {place}: {first['msg']}") from error
    except (NoSuchPropertyException, NotInstalledError, ImportError, ArgumentError, NoSuchModuleError) as error:
        raise ConfigError(f"{what}: {_text(error)}; correct the catalog's properties") from error
    except FileNotFoundError as error:
        raise StorageUnavailable(f"{what}: a file of it is missing: {_text(error)}; restore it or roll the table back") from error
    except (SQLAlchemyError, RESTError, OSError, EOFError) as error:
        raise StorageUnavailable(f"{what} did not answer: {_text(error)}; it is tried again") from error
    except ValueError as error:
        raise StorageUnavailable(f"{what} cannot be read: {_text(error)}") from error


def _text(error: BaseException) -> str:
    # SQLAlchemy appends the statement and a link; the first line says what happened.
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__
