from __future__ import annotations

import pytest

from compaction_pipeline.core.commit.snapshot_properties import snapshot_properties
from compaction_pipeline.core.errors import ConfigError


def test_the_first_equals_sign_separates_key_and_value() -> None:
    given = ["owner=nightly", "query=a=b", "note=", "owner=nightly", "engine-name=ours", "additional=1", "operations=2"]
    expected = {"owner": "nightly", "query": "a=b", "note": "", "engine-name": "ours", "additional": "1", "operations": "2"}
    assert snapshot_properties(given) == expected


@pytest.mark.parametrize(
    "key",
    [
        "added-data-files",
        "deleted-records",
        "removed-delete-files",
        "total-records",
        "changed-partition-count",
        "operation",
        "wap.id",
        "flink.max-committed-checkpoint-id",
        "flink.watermark",
        "kafka.connect.valid-through-ts",
        "watermark",
        "watermark.eu",
        "kafka.connect.offsets.control.1",
        "spark.sql.streaming.epochId",
        "compaction-pipeline.record-id",
    ],
)
def test_a_reserved_key_is_refused_by_key_value_and_rule(key: str) -> None:
    with pytest.raises(ConfigError) as raised:
        snapshot_properties([f"{key}=7"])
    assert f"snapshot property '{key}' is '7' but" in str(raised.value)
    assert "reserved" in str(raised.value)


@pytest.mark.parametrize("text", ["owner", "=nightly", " =x"])
def test_a_text_without_key_or_sign_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="must be key=value"):
        snapshot_properties([text])


def test_one_key_has_one_value() -> None:
    with pytest.raises(ConfigError, match="'owner' is given as 'a' and as 'b' but must have one value"):
        snapshot_properties(["owner=a", "owner=b"])
