"""Follows the calls of one plain commit and of one merge through the folders of the package.

Both happen in a test of the checkout, so that the code under test may change its names: `IcebergCommitter.commit` and `merge_task` are
found by name, wherever they stand. Only the thread that makes the call is followed.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import FrameType

MOST_CHANGES = 400
LIBRARIES = {"formats"}
"""Folders at the top of the package that know nothing of the program. A call of one counts as a call of a library: not at all."""
TESTS = {
    "commit": "compaction_pipeline_tests/iceberg/test_commit_rules.py::test_a_merged_file_gets_the_sequence_number_of_its_plan",
    "merge_task": "compaction_pipeline_tests/merging/test_kernel.py::test_files_become_one_with_every_row",
}


def returns(folders: list[str]) -> int:
    """How often a folder is entered again that was left before. Each folder in the list differs from the one before it."""
    seen: set[str] = set()
    again = 0
    for folder in folders:
        again += folder in seen
        seen.add(folder)
    return again


def top_folders(folders: list[str]) -> list[str]:
    """The same walk, when only the folders at the top of the package count."""
    tops = [folder.split("/")[0] for folder in folders]
    return [top for number, top in enumerate(tops) if number == 0 or tops[number - 1] != top]


class Follower:
    """A profile function. It notes the folders of the first call of `name` while that call lasts."""

    def __init__(self, package: Path, name: str) -> None:
        self._package = f"{package}{os.sep}"
        self._name = name
        self._began: FrameType | None = None
        self._ended = False
        self.folders: list[str] = []

    def __call__(self, frame: FrameType, event: str, _: object) -> None:
        if self._ended or event not in ("call", "return") or not frame.f_code.co_filename.startswith(self._package):
            return
        if self._began is None and event == "call" and frame.f_code.co_name == self._name and self._is_ours(frame):
            self._began = frame
        if self._began is None:
            return
        folder = str(Path(frame.f_code.co_filename[len(self._package) :]).parent)
        if folder.split(os.sep)[0] in LIBRARIES:
            return
        if event == "call" and (not self.folders or self.folders[-1] != folder) and len(self.folders) <= MOST_CHANGES:
            self.folders.append(folder)
        self._ended = event == "return" and frame is self._began

    def _is_ours(self, frame: FrameType) -> bool:
        return self._name != "commit" or type(frame.f_locals.get("self")).__name__ == "IcebergCommitter"


def trace(repo: Path, name: str, python: str = sys.executable) -> list[str]:
    """The folders that the call enters, one after the other. It runs a test of the checkout in a process of its own."""
    words = [python, __file__, name, str(repo.resolve())]
    paths = os.pathsep.join([str(repo.resolve()), str(Path(__file__).parents[1])])
    answer = subprocess.run(words, cwd=repo, env={**os.environ, "PYTHONPATH": paths}, capture_output=True, text=True, check=False)
    last = answer.stdout.strip().splitlines()[-1:] or [""]
    if answer.returncode or not last[0].startswith("["):
        raise SystemExit(
            f"the test {TESTS[name]} of {repo} did not pass, so nothing is traced:\n{answer.stdout[-2000:]}{answer.stderr[-2000:]}"
        )
    folders: list[str] = json.loads(last[0])
    return folders


def _main(name: str, repo: Path) -> int:
    import pytest

    follower = Follower(repo / "compaction_pipeline", name)

    class Plugin:
        @pytest.hookimpl(hookwrapper=True)
        def pytest_runtest_call(self) -> object:
            sys.setprofile(follower)
            yield
            sys.setprofile(None)

    code = pytest.main(["-q", "-p", "no:cacheprovider", TESTS[name]], plugins=[Plugin()])
    sys.stdout.write(f"\n{json.dumps(follower.folders)}\n")
    return int(code) or int(not follower.folders)


if __name__ == "__main__":
    sys.exit(_main(sys.argv[1], Path(sys.argv[2])))
