"""Two workers of pytest never start servers on the same port."""

from __future__ import annotations

import random
import socket

import pytest

from compaction_pipeline_tests.ports import free_port


def test_workers_choose_from_ranges_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    ranges = []
    for worker in (None, "gw1", "gw11"):
        monkeypatch.delenv("PYTEST_XDIST_WORKER", raising=False)
        if worker is not None:
            monkeypatch.setenv("PYTEST_XDIST_WORKER", worker)
        ranges.append({free_port() // 1000 for _ in range(20)})
    assert ranges == [{20}, {21}, {31}]


def test_a_port_on_which_a_server_listens_is_not_free() -> None:
    random.seed(1)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", free_port()))
        taken.listen()
        random.seed(1)
        assert free_port() != taken.getsockname()[1]
