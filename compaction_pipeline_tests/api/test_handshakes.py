"""TLS: an honest client is served, and handshakes that do not go on take no room from it."""

from __future__ import annotations

import shutil
import ssl
import subprocess
from contextlib import ExitStack
from pathlib import Path

import pytest

from compaction_pipeline.api import connections
from compaction_pipeline.api.patience import Patience
from compaction_pipeline.api.serve import Listening, server_config
from compaction_pipeline.core.errors import ConfigError
from compaction_pipeline_tests.api.served import Served
from compaction_pipeline_tests.api.sockets import READY, answer_on, connected, listening


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A certificate for 127.0.0.1 and its key, in PEM."""
    folder = tmp_path_factory.mktemp("tls")
    cert, key = folder / "cert.pem", folder / "key.pem"
    openssl = shutil.which("openssl")
    assert openssl is not None, "install openssl"
    name = ["-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1", "-days", "2"]
    kind = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    subprocess.run([openssl, "req", "-x509", *kind, *name, "-keyout", str(key), "-out", str(cert)], check=True, capture_output=True)
    return cert, key


def secured(port: int, certificate: Path) -> ssl.SSLSocket:
    context = ssl.create_default_context(cafile=str(certificate))
    return context.wrap_socket(connected(port), server_hostname="127.0.0.1")


def test_requests_are_answered_over_tls_one_after_the_other(served: Served, certificate: tuple[Path, Path]) -> None:
    with listening(served, *certificate) as port, secured(port, certificate[0]) as connection:
        for _ in range(3):
            connection.sendall(READY)
            # TLS hands over the head and the body apart.
            answer = b""
            while not answer.endswith(b"}"):
                received = answer_on(connection)
                assert received, answer
                answer += received
            assert b"200 OK" in answer


def test_the_oldest_handshake_that_does_not_go_on_gives_way_and_an_honest_client_is_served(
    served: Served, certificate: tuple[Path, Path]
) -> None:
    with listening(served, *certificate) as port, ExitStack() as held:
        silent = [held.enter_context(connected(port, b"\x16\x03\x01")) for _ in range(connections.MOST_UNFINISHED_OF_ONE + 4)]
        with secured(port, certificate[0]) as connection:
            connection.sendall(READY)
            assert b"200 OK" in answer_on(connection)
        # The honest client took a place too.
        assert [answer_on(each) for each in silent[:5]] == [b""] * 5
        silent[-1].settimeout(0)
        with pytest.raises(BlockingIOError):
            silent[-1].recv(1)


def test_a_handshake_that_takes_too_long_ends(served: Served, certificate: tuple[Path, Path]) -> None:
    impatient = Patience(handshake_seconds=0.2)
    with listening(served, *certificate, patience=impatient) as port, connected(port, b"\x16\x03\x01") as slow:
        assert answer_on(slow) == b""


def test_who_speaks_no_tls_is_refused_and_others_are_served(served: Served, certificate: tuple[Path, Path]) -> None:
    with listening(served, *certificate) as port:
        with connected(port, READY) as plain:
            assert b"HTTP" not in answer_on(plain)
        with secured(port, certificate[0]) as connection:
            connection.sendall(READY)
            assert b"200 OK" in answer_on(connection)


def test_a_request_that_comes_with_the_end_of_the_handshake_is_answered(served: Served, certificate: tuple[Path, Path]) -> None:
    context = ssl.create_default_context(cafile=str(certificate[0]))
    arrived, sent = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = context.wrap_bio(arrived, sent, server_hostname="127.0.0.1")
    with listening(served, *certificate) as port, connected(port) as connection:
        while True:
            try:
                client.do_handshake()
                break
            except ssl.SSLWantReadError:
                connection.sendall(sent.read())
                arrived.write(connection.recv(65_536))
        client.write(READY)
        # The client's last part of the handshake and its request are one piece.
        connection.sendall(sent.read())
        answer = b""
        while b"200 OK" not in answer:
            received = connection.recv(65_536)
            assert received, answer
            arrived.write(received)
            try:
                answer += client.read()
            except ssl.SSLWantReadError:
                continue


def test_a_key_that_does_not_fit_is_a_clear_error(served: Served, certificate: tuple[Path, Path], tmp_path: Path) -> None:
    wrong = tmp_path / "key.pem"
    wrong.write_text("no key")
    with pytest.raises(ConfigError, match=r"--tls-key is .*key.pem, which cannot be used"):
        server_config(served.client.app, Listening("127.0.0.1", 0, certificate[0], wrong))  # type: ignore[arg-type]


def test_a_key_that_needs_a_passphrase_is_named_with_the_way_to_one_that_needs_none(
    served: Served, certificate: tuple[Path, Path], tmp_path: Path
) -> None:
    openssl, locked = shutil.which("openssl"), tmp_path / "locked.pem"
    assert openssl is not None
    words = ["pkey", "-in", str(certificate[1]), "-aes256", "-passout", "pass:secret", "-out", str(locked)]
    subprocess.run([openssl, *words], check=True, capture_output=True)
    said = rf"^--tls-key is {locked}, which needs a passphrase, and nobody is asked for one: .*`openssl pkey -in {locked} -out FILE`"
    with pytest.raises(ConfigError, match=said):
        server_config(served.client.app, Listening("127.0.0.1", 0, certificate[0], locked))  # type: ignore[arg-type]
