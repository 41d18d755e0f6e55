"""Texts that name subjects: the same thing has one key, and what names nothing is refused with its attribute."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

import pytest

from compaction_pipeline.core.dependencies.center.subjects import Subject, moment_of, subject_of, watermark_bound, watermark_reached
from compaction_pipeline.core.errors import ConfigError

THREE = 1_767_236_400_000
"""2026-01-01T03:00Z in milliseconds."""


@pytest.mark.parametrize(
    ("text", "subject"),
    [
        ("job=ods.load && biz=2026-01-01", Subject("job=ods.load && biz=2026-01-01")),
        ("job=ods.load&&part=eu&&biz=2026-01-01", Subject("job=ods.load && biz=2026-01-01 && part=eu")),
        ("table=lake.a.b && day=2026-01-01 && app=ads", Subject("table=lake.a.b && app=ads && day=2026-01-01")),
        ("table=lake.a.b && watermark>=2026-01-01T03:00Z", Subject("table=lake.a.b && watermark=", THREE)),
        ("table=lake.a.b && watermark >= 2026-01-01T04:00+01:00", Subject("table=lake.a.b && watermark=", THREE)),
        (
            "asset=a/b && window=2026-01-01T01:00+01:00/2026-01-02T00:00Z",
            Subject("asset=a/b && window=2026-01-01T00:00Z/2026-01-02T00:00Z"),
        ),
    ],
)
def test_the_same_thing_has_one_key(text: str, subject: Subject) -> None:
    assert subject_of(text) == subject
    assert subject_of(str(subject)) == subject


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "is no NAME=VALUE"),
        ("ods.load", "is no NAME=VALUE"),
        ("job=", "is no NAME=VALUE"),
        ("job=a", "does not say which biz"),
        ("table=a", "does not say which data"),
        ("biz=2026-01-01 && job=a", "begins with 'biz'"),
        ("job=a && biz=2026-01-01 && biz=2026-01-02", "names 'biz' twice"),
        ("job=a && biz=2026-01-01 && zone=UTC", "attribute 'zone', which a job does not have"),
        ("job=a && biz>=2026-01-01", "compares 'biz'"),
        ("table=a && day>=2026-01-01", "compares 'day'"),
        ("table=a && watermark=2026-01-01T00:00Z", "must have watermark>=TIME"),
        ("table=a && watermark<=2026-01-01T00:00Z", "must have watermark>=TIME"),
        ("table=a && watermark>=2026-01-01T00:00Z && app=x", "a watermark is of the whole table"),
        ("table=a && watermark>=2026-01-01T00:00", "no time with a zone"),
        ("table=a && window=2026-01-01T00:00Z", "must have window=FROM/TO"),
        ("table=a && window=2026-01-02T00:00Z/2026-01-01T00:00Z", "its end must be after its start"),
        ("asset=a && day=2026-01-01", "attribute 'day', which an asset"),
        ("job=" + "a" * 2_000 + " && biz=2026-01-01", "more than 1000 bytes"),
        ("asset=" + "汉" * 400 + " && window=2026-01-01T00:00Z/2026-01-02T00:00Z", "more than 1000 bytes"),
        ("asset=a\x00b && window=2026-01-01T00:00Z/2026-01-02T00:00Z", "which no name has"),
        ("asset=a\ud800b && window=2026-01-01T00:00Z/2026-01-02T00:00Z", "which no name has"),
    ],
)
def test_what_names_nothing_is_refused_with_its_attribute(text: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        subject_of(text)


def test_a_part_of_a_millisecond_makes_nothing_ready_too_early() -> None:
    at = datetime(2026, 1, 1, 3, tzinfo=timezone.utc)
    tiny = timedelta(microseconds=1)
    assert watermark_reached(at) == watermark_bound(at) == THREE
    assert watermark_reached(at - tiny) < watermark_bound(at)
    assert watermark_reached(at) < watermark_bound(at + tiny)
    assert moment_of(THREE) == at
