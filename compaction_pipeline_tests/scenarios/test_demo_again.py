"""The demo on what an earlier demo left in its folder: one that ended, one that was killed, one of an older release."""

from __future__ import annotations

import fcntl
import shutil
import signal
import tarfile
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from compaction_pipeline_tests.scenarios.demos import RunningDemo, commands_of, log_of, processes_of, run_once, running_demo, standing_still

pytestmark = [pytest.mark.scenario, pytest.mark.timeout(1500)]

OLDER = "compaction-demo-77fcefb"
"""The folder of a demo of release 77fcefb. Its tables, its state database and Dagster's history name files by this path under /tmp."""


@pytest.fixture(scope="module")
def older_demo() -> Iterator[Path]:
    """What the live demo of release 77fcefb left when it lost its power, with two tasks and a run under way. All tests go on with it."""
    folder = Path("/tmp") / OLDER
    with folder.with_suffix(".lock").open("w") as lock:
        # Another checkout may run the same test.
        fcntl.flock(lock, fcntl.LOCK_EX)
        shutil.rmtree(folder, ignore_errors=True)
        with tarfile.open(Path(__file__).parent / "examples" / f"{OLDER}.tar.xz") as archive:
            # Older patch releases of the supported Pythons do not have the filter.
            archive.extractall(folder.parent, **({"filter": "data"} if hasattr(tarfile, "data_filter") else {}))  # type: ignore[arg-type]
        yield folder
        shutil.rmtree(folder, ignore_errors=True)


def _look(demo: RunningDemo) -> None:
    """Wait until the pages of a live demo answer, and look at it."""
    demo.wait_for(f"Open http://127.0.0.1:{demo.port}")
    assert "\norders" in demo.printed
    with urllib.request.urlopen(f"http://127.0.0.1:{demo.port}/server_info", timeout=120) as answer:
        assert answer.status == 200
    assert any("compaction_pipeline.demo.writer orders" in command for command in commands_of(demo.folder))


def _end(demo: RunningDemo, *signals: signal.Signals) -> None:
    """End a live demo as a person does."""
    exit_code, printed = demo.end_by(*signals)
    assert exit_code == 0, printed
    assert "every process of the demo has ended" in printed
    assert processes_of(demo.folder) == []


def _compare_every_row(folder: Path) -> None:
    """Let ONCE=1 work off what is there and a small backlog, and compare every row with the change log."""
    done = run_once(folder, COMPACTION_DEMO_BACKLOG_FILES="100")
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}\n{log_of(folder)}"
    assert done.stdout.count("every one as in the change log") == 4
    assert processes_of(folder) == []


def test_a_demo_goes_on_with_what_a_killed_demo_of_the_release_before_left(older_demo: Path) -> None:
    _compare_every_row(older_demo)


def test_a_demo_goes_live_and_starts_again_on_the_same_port_when_its_process_group_was_killed(older_demo: Path) -> None:
    """It was run once, by the test before."""
    with running_demo(older_demo) as demo:
        demo.wait_for(f"Open http://127.0.0.1:{demo.port}")
        # What ends Dagster when its demo was killed may do so before another demo has looked. Here it waits for that look.
        with standing_still(older_demo, "compaction_pipeline.demo.tied") as go_on:
            demo.kill_its_group()
            with running_demo(older_demo, demo.port) as again:
                again.wait_for("Waiting until the processes that it started have ended")
                go_on()
                _look(again)
                _end(again, signal.SIGINT, signal.SIGINT)


def test_a_demo_that_was_cut_off_twice_goes_on_and_keeps_every_row(tmp_path: Path) -> None:
    """The first one lost its power while it wrote its backlog. A person who could not wait ended the second one during a merge."""
    folder = tmp_path / "demo"
    with running_demo(folder, ONCE="1", COMPACTION_DEMO_BACKLOG_FILES="100") as demo:
        demo.wait_for("Writing a backlog")
        demo.kill_everything()
    with running_demo(folder) as demo:
        _look(demo)
        demo.wait_for_a_merge()
        _end(demo, signal.SIGINT, signal.SIGINT)
    _compare_every_row(folder)
