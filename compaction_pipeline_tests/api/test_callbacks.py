"""What is posted to the receiver of callbacks, and that it is signed as Standard Webhooks says."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timezone
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import ClassVar

import pytest

from compaction_pipeline.api.callbacks import Receiver, key_of, signed
from compaction_pipeline.core.dependencies.center.instances import Instance, InstanceState
from compaction_pipeline.core.dependencies.readiness import Readiness
from compaction_pipeline.core.errors import ConfigError, StorageUnavailable
from compaction_pipeline.core.tables.table import TableIdentifier

AT = datetime(2026, 1, 2, tzinfo=timezone.utc)
ANSWER = Readiness(TableIdentifier("lake", ("shop",), "events"), "day=2026-01-01", None, True, "watermark", "because", AT, (1,))


class _Handler(BaseHTTPRequestHandler):
    answers: ClassVar[list[int]] = []
    got: ClassVar[list[tuple[dict[str, str], bytes]]] = []

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        self.got.append(({key.lower(): value for key, value in self.headers.items()}, body))
        self.send_response(self.answers.pop(0))
        self.send_header("location", "/elsewhere")
        self.end_headers()

    def log_message(self, *arguments: object) -> None:
        return


@pytest.fixture
def url() -> Iterator[str]:
    _Handler.answers, _Handler.got = [], []
    with HTTPServer(("127.0.0.1", 0), _Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/hook"
        server.shutdown()
        thread.join()


def test_the_signature_is_that_of_the_specification() -> None:
    """The example of the specification of Standard Webhooks, which its libraries test too."""
    secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
    body = b'{"test": 2432232314}'
    assert signed("msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330, body, key_of(secret)) == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="


def test_an_answer_is_posted_signed_at_each_attempt_and_with_an_id_of_its_change(url: str) -> None:
    _Handler.answers = [200, 204]
    moments = [1_800_000_000.9, 1_800_009_000.0]
    receiver = Receiver(url, "secret", iter(moments).__next__)
    receiver.send("a change", ANSWER)
    receiver.send("a change", ANSWER)
    (headers, body), (again, _) = _Handler.got
    assert headers["webhook-id"] == again["webhook-id"]
    for one, second in ((headers, 1_800_000_000), (again, 1_800_009_000)):
        assert one["webhook-timestamp"] == str(second)
        assert one["webhook-signature"] == signed(one["webhook-id"], second, body, b"secret")
    value = json.loads(body)
    assert (value["type"], value["data"]["what"], value["data"]["ready"]) == ("partition.ready", "day=2026-01-01", True)


@pytest.mark.parametrize(
    ("secret", "words"),
    [
        ("", "is empty"),
        ("whsec_", "is empty"),
        ("whsec_hunter2", "base64 must follow"),
        ("whsec_hunter2!", "base64 must follow"),
        ("whsec_hünter2", "base64 must follow"),
    ],
)
def test_a_secret_that_cannot_sign_is_refused_before_anything_is_posted(secret: str, words: str) -> None:
    with pytest.raises(ConfigError, match=f"COMPACTION_READY_CALLBACK_SECRET.*{words}") as refused:
        Receiver("http://127.0.0.1:9/hook", secret)
    assert "hunter2" not in str(refused.value)


@pytest.mark.parametrize("status", [300, 302, 304, 400, 500])
def test_any_other_answer_means_that_nobody_took_it(url: str, status: int) -> None:
    _Handler.answers = [status]
    with pytest.raises(StorageUnavailable, match=f"answered HTTP {status}"):
        Receiver(url, "secret").send("a change", ANSWER)


def test_a_receiver_that_is_down_is_named_by_its_setting_alone() -> None:
    with pytest.raises(StorageUnavailable, match="COMPACTION_READY_CALLBACK_URL did not answer") as failed:
        Receiver("http://127.0.0.1:9/hook?token=hunter2", "secret").send("a change", ANSWER)
    assert "hunter2" not in str(failed.value)


def test_a_start_is_posted_with_an_id_of_its_key(url: str) -> None:
    _Handler.answers = [200, 500, 200]
    receiver = Receiver(url, "secret")
    one = Instance(1, "load", "2026-01-01", "", "", AT, state=InstanceState.READY, ready_at=AT)
    receiver.start(one)
    with pytest.raises(StorageUnavailable, match="HTTP 500"):
        receiver.start(one)
    receiver.start(replace(one, generation=2))
    ids = [headers["webhook-id"] for headers, _ in _Handler.got]
    assert ids[0] == ids[1] != ids[2]
    value = json.loads(_Handler.got[0][1])
    assert (value["type"], value["data"]["key"], value["data"]["instance"]["biz"]) == (
        "instance.ready",
        "load/2026-01-01/scheduled/1",
        "2026-01-01",
    )
