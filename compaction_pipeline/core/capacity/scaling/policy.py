"""A policy says within which bounds, when and how fast a group may be scaled. A group's properties hold it, and without one nothing scales.

The keys that Amoro has too mean what they mean there: parallelism of a group is the number of its slots.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from hashlib import sha256

from compaction_pipeline.core.capacity.scaling.action import ActionKind
from compaction_pipeline.core.errors import ConfigError
from compaction_pipeline.core.tables.property_rules import DURATION_RULE, duration
from compaction_pipeline.core.windows import WINDOW_RULE, Window

PREFIX = "dynamic-allocation."
FLOOR, PARALLELISM = "min-parallelism", "parallelism"
"""Amoro's older key of the least slots of a group, which is another name of `dynamic-allocation.min-parallelism`; and the slots of an
optimizer, unless `dynamic-allocation.executor-parallelism` is set."""
ENABLED, MIN_SLOTS, MAX_SLOTS = f"{PREFIX}enabled", f"{PREFIX}min-parallelism", f"{PREFIX}max-parallelism"
SLOTS_OF_ONE, MOST_SLOTS_OF_ONE = f"{PREFIX}executor-parallelism", f"{PREFIX}max-executor-parallelism"
LAG, OUT_COOLDOWN = f"{PREFIX}scheduler-backlog-timeout", f"{PREFIX}sustained-backlog-timeout"
IDLE, IN_COOLDOWN, DRAIN_TIMEOUT = f"{PREFIX}executor-idle-timeout", f"{PREFIX}scale-down-cooldown", f"{PREFIX}drain-timeout"
STEP, WINDOWS = f"{PREFIX}step", f"{PREFIX}windows"
MIN_MEMORY, MAX_MEMORY, MAX_SLOT_CORES = f"{PREFIX}min-memory", f"{PREFIX}max-memory", f"{PREFIX}max-slot-cores"
MOST_SLOTS, MOST_MEMORY, MOST_CORES, MOST_STEP = 1_024, 2**60, 64, 1_000
LEAST_IDLE, LONGEST = timedelta(seconds=30), timedelta(days=1)
MOST_WINDOWS = 20
_DURATIONS: Mapping[str, tuple[timedelta, timedelta]] = {
    LAG: (timedelta(minutes=1), timedelta(seconds=1)),
    OUT_COOLDOWN: (timedelta(minutes=2), timedelta(seconds=1)),
    IDLE: (timedelta(minutes=5), LEAST_IDLE),
    IN_COOLDOWN: (timedelta(minutes=10), timedelta(0)),
}
"""The keys whose value is a duration, each with what holds when it is not set, and with its least value."""
_NUMBERS: Mapping[str, tuple[int, int]] = {
    FLOOR: (0, MOST_SLOTS),
    MIN_SLOTS: (0, MOST_SLOTS),
    MAX_SLOTS: (1, MOST_SLOTS),
    SLOTS_OF_ONE: (1, MOST_SLOTS),
    MOST_SLOTS_OF_ONE: (1, MOST_SLOTS),
    STEP: (1, MOST_STEP),
    MIN_MEMORY: (1, MOST_MEMORY),
    MAX_MEMORY: (1, MOST_MEMORY),
    MAX_SLOT_CORES: (1, MOST_CORES),
}
"""The keys whose value is a whole number, each with its least and its highest value."""
KEYS = (ENABLED, *_NUMBERS, *_DURATIONS, WINDOWS)
"""Every property of a group that belongs to its policy."""
WINDOWS_RULE = f"windows with `;` between them, each of {WINDOW_RULE}; min=N and max=N may follow, e.g. 22:00-06:00 UTC min=0 max=32"


@dataclass(frozen=True, slots=True)
class Bounds:
    """The least and the most slots of a group."""

    least: int
    most: int


@dataclass(frozen=True, slots=True)
class ScalingWindow:
    """When a group may be scaled by its load, and the bounds that hold then; None leaves a bound to the policy. Bounds are slots."""

    window: Window
    least: int | None = None
    most: int | None = None


@dataclass(frozen=True, slots=True)
class ScalingPolicy:
    """How a group is scaled.

    `bounds` are slots of the group, `slots_of_one` those that an optimizer begins with and has at least. `most_slots_of_one` is the highest
    parallelism; None changes no parallelism. `step` is how many optimizers are started or drained at once; None is as many as there are,
    and sixteen at least. `memory` has the least and the most bytes of one optimizer, `most_slot_cores` the most cores of a
    slot; None changes neither.

    A task waits at most `lag`. Slots are idle for the whole of `idle` before they go. After more capacity, more still is given after
    `out_cooldown`; less is given `in_cooldown` after any change. Without
    `windows` a group may be scaled at any time.
    """

    bounds: Bounds
    slots_of_one: int = 1
    most_slots_of_one: int | None = None
    step: int | None = None
    memory: Bounds | None = None
    most_slot_cores: int | None = None
    lag: timedelta = _DURATIONS[LAG][0]
    out_cooldown: timedelta = _DURATIONS[OUT_COOLDOWN][0]
    idle: timedelta = _DURATIONS[IDLE][0]
    in_cooldown: timedelta = _DURATIONS[IN_COOLDOWN][0]
    windows: tuple[ScalingWindow, ...] = ()

    @property
    def digest(self) -> str:
        """16 hexadecimal digits that change when a person changes the policy."""
        return sha256(repr(self).encode()).hexdigest()[:16]

    def may_change(self, kind: ActionKind) -> bool:
        """Whether it lets this be changed at all."""
        return {
            ActionKind.MEMORY: self.memory is not None,
            ActionKind.PARALLELISM: self.most_slots_of_one is not None,
            ActionKind.CORES: self.most_slot_cores is not None,
            ActionKind.OPTIMIZERS: True,
        }[kind]

    def is_open(self, now: datetime) -> bool:
        """Whether the load may change anything now. Bounds are kept at any time."""
        return not self.windows or any(each.window.is_open(now) for each in self.windows)

    def bounds_at(self, now: datetime) -> Bounds:
        """The bounds that hold now. Of several open windows the first one in the list counts. Where a window has one bound of its own, the
        other bound gives way to it."""
        found = next((each for each in self.windows if each.window.is_open(now)), None)
        if found is None:
            return self.bounds
        most = self.bounds.most if found.most is None else found.most
        least = min(self.bounds.least, most) if found.least is None else found.least
        return Bounds(least, max(least, most))


def is_enabled(properties: Mapping[str, str]) -> bool:
    """Whether the properties of a group ask for a policy, which may still break a rule."""
    return properties.get(ENABLED, "").strip().lower() == "true"


def policy_of(group: str, properties: Mapping[str, str]) -> ScalingPolicy | None:
    """Return the policy that the properties of a group hold; None when it is not enabled.

    The properties are checked even then. Raises ConfigError, which names the group, the key, the value and the rule.
    """
    _check_keys(group, properties)
    enabled = properties.get(ENABLED, "false").strip().lower()
    if enabled not in ("true", "false"):
        raise _error(group, ENABLED, properties[ENABLED], "true or false")
    numbers = {key: _number(group, key, properties) for key in _NUMBERS}
    durations = {
        key: told if (told := _duration(group, key, properties, least)) is not None else usual for key, (usual, least) in _DURATIONS.items()
    }
    windows = _windows(group, properties)
    if not is_enabled(properties):
        return None
    policy = ScalingPolicy(
        _bounds(group, numbers),
        slots_of_one=numbers[SLOTS_OF_ONE] or _slots(properties),
        most_slots_of_one=numbers[MOST_SLOTS_OF_ONE],
        step=numbers[STEP],
        memory=_memory(group, numbers),
        most_slot_cores=numbers[MAX_SLOT_CORES],
        lag=durations[LAG],
        out_cooldown=durations[OUT_COOLDOWN],
        idle=durations[IDLE],
        in_cooldown=durations[IN_COOLDOWN],
        windows=windows,
    )
    _check_sizes(group, policy, SLOTS_OF_ONE if numbers[SLOTS_OF_ONE] else PARALLELISM)
    return policy


def _check_keys(group: str, properties: Mapping[str, str]) -> None:
    for key in properties:
        if key == DRAIN_TIMEOUT:
            raise ConfigError(
                f"group {group} has {key!r}, which has no effect here: an optimizer that drains finishes its tasks, and "
                "COMPACTION_TASK_TIMEOUT_SECONDS bounds how long each may take; remove it"
            )
        if key.startswith(PREFIX) and key not in KEYS:
            near = difflib.get_close_matches(key, KEYS, n=1)
            meant = f"did you mean '{near[0]}'?" if near else f"it may have {', '.join(KEYS)};"
            raise ConfigError(
                f"group {group} has the property {key[:100]!r}, which is none of a scaling policy: {meant} correct or remove it"
            )


def _number(group: str, key: str, properties: Mapping[str, str]) -> int | None:
    text, (least, most) = properties.get(key), _NUMBERS[key]
    if text is None:
        return None
    # Longer texts would make int() slow, and no value has so many digits.
    if not text.isascii() or not text.isdigit() or len(text) > 20 or not least <= int(text) <= most:
        raise _error(group, key, text, f"a whole number from {least} to {most}")
    return int(text)


def _duration(group: str, key: str, properties: Mapping[str, str], least: timedelta) -> timedelta | None:
    text = properties.get(key)
    if text is None:
        return None
    try:
        found = duration(text)
    except (ValueError, OverflowError):
        found = None
    if found is None or not least <= found <= LONGEST:
        raise _error(group, key, text, f"{DURATION_RULE}; at least {least.total_seconds():g} s and at most a day")
    return found


def _bounds(group: str, numbers: Mapping[str, int | None]) -> Bounds:
    least = numbers[MIN_SLOTS] if numbers[MIN_SLOTS] is not None else numbers[FLOOR]
    if numbers[FLOOR] not in (None, least):
        raise ConfigError(
            f"'{MIN_SLOTS}' of group {group} is {least} and '{FLOOR}' is {numbers[FLOOR]}, but both are the least slots of the group; "
            f"remove one by `group change {group} -p {FLOOR}=`"
        )
    most = numbers[MAX_SLOTS]
    if most is None:
        raise ConfigError(f"group {group} has '{ENABLED}' but lacks '{MAX_SLOTS}': set it to the most slots that the group may have")
    if (least or 0) > most:
        key = MIN_SLOTS if numbers[MIN_SLOTS] is not None else FLOOR
        raise ConfigError(
            f"'{key}' of group {group} is {least} but must not be more than '{MAX_SLOTS}', which is {most}; change one of them"
        )
    return Bounds(least or 0, most)


def _slots(properties: Mapping[str, str]) -> int:
    """The `parallelism` of the group. Its own rule is checked with the group."""
    text = properties.get(PARALLELISM, "1")
    return max(int(text), 1) if text.isascii() and text.isdigit() and len(text) <= 4 else 1


def _memory(group: str, numbers: Mapping[str, int | None]) -> Bounds | None:
    least, most = numbers[MIN_MEMORY], numbers[MAX_MEMORY]
    if least is None and most is None:
        return None
    if least is None or most is None or least > most:
        raise ConfigError(
            f"'{MIN_MEMORY}' of group {group} is {_shown(least)} and '{MAX_MEMORY}' is {_shown(most)}, but an optimizer is scaled between "
            "its least and its most bytes of memory, the least first; set both, or neither"
        )
    return Bounds(least, most)


def _shown(number: int | None) -> str:
    return "absent" if number is None else str(number)


def _windows(group: str, properties: Mapping[str, str]) -> tuple[ScalingWindow, ...]:
    text = properties.get(WINDOWS)
    if text is None:
        return ()
    parts = [part.strip() for part in text.split(";") if part.strip()]
    if not 1 <= len(parts) <= MOST_WINDOWS:
        raise _error(group, WINDOWS, text, f"1 to {MOST_WINDOWS} {WINDOWS_RULE}")
    try:
        return tuple(map(_window, parts))
    except ValueError as error:
        raise _error(group, WINDOWS, text, f"{WINDOWS_RULE} ({error})") from error


def _window(text: str) -> ScalingWindow:
    """The window of one part of the list. Raises ValueError, which says what is wrong with it."""
    words, bounds = text.split(), dict[str, int]()
    while words and "=" in words[-1]:
        name, _, number = words.pop().partition("=")
        if name not in ("min", "max") or name in bounds or not number.isascii() or not number.isdigit() or len(number) > 4:
            raise ValueError(f"{name[:20]}={number[:20]} is no bound: min and max have a number each, once")
        bounds[name] = int(number)
    least, most = bounds.get("min"), bounds.get("max")
    if any(bound is not None and bound > MOST_SLOTS for bound in (least, most)) or (least or 0) > (MOST_SLOTS if most is None else most):
        raise ValueError(f"min must not be more than max, and neither more than {MOST_SLOTS}")
    return ScalingWindow(Window.parse(" ".join(words)), least, most)


def _check_sizes(group: str, policy: ScalingPolicy, key: str) -> None:
    """`key` is the property that says how many slots an optimizer has."""
    slots, most = policy.slots_of_one, policy.most_slots_of_one
    if most is not None and slots > most:
        raise ConfigError(
            f"'{key}' of group {group} is {slots} but must not be more than '{MOST_SLOTS_OF_ONE}', which is {most}; change one"
        )
    highest: Iterable[int] = (policy.bounds.most, *(each.most for each in policy.windows if each.most is not None))
    if slots > max(highest):
        raise ConfigError(
            f"'{key}' of group {group} is {slots}, so one optimizer would have more slots than '{MAX_SLOTS}' and the windows "
            f"allow; make it smaller, or '{MAX_SLOTS}' larger"
        )


def _error(group: str, key: str, value: str, rule: str) -> ConfigError:
    return ConfigError(
        f"'{key}' of group {group} is {value[:200]!r} but must be {rule}; correct it, or remove it by `group change {group} -p {key}=`"
    )
