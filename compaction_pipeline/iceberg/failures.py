"""Translates errors of PyIceberg, SQLAlchemy and file systems into ours, which say what is wrong and what to do next."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager

from pydantic import ValidationError as Malformed
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
    ValidationError,
)
from requests import HTTPError, RequestException
from sqlalchemy.exc import ArgumentError, DatabaseError, NoSuchModuleError

from compaction_pipeline.core.errors import AccessDenied, CompactionError, ConfigError, NotFoundError, StorageUnavailable, TableRefused
from compaction_pipeline.core.secrets.known import without_secrets
from compaction_pipeline.core.storage_failures import StorageFailure, advice, needs_a_person, storage_failure
from compaction_pipeline.iceberg.catalogs.extras import missing_extra
from compaction_pipeline.iceberg.catalogs.http_answers import HttpAnswer, http_answer

_DENIED = (401, 403, 419)
_CONFIGURATION = "ConfigResponse"


MAKE_WRITABLE = "let this user write the file that the catalog's 'uri' names, and its folder, in which SQLite keeps its journal"
"""What to do when SQLite says that the database of a catalog is read-only."""


def is_readonly_database(error: Exception) -> bool:
    """Whether SQLite refused a write, because this process may not write the file of the database."""
    return "attempt to write a readonly database" in str(error)


@contextmanager
def translated(what: str, *, is_file: bool = False) -> Iterator[None]:
    """Raise our errors in place of those of other libraries. No error below them has a secret that this process knows.

    `what` names the thing that was read or written, for example "table lake.shop.orders". `is_file` is True when it is one file.
    """
    try:
        with _translated(what, is_file=is_file):
            yield
    except CompactionError as error:
        # Dagster and logs show the whole chain, and a catalog may repeat the token that it was sent.
        without_secrets(error)
        raise


@contextmanager
def _translated(what: str, *, is_file: bool) -> Iterator[None]:
    try:
        yield
    except CompactionError:
        raise
    except (NoSuchTableError, NoSuchNamespaceError, NoSuchIdentifierError) as error:
        # REST catalogs give the same answer when the table is there and its metadata file is missing.
        lost = ", or its metadata file is missing" if isinstance(error, NoSuchTableError) and http_answer(error) is not None else ""
        raise NotFoundError(f"{what} does not exist: it was dropped, renamed or never there{lost}; check its name") from error
    except (UnauthorizedError, ForbiddenError, OAuthError, AuthorizationExpiredError) as error:
        said = http_answer(error) or _text(error)
        raise AccessDenied(f"{what}: no permission: {said}; check the catalog's credentials and rights") from error
    except (Malformed, ValidationError) as error:
        raise _malformed(what, error) from error
    except (NoSuchPropertyException, NotInstalledError, ImportError, ArgumentError, NoSuchModuleError) as error:
        raise _not_set_up(what, error) from error
    except (RESTError, HTTPError) as error:
        raise _of_rest(what, error) from error
    except OSError as error:
        raise _of_files(what, error, is_file) from error
    except DatabaseError as error:
        raise _of_database(what, error) from error
    except Exception as error:
        raise _of_anything(what, error) from error


def _not_set_up(what: str, error: Exception) -> CompactionError:
    """Our error for a package or a property of the catalog that is missing or wrong."""
    if (extra := missing_extra(error)) is not None:
        return ConfigError(
            f"{what} needs a package that is not installed: run `pip install 'compaction-pipeline[{extra}]'` ({_text(error)})"
        )
    return ConfigError(f"{what}: {_text(error)}; correct the catalog's properties")


def _of_database(what: str, error: Exception) -> CompactionError:
    if "file is not a database" in str(error):
        return ConfigError(f"{what}: the file that 'uri' names is not a database; correct the catalog's properties")
    if is_readonly_database(error):
        return StorageUnavailable(f"{_catalog_of(what)} has a database that is read-only ({_text(error)}): {MAKE_WRITABLE}, then try again")
    return _silent(what, error)


def _of_anything(what: str, error: Exception) -> CompactionError:
    """Our error for one that no rule foresees. A library may raise any error for content that it does not expect."""
    if (answer := http_answer(error)) is not None:
        return _answered(what, answer)
    if type(error).__name__ == "TTransportException":
        # The connection to a Hive metastore failed. The library of this error is installed only where Hive is used.
        return _silent(what, error)
    if type(error).__module__.startswith(("hive_metastore.", "thrift.")):
        return StorageUnavailable(
            f"{_catalog_of(what)} answered {type(error).__name__}: {getattr(error, 'message', None) or _text(error)}; "
            "see the log of the metastore, then try again"
        )
    # One such table must not stop the others.
    return StorageUnavailable(
        f"{what} cannot be read ({type(error).__name__}: {_text(error)}); restore its metadata or roll the table back"
    )


def _of_rest(what: str, error: Exception) -> CompactionError:
    answer = http_answer(error)
    return _silent(what, error) if answer is None else _answered(what, answer)


def _silent(what: str, error: BaseException) -> CompactionError:
    """Our error for a catalog that gave no answer."""
    return StorageUnavailable(f"{_catalog_of(what)} did not answer: {_text(error)}; see that it runs, then try again")


def _catalog_of(what: str) -> str:
    """The name of the party that should have answered: the catalog, also when `what` is a table or a file."""
    return what if what.startswith("catalog ") else f"{what}: its catalog"


def _answered(what: str, answer: HttpAnswer) -> CompactionError:
    """Our error for the answer of a REST catalog."""
    if answer.status in _DENIED:
        return AccessDenied(f"{what}: no permission: {answer}; check the catalog's credentials and rights")
    if answer.status == 404 and answer.url.endswith("/v1/config"):
        where = f"{what}: {answer}: 'uri' does not lead to an Iceberg REST catalog"
        # A catalog that does not know the warehouse answers this too, and adds a sentence about it.
        if answer.said:
            return ConfigError(f"{where}, or there is no such warehouse; correct 'uri' or 'warehouse'")
        return ConfigError(f"{where}; correct 'uri', to which /v1/config is added")
    if answer.status >= 500 or answer.status == 429:
        return StorageUnavailable(f"{_catalog_of(what)} answered {answer}; check that it is healthy, and try again later")
    return StorageUnavailable(
        f"{_catalog_of(what)} answered {answer}; check that the catalog's properties are right for it, then try again"
    )


def _of_files(what: str, error: OSError, is_file: bool) -> CompactionError:
    kind = storage_failure(error)
    if kind is StorageFailure.DENIED:
        return AccessDenied(f"{what}: no permission: {_text(error)}; check the catalog's credentials and rights")
    if needs_a_person(kind):
        return AccessDenied(f"{what}: {_text(error)}; {advice(kind)}")
    if kind is StorageFailure.ABSENT:
        missing = f"{what} is missing" if is_file else f"{what}: a file of it is missing"
        return StorageUnavailable(f"{missing}: {_text(error)}; restore it or roll the table back")
    if kind is StorageFailure.FULL:
        return StorageUnavailable(f"{what}: disk full: {_text(error)}; free space, then try again")
    if isinstance(error, RequestException):
        return _silent(what, error)
    return StorageUnavailable(f"{what} could not be read or written: {_text(error)}; see that its storage runs, then try again")


def _malformed(what: str, error: Exception) -> CompactionError:
    """Our error for metadata that cannot be read.

    If it is not JSON, the file is damaged. If it is JSON, it has a form that this program does not know.
    """
    cause = error if isinstance(error, Malformed) else error.__cause__
    if isinstance(cause, Malformed):
        first = cause.errors()[0]
        if cause.title == _CONFIGURATION:
            return ConfigError(
                f"{what} answered something that is not the configuration of an Iceberg REST catalog: "
                "check 'uri', and whether a proxy or a login page answered"
            )
        if cause.title.endswith("Response") and not _is_metadata(first["loc"], first["type"]):
            return StorageUnavailable(
                f"{what}: its REST catalog answered something that an Iceberg REST catalog never answers: "
                "check 'uri', and whether a proxy or a login page answered, then try again"
            )
        if first["type"] == "json_invalid":
            return StorageUnavailable(f"{what}: its metadata file is corrupt: {first['msg']}; restore it or roll the table back")
        place = ".".join(str(part) for part in first["loc"]) or "document"
        return TableRefused(f"{what}: its metadata cannot be read: {place}: {first['msg']}")
    if isinstance(cause, json.JSONDecodeError):
        return StorageUnavailable(f"{what}: its metadata file is corrupt: {cause}; restore it or roll the table back")
    return TableRefused(f"{what}: its metadata cannot be read: {_text(error)}")


def _is_metadata(place: tuple[int | str, ...], kind: str) -> bool:
    """Whether the answer itself is well formed, and only the table's metadata in it breaks a rule."""
    return place[:1] == ("metadata",) and (len(place) > 1 or kind != "missing")


def _text(error: BaseException) -> str:
    # SQLAlchemy appends the statement and a link. The first line says what happened.
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__
