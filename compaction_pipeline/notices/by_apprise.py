"""Sends a notice by `apprise`, which knows mail, webhooks, DingTalk, Slack and many others by the form of an address.

No text that leaves this module holds an address, because most addresses are secrets.
"""

from __future__ import annotations

import importlib
import logging
import re
from typing import Any

from compaction_pipeline.core.errors import ConfigError, NoticeNotSent

_SECONDS = 20
"""A receiver has so many seconds to answer."""
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]{0,19}")


class ByApprise:
    """Each notice is sent by itself, so that one receiver that is down delays no other for long."""

    def check(self, url: str) -> None:
        """Judge an address. Raises ConfigError without the package, and for an address that apprise cannot send to."""
        apprise = _apprise()
        try:
            known = apprise.Apprise().add(url)
        except Exception:
            # A plugin of it fails at the address. The text of its error may hold the address.
            known = False
        if not known:
            raise _not_known(apprise, url)

    def send(self, url: str, title: str, body: str) -> None:
        """Raises NoticeNotSent when the receiver did not take it, and ConfigError without the package or for an address of no kind."""
        apprise = _apprise()
        sender = apprise.Apprise()
        kind = _kind(url)
        separator = "&" if "?" in url else "?"
        # Its own retries and long timeouts would hold up other notices. An address that sets them keeps its own.
        more = "" if "cto=" in url or "rto=" in url else f"{separator}cto={_SECONDS}&rto={_SECONDS}"
        try:
            known = sender.add(url + more)
            arrived = known and sender.notify(title=title, body=body, body_format=apprise.NotifyFormat.TEXT)
        except Exception as error:
            # A plugin of it that fails must not end the round of all notices. Its text may hold the address.
            raise NoticeNotSent(f"apprise failed to send a notice by {kind}: {type(error).__name__}") from None
        if not known:
            raise _not_known(apprise, url)
        if not arrived:
            raise NoticeNotSent(f"the receiver of a notice by {kind} did not answer, or refused it")


def _apprise() -> Any:
    try:
        apprise = importlib.import_module("apprise")
    except ImportError as error:
        raise ConfigError("notices need the package apprise: install compaction-pipeline[notices]") from error
    # It logs addresses, in part.
    logging.getLogger("apprise").setLevel(logging.CRITICAL)
    return apprise


def _kind(url: str) -> str:
    """The scheme of an address. What cannot be a scheme may be a secret that stands in the wrong place."""
    kind = url.partition("://")[0]
    return kind if _SCHEME.fullmatch(kind) else "…"


def _not_known(apprise: Any, url: str) -> ConfigError:
    kind = _kind(url)
    schemas = apprise.Apprise().details(show_requirements=True, show_disabled=True)["schemas"]
    kinds = {each: schema for schema in schemas for key in ("protocols", "secure_protocols") for each in schema[key] or ()}
    schema = kinds.get(kind.lower())
    if schema is not None and not schema["enabled"]:
        needs = schema["requirements"]["packages_required"]
        what = f"needs the Python package {', '.join(needs)}: install it" if needs else "cannot do so on this host: use another form"
        return ConfigError(f"apprise knows the form {kind}://…, but to send to it apprise {what}, or correct the address")
    if schema is not None:
        return ConfigError(
            f"apprise knows the form {kind}://…, but a part of the address is missing or wrong; `apprise --details` shows what it "
            "must have; correct the address"
        )
    return ConfigError(f"apprise knows no address of the form {kind}://…; `apprise --details` lists the forms; correct the address")
