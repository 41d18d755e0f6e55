"""Sends a notice by `apprise`, which knows mail, webhooks, DingTalk, Slack and many others by the form of an address.

No text that leaves this module holds an address, because most addresses are secrets.
"""

from __future__ import annotations

import importlib
import logging

from compaction_pipeline.core.errors import ConfigError, NoticeNotSent

_SECONDS = 20
"""A receiver has so many seconds to answer."""


class ByApprise:
    """Each notice is sent by itself, so that one receiver that is down delays no other for long."""

    def send(self, url: str, title: str, body: str) -> None:
        """Raises NoticeNotSent when the receiver did not take it, and ConfigError without the package or for an address of no kind."""
        try:
            apprise = importlib.import_module("apprise")
        except ImportError as error:
            raise ConfigError("notices need the package apprise: install compaction-pipeline[notices]") from error
        # It logs addresses, in part.
        logging.getLogger("apprise").setLevel(logging.CRITICAL)
        sender = apprise.Apprise()
        kind = url.partition("://")[0]
        separator = "&" if "?" in url else "?"
        # Its own retries and long timeouts would hold up other notices. An address that sets them keeps its own.
        more = "" if "cto=" in url or "rto=" in url else f"{separator}cto={_SECONDS}&rto={_SECONDS}"
        try:
            known = sender.add(url + more)
            arrived = known and sender.notify(title=title, body=body, body_format=apprise.NotifyFormat.TEXT)
        except Exception as error:
            # A plugin of it that fails must not end the round of all notices. Its text may hold the address.
            raise NoticeNotSent(f"apprise failed to send a notice by {kind[:20]}: {type(error).__name__}") from None
        if not known:
            raise ConfigError(
                f"apprise knows no address of the form {kind[:20]}://…; `apprise --details` lists the forms; correct the address"
            )
        if not arrived:
            raise NoticeNotSent(f"the receiver of a notice by {kind[:20]} did not answer, or refused it")
