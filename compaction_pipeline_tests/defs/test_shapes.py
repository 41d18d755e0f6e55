"""An upgrade changes no name and no shape of a definition that its test does not name."""

from __future__ import annotations

import json
import os

from compaction_pipeline.definitions import defs
from compaction_pipeline_tests.defs.shapes import STORED, shapes, text_of


def test_the_definitions_are_those_that_users_have() -> None:
    now = shapes(defs)
    if os.environ.get("COMPACTION_TEST_WRITE_DOCS"):
        STORED.write_text(text_of(now))
    assert now == json.loads(STORED.read_text()), (
        "a user's history or cursor may be lost: read the difference that COMPACTION_TEST_WRITE_DOCS=1 makes, and commit it if it is meant"
    )
