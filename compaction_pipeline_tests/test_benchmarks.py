"""The benchmarks can be started as their page says: as scripts, from any folder."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

BENCHMARKS = Path(__file__).resolve().parents[1] / "benchmarks"
_IMPORT_ALL = """
import importlib, sys
sys.path.insert(0, sys.argv[1])
path = list(sys.path)
for name in sys.argv[2:]:
    importlib.import_module(name)
    # No benchmark may find something only because the one before it put it there.
    sys.path[:] = path
    for each in [each for each in sys.modules if each in sys.argv or each.startswith("compaction_pipeline_tests")]:
        del sys.modules[each]
"""


def test_every_benchmark_finds_what_it_imports(tmp_path: Path) -> None:
    names = sorted(path.stem for path in BENCHMARKS.glob("*.py"))
    assert len(names) > 10
    # Python puts the folder of a script first on its path. The repository's own folder is not on it.
    command = [sys.executable, "-c", _IMPORT_ALL, str(BENCHMARKS), *names]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
