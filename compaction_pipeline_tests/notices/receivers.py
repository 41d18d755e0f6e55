"""A mail server and a receiver of webhooks on this host, each of which can be down."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, HTTPServer

from aiosmtpd.controller import Controller
from aiosmtpd.handlers import Message


@dataclass
class Webhook:
    """What a receiver of webhooks got. While it `is_down`, it refuses."""

    port: int = 0
    is_down: bool = False
    got: list[dict[str, object]] = field(default_factory=list)


@contextmanager
def webhook() -> Iterator[Webhook]:
    """A receiver on a free port."""
    received = Webhook()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if not received.is_down:
                received.got.append(json.loads(body))
            self.send_response(503 if received.is_down else 200)
            self.end_headers()
            self.wfile.write(b"{}")

        def log_message(self, format: str, *arguments: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    received.port = server.server_port
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield received
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@contextmanager
def mail_server(port: int) -> Iterator[list[tuple[str, str, str]]]:
    """A mail server. It yields the mails that came: recipient, subject, and text."""
    mails: list[tuple[str, str, str]] = []

    class Handler(Message):  # type: ignore[misc]
        def handle_message(self, message: object) -> None:
            parts = [part for part in message.walk() if part.get_content_type() == "text/plain"]  # type: ignore[attr-defined]
            text = parts[0].get_payload(decode=True).decode()
            subject = str(message["Subject"])  # type: ignore[index]
            mails.append((str(message["X-RcptTo"]), subject, text))  # type: ignore[index]

    controller = Controller(Handler(), hostname="127.0.0.1", port=port)
    controller.start()
    try:
        yield mails
    finally:
        controller.stop()
