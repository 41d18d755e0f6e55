"""Counts the memory that a cluster gives to a Spark application: heaps are only a part of it.

Spark adds an overhead to each heap for what is not heap, and its own part for Python where somebody bounds that. The rules are those of
Spark 4.1 (https://spark.apache.org/docs/4.1.0/configuration.html): `memoryOverhead`, else the heap times `memoryOverheadFactor`, and
`minMemoryOverhead` at least. On Kubernetes the factor of applications in Python is 0.4.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Literal

Role = Literal["driver", "executor"]
MIB = 2**20
DRIVER_MEMORY = "spark.driver.memory"
_SIZES = {"k": 2**10, "m": MIB, "g": 2**30, "t": 2**40}
_FACTOR, _FACTOR_ON_KUBERNETES = 0.1, 0.4
_MOST_DIGITS = 18


def spark_bytes(text: str, bare: int = MIB) -> int:
    """The bytes of a size as Spark writes it, e.g. 512m; 0 for a text that is none, which Spark itself refuses. `bare` is the unit of a
    number without one."""
    found = re.fullmatch(r"([0-9]+)\s*([kmgt]?)b?", text.strip().lower())
    return int(found[1]) * _SIZES.get(found[2], bare) if found and len(found[1]) <= _MOST_DIGITS else 0


def heap_of(properties: Mapping[str, str], role: Role) -> int:
    """The bytes of the heap of the driver, or of an executor."""
    return spark_bytes(properties.get(f"spark.{role}.memory", "1g"))


def more_driver_memory(properties: Mapping[str, str]) -> str:
    """Twice the heap of a driver with these properties, as Spark writes it. A size that Spark refuses counts as its default."""
    return f"{2 * max(heap_of(properties, 'driver') or heap_of({}, 'driver'), MIB) // MIB}m"


def overhead_of(properties: Mapping[str, str], role: Role, master: str) -> int:
    """The bytes that Spark asks for beside the heap."""
    given = properties.get(f"spark.{role}.memoryOverhead")
    if given is not None:
        return spark_bytes(given)
    usual = _FACTOR
    if master.startswith("k8s://"):
        usual = _number(properties.get("spark.kubernetes.memoryOverheadFactor"), _FACTOR_ON_KUBERNETES)
    factor = _number(properties.get(f"spark.{role}.memoryOverheadFactor"), usual)
    return max(_least_overhead(properties, role), int(heap_of(properties, role) * factor))


def _least_overhead(properties: Mapping[str, str], role: Role) -> int:
    """The least bytes beside the heap that Spark asks for by itself."""
    return spark_bytes(properties.get(f"spark.{role}.minMemoryOverhead", "384m"))


def application_memory(properties: Mapping[str, str], executors: int, master: str) -> int:
    """The bytes of the driver and of so many executors in all. Executors that come and go count as often as they may be there at most."""
    driver = heap_of(properties, "driver") + overhead_of(properties, "driver", master)
    executor = heap_of(properties, "executor") + overhead_of(properties, "executor", master)
    executor += spark_bytes(properties.get("spark.executor.pyspark.memory", "0"))
    if _is_true(properties, "spark.memory.offHeap.enabled"):
        executor += spark_bytes(properties.get("spark.memory.offHeap.size", "0"), bare=1)
    return driver + executor * most_executors(properties, executors)


def most_executors(properties: Mapping[str, str], executors: int) -> int:
    """How many executors there may be at most; `executors` where nobody says it."""
    comes_and_goes = _is_true(properties, "spark.dynamicAllocation.enabled")
    key = "spark.dynamicAllocation.maxExecutors" if comes_and_goes else "spark.executor.instances"
    text = properties.get(key, "").strip()
    # Without a bound Spark starts no more executors than it has tasks to run.
    return int(text) if text.isascii() and text.isdigit() and len(text) <= 4 and int(text) else executors


def _is_true(properties: Mapping[str, str], key: str) -> bool:
    return properties.get(key, "").strip().lower() == "true"


def _number(text: str | None, usual: float) -> float:
    try:
        found = usual if text is None else float(text)
    except ValueError:
        return usual
    return found if 0 <= found < 100 else usual
