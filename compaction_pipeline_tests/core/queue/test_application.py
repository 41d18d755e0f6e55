"""Which texts may be the id of a Spark application, and where its page is."""

from __future__ import annotations

import pytest

from compaction_pipeline.core.queue.application import LONGEST_APPLICATION, application_id, application_page


@pytest.mark.parametrize(
    "text", ["local-1764036000000", "app-20261125021615-0007", "application_1764036000000_0007", "spark-0a1b", "a" * 100]
)
def test_the_ids_of_every_cluster_manager_are_kept(text: str) -> None:
    assert application_id(text) == text


@pytest.mark.parametrize("text", ["", "a" * (LONGEST_APPLICATION + 1), "app 7", "app-7\n", "\x1b[31m", "a/b", "javascript:1", "é"])
def test_no_other_text_is_an_id(text: str) -> None:
    assert application_id(text) == ""


def test_a_page_is_known_only_where_an_address_is_configured_and_for_an_application() -> None:
    address = "https://history/{application}/jobs/?of={application}"
    assert application_page(address, "app-7") == "https://history/app-7/jobs/?of=app-7"
    assert application_page(None, "app-7") is None
    assert application_page(address, "") is None
