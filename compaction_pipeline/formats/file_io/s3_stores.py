"""Clients for S3, made from the properties of a PyIceberg FileIO. A process makes one client for each set of properties.

This client does not know every way to find credentials (profile files, assumed roles, signers of a catalog). If the properties may mean one
of them, there is no client here. PyArrow's S3, which knows them, is then used, and costs a HEAD request for each file.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from functools import lru_cache
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from obstore.store import S3Store
from pyarrow.fs import resolve_s3_region

SCHEMES = frozenset({"s3", "s3a", "s3n"})
DEFAULT_LIMITS: Mapping[str, str] = {"s3.connect-timeout": "10", "s3.request-timeout": "60"}
"""Seconds to connect, and to wait for the next bytes of an answer. The catalog's properties may name others."""
RETRIES = 8
RETRY_TIMEOUT = timedelta(minutes=1)
LONGEST_PAUSE = timedelta(seconds=15)
"""A request that failed because the store was busy, or because a connection broke, is sent again: this often, for at most this time, with
pauses that grow up to this length."""
_UNKNOWN_WAYS = ("s3.role-arn", "client.role-arn", "s3.retry-strategy-impl", "s3.resolve-region")
_OTHER_ENDPOINTS = ("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3")
_GIVEN_TO_PROCESS = ("AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "AWS_CONTAINER_CREDENTIALS_FULL_URI")


@dataclass(frozen=True, eq=False)
class S3Bucket:
    """A bucket, with clients that have the credentials of one identity. Each is an `obstore.store.S3Store`.

    `deleter` deletes up to 1,000 objects by one request, which not all services know.
    """

    client: Any
    deleter: Any


def s3_bucket(properties: Mapping[str, str], bucket: str) -> S3Bucket | None:
    """The bucket that these properties open. None if PyArrow's client has to be used."""
    if any(properties.get(key) for key in _UNKNOWN_WAYS) or any(key.startswith("s3.signer") for key in properties):
        return None
    if any(os.environ.get(key) for key in _OTHER_ENDPOINTS):
        return None
    credentials = _credentials(properties)
    if credentials is None:
        return None
    region = properties.get("s3.region") or properties.get("client.region")
    options = {
        **credentials,
        **_endpoint(properties, bucket),
        "region": region or _region(bucket, bool(properties.get("s3.endpoint"))),
    }
    limits = {**DEFAULT_LIMITS, **{key: properties[key] for key in DEFAULT_LIMITS if properties.get(key)}}
    client = {
        "connect_timeout": f"{float(limits['s3.connect-timeout']):g}s",
        "read_timeout": f"{float(limits['s3.request-timeout']):g}s",
        **_own_certificates(),
        **({"proxy_url": properties["s3.proxy-uri"]} if properties.get("s3.proxy-uri") else {}),
    }
    return _made(bucket, tuple(sorted(options.items())), tuple(sorted(client.items())))


@lru_cache(maxsize=32)
def _made(bucket: str, options: tuple[tuple[str, Any], ...], client: tuple[tuple[str, str], ...]) -> S3Bucket:
    # A client keeps its connections, so one client is used for all tasks. The limit is on silence, not on the length of a transfer.
    connection: Any = {**dict(client), "timeout": "30m", "allow_http": True}

    def made(disable_bulk_delete: bool) -> S3Store:
        return S3Store(
            bucket,
            **dict(options),
            disable_bulk_delete=disable_bulk_delete,
            client_options=connection,
            retry_config={"max_retries": RETRIES, "retry_timeout": RETRY_TIMEOUT, "backoff": {"max_backoff": LONGEST_PAUSE}},
        )

    return S3Bucket(made(True), made(False))


def _credentials(properties: Mapping[str, str]) -> dict[str, Any] | None:
    """The credentials in the properties, or those that this process was given. None if the AWS SDK would have to search for them."""
    key = properties.get("s3.access-key-id") or properties.get("client.access-key-id")
    secret = properties.get("s3.secret-access-key") or properties.get("client.secret-access-key")
    token = properties.get("s3.session-token") or properties.get("client.session-token")
    if str(properties.get("s3.anonymous", "")).lower() == "true":
        return {"skip_signature": True}
    if key and secret:
        if not token and os.environ.get("AWS_SESSION_TOKEN"):
            # The token in the environment belongs to another key.
            return None
        return {"access_key_id": key, "secret_access_key": secret, **({"session_token": token} if token else {})}
    if key or secret or token or properties.get("s3.profile-name") or properties.get("client.profile-name"):
        return None
    if os.environ.get("AWS_ACCESS_KEY_ID") and os.environ.get("AWS_SECRET_ACCESS_KEY"):
        return {}
    if os.environ.get("AWS_PROFILE") or _profile_files():
        return None
    # A web identity, the role of a container, or the role of the machine.
    return {} if any(os.environ.get(name) for name in _GIVEN_TO_PROCESS) or _on_ec2() else None


def _profile_files() -> bool:
    named = ("AWS_SHARED_CREDENTIALS_FILE", "credentials"), ("AWS_CONFIG_FILE", "config")
    try:
        return any(Path(os.environ.get(variable) or Path.home() / ".aws" / name).exists() for variable, name in named)
    except RuntimeError:
        return False


def _on_ec2() -> bool:
    """Whether this machine is one of EC2's. The firmware tells; a request would wait where there is no network."""
    try:
        return "amazon ec2" in Path("/sys/devices/virtual/dmi/id/sys_vendor").read_text().lower()
    except OSError:
        return False


def _own_certificates() -> dict[str, str]:
    bundle = os.environ.get("AWS_CA_BUNDLE")
    try:
        return {"root_certificate": Path(bundle).read_text()} if bundle else {}
    except OSError:
        return {}


def _endpoint(properties: Mapping[str, str], bucket: str) -> dict[str, Any]:
    endpoint = properties.get("s3.endpoint")
    virtual = str(properties.get("s3.force-virtual-addressing", "")).lower() == "true"
    if not endpoint:
        # A certificate for `*.s3...` does not cover a bucket whose name holds a dot.
        return {"virtual_hosted_style_request": "." not in bucket}
    if "://" not in endpoint:
        endpoint = f"https://{endpoint}"
    parts = urlsplit(endpoint)
    host = f"{bucket}.{parts.netloc}" if virtual else parts.netloc
    return {"endpoint": f"{parts.scheme}://{host}{parts.path}".rstrip("/"), "virtual_hosted_style_request": virtual}


@lru_cache(maxsize=256)
def _region(bucket: str, own_endpoint: bool) -> str:
    named = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
    if own_endpoint:
        return named or "us-east-1"
    try:
        return str(resolve_s3_region(bucket))
    except (OSError, TypeError):
        return named or "us-east-1"
