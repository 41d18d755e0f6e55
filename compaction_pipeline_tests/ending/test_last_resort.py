"""After SIGTERM, a process that does not end by itself is ended. Other processes are left alone."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading

from compaction_pipeline.ending.last_resort import end_after

# This program ignores the request to end, as a process does whose signals are blocked or whose thread hangs.
_DEAF = """
import signal, sys
from compaction_pipeline.ending.last_resort import end_after_sigterm
signal.signal(signal.SIGTERM, lambda number, frame: print("heard", flush=True))
end_after_sigterm(0.1, 130)
print("ready", flush=True)
while True:
    signal.pause()
"""


def _started(program: str) -> subprocess.Popen[str]:
    process = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


def test_a_process_that_ignores_sigterm_is_ended_later_and_says_so() -> None:
    process = _started(_DEAF)
    process.send_signal(signal.SIGTERM)
    said, complaint = process.communicate(timeout=600)
    assert (process.returncode, said) == (130, "heard\n")
    assert "was told to end and still waits" in complaint


def test_another_signal_does_not_begin_the_end() -> None:
    process = _started(
        _DEAF.replace('print("ready"', 'signal.signal(signal.SIGUSR1, lambda *_: print("other", flush=True))\nprint("ready"')
    )
    assert process.stdout is not None
    process.send_signal(signal.SIGUSR1)
    assert process.stdout.readline() == "other\n"
    assert process.poll() is None
    process.kill()
    process.communicate()


def test_an_end_waits_until_it_is_allowed() -> None:
    codes: list[int] = []
    allowed = threading.Event()
    asked = threading.Event()

    def may_end() -> bool:
        asked.set()
        return allowed.is_set()

    thread = end_after(0, 7, codes.append, may_end)
    assert asked.wait(600)
    assert codes == []
    allowed.set()
    thread.join(600)
    assert codes == [7]


def test_a_service_that_is_cut_off_says_where_it_waits() -> None:
    process = _started(
        _DEAF.replace(
            "import signal, sys", "import signal, sys\nfrom compaction_pipeline.cli import main\nsys.argv[1:] = ['optimizer']"
        ).replace("end_after_sigterm(0.1, 130)", "end_after_sigterm(0.1, 130, main.cut_off)")
    )
    process.send_signal(signal.SIGTERM)
    _, complaint = process.communicate(timeout=600)
    assert process.returncode == 130
    assert complaint.rstrip().endswith("in <module>"), complaint
