"""What sets of definitions in one code location may not have in common, and what they must."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

from compaction_pipeline.core.errors import ConfigError
from compaction_pipeline.defs.choices import Choices

_BOTH = "two sets of definitions of compaction_pipeline in one code location have "


def check_together(sets: Sequence[tuple[Choices, object]]) -> None:
    """Raise ConfigError when two of these sets cannot stand in one code location. With the choices of each stands its `pyspark`.

    No text names a value that may hold a secret.
    """
    for (one, its_spark), (other, other_spark) in combinations(sets, 2):
        mine, theirs = one.load_settings(), other.load_settings()
        if one.name_prefix == other.name_prefix:
            raise ConfigError(
                f"{_BOTH}the attribute 'name_prefix' {one.name_prefix!r}: a code location has one job and one sensor of each name; give "
                "each set another 'name_prefix'"
            )
        if mine.asset_prefix == theirs.asset_prefix:
            raise ConfigError(
                f"{_BOTH}the attribute 'asset_prefix' {mine.asset_prefix!r}: an asset key belongs to one of them; give each set another "
                "'asset_prefix'"
            )
        if mine.state_database_url == theirs.state_database_url:
            raise ConfigError(
                f"{_BOTH}the same state database, and each would tell half of what happens; give each set another 'state_url', or keep one"
            )
        if one.spark != other.spark or its_spark != other_spark:
            raise ConfigError(
                f"{_BOTH}different settings of Spark, in 'pyspark' or in settings: a process has one JVM, so give each set the same ones, "
                "or make a code location of each"
            )
