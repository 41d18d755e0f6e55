"""A target says how many optimizers a group is to have, and how large each of them is."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha256

from compaction_pipeline.core.words import bytes_text, count_text


@dataclass(frozen=True, slots=True)
class Target:
    """What a group is to have.

    `instances` is the number of optimizers, `parallelism` the slots of each of them, and `memory_bytes` the memory of each of them in all,
    0 when nobody knows it. `slot_cores` are the cores of one slot; None leaves them to the container.
    """

    instances: int
    parallelism: int
    memory_bytes: int = 0
    slot_cores: float | None = None

    @property
    def slots(self) -> int:
        """The slots of all optimizers together."""
        return self.instances * self.parallelism

    @property
    def size_digest(self) -> str:
        """16 hexadecimal digits that change when an optimizer of this target would be started in another way."""
        return _digest(self.parallelism, self.memory_bytes, self.slot_cores)

    @property
    def digest(self) -> str:
        """16 hexadecimal digits that change with every part of it. A target that failed is remembered by them."""
        return _digest(self.instances, self.parallelism, self.memory_bytes, self.slot_cores)

    @property
    def in_words(self) -> str:
        """For example: 2 optimizers of 4 slots, 8.0 GB and 2 cores a slot."""
        parts = [count_text(self.parallelism, "slot")]
        parts += [bytes_text(self.memory_bytes)] if self.memory_bytes else []
        parts += [f"{self.slot_cores:g} {'core' if self.slot_cores == 1 else 'cores'} a slot"] if self.slot_cores is not None else []
        return f"{count_text(self.instances, 'optimizer')} of {', '.join(parts[:-1])}{' and ' * (len(parts) > 1)}{parts[-1]}"


def _digest(*parts: object) -> str:
    return sha256(repr(parts).encode()).hexdigest()[:16]
