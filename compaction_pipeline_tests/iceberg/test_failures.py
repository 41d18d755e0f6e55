"""What errors of other libraries say to a person: which thing failed, and what to do."""

from __future__ import annotations

import errno

import pytest
from pyiceberg.exceptions import NoSuchTableError
from requests import ConnectionError as NoConnection
from requests import HTTPError, Response

from compaction_pipeline.core.errors import CompactionError, NotFoundError, StorageUnavailable
from compaction_pipeline.iceberg.failures import translated

TABLE, MANIFEST = "table lake.db.t", "manifest s3://lake/m0.avro of table lake.db.t"


def said(what: str, error: Exception, *, is_file: bool = False) -> CompactionError:
    with pytest.raises(CompactionError) as raised, translated(what, is_file=is_file):
        raise error
    return raised.value


def answered(status: int) -> HTTPError:
    response = Response()
    response.status_code, response.url = status, "http://catalog/v1/x"
    return HTTPError(response=response)


def test_a_missing_file_is_what_is_missing() -> None:
    absent = FileNotFoundError(errno.ENOENT, "No such file")
    assert str(said(MANIFEST, absent, is_file=True)).startswith(f"{MANIFEST} is missing: ")
    assert str(said(TABLE, absent)).startswith(f"{TABLE}: a file of it is missing: ")


def test_a_file_does_not_answer_and_a_catalog_does() -> None:
    timeout = OSError(errno.ETIMEDOUT, "Connection timed out")
    text = str(said(MANIFEST, timeout, is_file=True))
    assert text == f"{MANIFEST} could not be read or written: {timeout}; see that its storage runs, then try again"
    assert (
        str(said("catalog 'lake'", NoConnection("refused"))) == "catalog 'lake' did not answer: refused; see that it runs, then try again"
    )
    assert str(said(TABLE, NoConnection("refused"))).startswith(f"{TABLE}: its catalog did not answer: refused; ")
    assert str(said(TABLE, answered(503))).startswith(f"{TABLE}: its catalog answered HTTP 503 at http://catalog/v1/x; ")
    assert isinstance(said(TABLE, answered(503)), StorageUnavailable)


def test_only_a_rest_catalog_may_call_a_table_without_metadata_file_absent() -> None:
    error = NoSuchTableError("gone")
    assert str(said(TABLE, error)) == f"{TABLE} does not exist: it was dropped, renamed or never there; check its name"
    error.__cause__ = answered(404)
    assert str(said(TABLE, error)).endswith("renamed or never there, or its metadata file is missing; check its name")
    assert isinstance(said(TABLE, error), NotFoundError)
