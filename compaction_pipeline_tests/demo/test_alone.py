"""Only one demo runs in a folder. Two demos would each compare their tables with the change log of both."""

from __future__ import annotations

from pathlib import Path

import pytest

from compaction_pipeline.core.errors import ConfigError
from compaction_pipeline.demo.__main__ import alone
from compaction_pipeline.demo.options import DemoOptions


def test_a_second_demo_in_the_same_folder_is_refused_until_the_first_has_ended(tmp_path: Path) -> None:
    options = DemoOptions(tmp_path)
    with alone(options), pytest.raises(ConfigError, match=r"another demo runs in .*COMPACTION_DEMO_HOME"), alone(options):
        pass
    with alone(options):
        pass
