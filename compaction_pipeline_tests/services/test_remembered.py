"""What a tick remembers is always what it would make anew."""

from __future__ import annotations

from compaction_pipeline.services.remembered import Remembered


def test_a_result_is_made_again_only_when_its_source_changed() -> None:
    made: list[int] = []

    def double(source: int) -> int:
        made.append(source)
        return 2 * source

    remembered: Remembered[str, int, int] = Remembered()
    assert remembered.made({"a": 1, "b": 2}, double) == {"a": 2, "b": 4}
    assert remembered.made({"b": 3, "a": 1, "c": 0}, double) == {"b": 6, "a": 2, "c": 0}
    assert made == [1, 2, 3, 0]


def test_a_key_that_is_no_longer_asked_for_is_forgotten() -> None:
    made: list[int] = []
    remembered: Remembered[str, int, None] = Remembered()
    for sources in ({"a": 1}, {}, {"a": 1}):
        remembered.made(sources, made.append)
    assert made == [1, 1]
