"""What the properties of a group say of its scaling, and what they may not say."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta, timezone
from itertools import pairwise

import pytest

from compaction_pipeline.core.capacity.scaling.action import ActionKind
from compaction_pipeline.core.capacity.scaling.policy import KEYS, PREFIX, Bounds, ScalingPolicy, policy_of
from compaction_pipeline.core.capacity.scaling.target import Target
from compaction_pipeline.core.errors import ConfigError

ON = {f"{PREFIX}enabled": "true", f"{PREFIX}max-parallelism": "16"}


def _at(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=timezone.utc)


def _policy(**more: str) -> ScalingPolicy:
    found = policy_of("heavy", {**ON, **{f"{PREFIX}{key.replace('_', '-')}": value for key, value in more.items()}})
    assert found is not None
    return found


def test_a_group_without_a_policy_does_not_scale() -> None:
    assert policy_of("heavy", {"instances": "2", "min-parallelism": "2"}) is None
    assert policy_of("heavy", {f"{PREFIX}max-parallelism": "16"}) is None


def test_durations_and_bounds_have_usual_values() -> None:
    policy = _policy()
    assert policy.bounds == Bounds(0, 16)
    assert (policy.lag, policy.out_cooldown) == (timedelta(minutes=1), timedelta(minutes=2))
    assert (policy.idle, policy.in_cooldown) == (timedelta(minutes=5), timedelta(minutes=10))
    assert [kind for kind in ActionKind if policy.may_change(kind)] == [ActionKind.OPTIMIZERS]


def test_every_key_is_read() -> None:
    policy = _policy(
        min_parallelism="2",
        executor_parallelism="2",
        max_executor_parallelism="8",
        scheduler_backlog_timeout="30s",
        sustained_backlog_timeout="45s",
        executor_idle_timeout="1min",
        scale_down_cooldown="3min",
        step="3",
        windows="22:00-06:00 Europe/Berlin mon-fri min=4 max=32; 12:00-13:00 UTC",
        min_memory="1000",
        max_memory="2000",
        max_slot_cores="4",
    )
    assert policy == ScalingPolicy(
        Bounds(2, 16),
        2,
        8,
        3,
        Bounds(1000, 2000),
        4,
        timedelta(seconds=30),
        timedelta(seconds=45),
        timedelta(minutes=1),
        timedelta(minutes=3),
        policy.windows,
    )
    assert [(str(each.window), each.least, each.most) for each in policy.windows] == [
        ("22:00-06:00 Europe/Berlin mon,tue,wed,thu,fri", 4, 32),
        ("12:00-13:00 UTC", None, None),
    ]


def test_the_older_key_is_another_name_of_the_floor_so_both_may_not_differ() -> None:
    older = policy_of("heavy", {**ON, "min-parallelism": "3"})
    newer = policy_of("heavy", {**ON, f"{PREFIX}min-parallelism": "1"})
    both = policy_of("heavy", {**ON, "min-parallelism": "3", f"{PREFIX}min-parallelism": "3"})
    assert older is not None
    assert newer is not None
    assert both is not None
    assert (older.bounds.least, newer.bounds.least, both.bounds.least) == (3, 1, 3)
    with pytest.raises(ConfigError) as refused:
        policy_of("heavy", {**ON, "min-parallelism": "3", f"{PREFIX}min-parallelism": "1"})
    assert "'dynamic-allocation.min-parallelism' of group heavy is 1 and 'min-parallelism' is 3, but both are the least" in str(
        refused.value
    )
    assert "`group change heavy -p min-parallelism=`" in str(refused.value)


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("enabled", "yes", "'dynamic-allocation.enabled' of group heavy is 'yes' but must be true or false"),
        ("max-parallelism", "0", "must be a whole number from 1 to 1024"),
        ("max-parallelism", "²", "must be a whole number from 1 to 1024"),
        ("max-parallelism", "9" * 5000, "must be a whole number from 1 to 1024"),
        ("min-parallelism", "17", "'dynamic-allocation.min-parallelism' of group heavy is 17 but must not be more than"),
        ("executor-idle-timeout", "29s", "at least 30 s"),
        ("executor-idle-timeout", "2d", "at most a day"),
        ("scheduler-backlog-timeout", "soon", "a whole number with one of the units"),
        ("max-memory", "100", "set both, or neither"),
        ("executor-parallelism", "17", "one optimizer would have more slots"),
        ("max-parallelizm", "3", "did you mean 'dynamic-allocation.max-parallelism'?"),
        ("drain-timeout", "1h", "COMPACTION_TASK_TIMEOUT_SECONDS bounds how long each may take"),
        ("windows", "22:00", "windows with `;` between them"),
        ("windows", " ; ", "1 to 20 windows"),
        ("windows", "22:00-06:00 UTC min=4 max=2", "min must not be more than max"),
        ("windows", "22:00-06:00 UTC min=4 min=4", "min=4 is no bound"),
        ("windows", "22:00-06:00 Nowhere/City", "'Nowhere/City' is no time zone"),
        ("windows", "22:00-06:00 UTC max=9999", "neither more than 1024"),
    ],
)
def test_a_bad_value_is_named_with_its_rule(key: str, value: str, said: str) -> None:
    with pytest.raises(ConfigError) as error:
        policy_of("heavy", {**ON, f"{PREFIX}{key}": value})
    assert said in str(error.value)
    assert "group heavy" in str(error.value)
    assert len(str(error.value)) < 1500


def test_too_many_slots_of_one_optimizer_are_named_by_the_key_that_was_set() -> None:
    with pytest.raises(ConfigError, match=r"^'parallelism' of group heavy is 17, so one optimizer would have more slots"):
        policy_of("heavy", {**ON, "parallelism": "17"})
    with pytest.raises(ConfigError, match=r"^'parallelism' of group heavy is 4 but must not be more than '.*max-executor-parallelism'"):
        policy_of("heavy", {**ON, "parallelism": "4", f"{PREFIX}max-executor-parallelism": "2"})


def test_a_policy_needs_the_most_slots() -> None:
    with pytest.raises(ConfigError, match=r"lacks '.*max-parallelism'"):
        policy_of("heavy", {f"{PREFIX}enabled": "true"})


def test_bad_values_are_named_while_it_is_not_enabled() -> None:
    with pytest.raises(ConfigError, match="executor-idle-timeout"):
        policy_of("heavy", {f"{PREFIX}executor-idle-timeout": "0"})


def test_an_optimizer_cannot_begin_with_more_slots_than_it_may_have() -> None:
    with pytest.raises(ConfigError, match="max-executor-parallelism"):
        _policy(executor_parallelism="4", max_executor_parallelism="2")


def test_the_bounds_of_a_window_end_with_it() -> None:
    policy = _policy(
        min_parallelism="2", windows="22:00-06:00 Europe/Berlin mon-fri max=32; 12:00-13:00 UTC min=1 max=1; 05:00-06:00 UTC min=20"
    )
    # 2026-11-27 is a Friday; Berlin is an hour ahead of UTC. The night belongs to the day on which it begins.
    assert policy.bounds_at(_at("2026-11-27T21:00")) == Bounds(2, 32)
    assert policy.bounds_at(_at("2026-11-28T04:59")) == Bounds(2, 32)
    assert policy.bounds_at(_at("2026-11-28T05:00")) == Bounds(20, 20)
    assert policy.bounds_at(_at("2026-11-28T21:00")) == policy.bounds
    assert policy.bounds_at(_at("2026-11-27T12:30")) == Bounds(1, 1)
    assert [policy.is_open(_at(at)) for at in ("2026-11-27T21:00", "2026-11-28T21:00")] == [True, False]
    assert _policy().is_open(_at("2026-11-28T21:00"))


def test_a_night_of_a_change_of_clocks_opens_once() -> None:
    policy = _policy(windows="02:30-03:30 Europe/Berlin max=32")
    # On 2026-10-25 the hour from 2 to 3 comes twice, and on 2026-03-29 it does not come.
    autumn = [policy.is_open(_at("2026-10-25T00:00") + timedelta(minutes=10 * step)) for step in range(20)]
    assert sum(before is False and after is True for before, after in pairwise(autumn)) == 1
    spring = [policy.bounds_at(_at("2026-03-29T00:00") + timedelta(minutes=10 * step)).most for step in range(12)]
    assert [at for at, most in enumerate(spring) if most == 32] == [6, 7, 8]


def test_a_changed_policy_has_another_digest() -> None:
    policy = _policy()
    assert policy.digest == _policy().digest
    assert policy.digest != _policy(min_parallelism="1").digest
    assert all(key.startswith(PREFIX) or key == "min-parallelism" for key in KEYS)


def test_targets_differ_by_every_part() -> None:
    target = Target(2, 4, 8_000_000_000, 2.0)
    assert target.in_words == "2 optimizers of 4 slots, 8.0 GB and 2 cores a slot"
    assert Target(1, 1).in_words == "1 optimizer of 1 slot"
    others = [
        replace(target, instances=3),
        replace(target, parallelism=3),
        replace(target, memory_bytes=1),
        replace(target, slot_cores=None),
    ]
    assert len({each.digest for each in (target, *others)}) == 5
    assert [each.size_digest == target.size_digest for each in others] == [True, False, False, False]
