"""What a catalog's answer to a commit proves."""

from __future__ import annotations

import pytest

from compaction_pipeline.core.commit.answers import Answer, of_aws, of_http, of_sql


@pytest.mark.parametrize("status", [400, 401, 403, 404, 405, 406, 415, 422])
def test_a_refusal_of_a_request_that_was_sent_once_is_certain(status: int) -> None:
    assert of_http([status]) is Answer.REFUSED


@pytest.mark.parametrize("status", [408, 425, 429, 499, 500, 501, 502, 503, 504, 599, 200, 302, 307, 410, 419])
def test_other_statuses_prove_nothing(status: int) -> None:
    assert of_http([status]) is Answer.UNKNOWN


def test_a_conflict_is_a_lost_race() -> None:
    assert of_http([409]) is Answer.LOST_RACE


@pytest.mark.parametrize("first", [None, 401, 403, 409, 503, 307])
@pytest.mark.parametrize("last", [None, 400, 403, 409, 503])
def test_no_answer_to_a_request_that_was_sent_twice_proves_anything(first: int | None, last: int | None) -> None:
    assert of_http([first, last]) is Answer.UNKNOWN


def test_a_lost_answer_is_unknown_and_a_request_that_never_left_is_refused() -> None:
    assert of_http([None]) is Answer.UNKNOWN
    assert of_http([]) is Answer.REFUSED


def test_glue_refuses_by_its_codes_and_only_at_once() -> None:
    assert of_aws("AccessDeniedException", 0) is Answer.REFUSED
    assert of_aws("AccessDeniedException", 1) is Answer.UNKNOWN
    # This is HTTP 400 too, but the service itself does not know whether the commit was made.
    assert of_aws("OperationTimeoutException", 0) is Answer.UNKNOWN
    assert of_aws("ThrottlingException", 0) is Answer.UNKNOWN


def test_a_database_refuses_what_it_may_not_write() -> None:
    assert of_sql("42501") is Answer.REFUSED
    assert of_sql("25006") is Answer.REFUSED
    assert of_sql("57P01") is Answer.UNKNOWN
    assert of_sql(None) is Answer.UNKNOWN
