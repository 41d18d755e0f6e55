"""The resource of KEDA in `deploy/` is one that KEDA's own definition of it allows."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from compaction_pipeline_tests.interop.peers import keda_packages

pytestmark = pytest.mark.interop

MANIFEST = Path(__file__).parents[2] / "deploy" / "kubernetes" / "keda.yaml"
_PROGRAM = """
import sys
import yaml
from cloudcoil.models.keda.v1alpha1 import ScaledObject

for read in yaml.safe_load_all(sys.stdin.read()):
    # The class leaves out the keys that it does not know.
    kept = ScaledObject.model_validate(read).model_dump(mode="json", by_alias=True, exclude_unset=True)
    sys.exit(f"{read} became {kept}" if kept != read else 0)
"""


def checked(text: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(keda_packages())}
    return subprocess.run([sys.executable, "-c", _PROGRAM], input=text, env=environment, capture_output=True, text=True, check=False)


def test_the_scaled_object_fits_the_definition_of_keda() -> None:
    text = MANIFEST.read_text()
    found = checked(text)
    assert (found.returncode, found.stderr) == (0, "")
    for wrong in (text.replace("minReplicaCount", "minReplicas"), text.replace("maxReplicaCount: 8", "maxReplicaCount: many")):
        assert wrong != text
        assert checked(wrong).returncode == 1
