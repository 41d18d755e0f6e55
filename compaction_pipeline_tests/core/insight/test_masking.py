"""No secret of a catalog is ever shown."""

from __future__ import annotations

import pytest

from compaction_pipeline.core.insight.masking import MASK, masked_properties, masked_text


@pytest.mark.parametrize(
    "key",
    [
        "s3.secret-access-key",
        "s3.session-token",
        "s3.access-key",
        "credential",
        "token",
        "jdbc.password",
        "adls.account-key",
        "adls.connection-string",
        "gcs.oauth2.token",
        "header.Authorization",
        "header.X-Api-Key",
        "PASSWORD",
    ],
)
def test_the_value_of_a_secret_key_is_hidden(key: str) -> None:
    assert masked_properties({key: "hunter2"}) == {key: MASK}


def test_other_values_are_shown() -> None:
    properties = {"type": "rest", "uri": "http://localhost:8181/catalog", "s3.access-key-id": "AKIA1", "warehouse": "s3://lake/a@b"}
    assert masked_properties(properties) == properties


@pytest.mark.parametrize(
    ("text", "masked"),
    [
        ("postgresql+psycopg2://me:hunter2@db:5432/catalog", "postgresql+psycopg2://me:***@db:5432/catalog"),
        ("postgresql://me:p@ss/w:rd@db/catalog", "postgresql://me:***@db/catalog"),
        ("mysql://:hunter2@db/catalog", "mysql://:***@db/catalog"),
        ("postgresql://db/catalog?user=me&password=hunter2&ssl=on", "postgresql://db/catalog?user=me&password=***&ssl=on"),
        ("https://host/path?sig=hunter2", "https://host/path?sig=***"),
        ("sqlite:////data/catalog.db", "sqlite:////data/catalog.db"),
    ],
)
def test_the_password_in_a_url_is_hidden(text: str, masked: str) -> None:
    assert masked_text(text) == masked
