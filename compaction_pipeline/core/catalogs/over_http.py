"""What a caller over HTTP may not put into a catalog's properties: whatever loads code or reads a file on the server.

Only keys of this list are taken, because a later PyIceberg may read files for keys that nobody knows today. A person with a shell on the
server may set all others, by commands or by the file, because that person can read those files anyway.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from urllib.parse import parse_qsl, urlsplit

from compaction_pipeline.core.catalogs.keys import OWN_KEYS
from compaction_pipeline.core.catalogs.problem import Problem
from compaction_pipeline.core.insight.masking import is_secret_key
from compaction_pipeline.core.tables.properties import CATALOG_PREFIX
from compaction_pipeline.core.words import printable

_KEYS = OWN_KEYS | {
    "type",
    "uri",
    "warehouse",
    "prefix",
    "catalog-name",
    "token",
    "credential",
    "scope",
    "audience",
    "resource",
    "oauth2-server-uri",
    "rest.sigv4-enabled",
    "rest.signing-region",
    "rest.signing-name",
    "rest-page-size",
    "snapshot-loading-mode",
    "view-endpoints-supported",
    "namespace-separator",
    "table-name",
    "lock-check-min-wait-time",
    "lock-check-max-wait-time",
    "lock-check-retries",
    "pool_pre_ping",
}
_PREFIXES = (CATALOG_PREFIX, "header.", "s3.", "gcs.", "adls.", "client.", "glue.", "dynamodb.", "hive.", "gcp.bigquery.")
_REACHES_SERVER = re.compile(r"impl|profile|session-kwargs|file|keytab|kerb|cert|bundle|krb5|config|manager|ssl|path$", re.IGNORECASE)
"""Parts of keys that name code, a file, or a section of a file of the server."""
_POSTGRES = ("postgresql", "postgresql+psycopg2")
_PARAMETERS = frozenset({"sslmode", "connect_timeout", "application_name", "target_session_attrs", "options", "keepalives"})
"""Parameters of libpq that read no file. Others name certificates, password files and service files."""
_REMOTE = re.compile(r"(s3|s3a|s3n|gs|gcs|abfs|abfss|wasb|wasbs|hdfs|http|https|oss|cos|cosn)://", re.IGNORECASE)
_WHERE = "only a command or a file on the server may set it"
_ADDRESS = re.compile(r"^(uri|.*[.-](uri|endpoint|host|authority|account-name))$", re.IGNORECASE)
"""Keys that say to whom secrets are sent."""


def problems_over_http(properties: Mapping[str, str], keys: Collection[str]) -> Iterator[Problem]:
    """Yield a problem for each of these keys that a caller over HTTP may not set to the value that it has among the properties."""
    for key in sorted(keys):
        why = _why_not(key, properties.get(key, ""), properties)
        if why is not None:
            yield Problem(printable(key, 100), f"'{printable(key, 100)}' cannot be set over HTTP: {why}; {_WHERE}")


def secrets_that_would_move(before: Mapping[str, str], changed: Mapping[str, str]) -> Iterator[Problem]:
    """Yield a problem for each address that a change over HTTP moves while a secret that was stored for the old one stays.

    Otherwise a caller who may not read a secret could have it sent to a server of his own.
    """
    kept = sorted(key for key in before if is_secret_key(key) and key not in changed)
    moved = sorted(key for key, value in changed.items() if _ADDRESS.match(key) and before.get(key, "") != value)
    if kept:
        for key in moved:
            yield Problem(
                key, f"'{key}' changes while {', '.join(map(repr, kept))} would stay and be sent there: give these anew, or unset them"
            )


def _why_not(key: str, value: str, properties: Mapping[str, str]) -> str | None:
    if key.startswith(CATALOG_PREFIX):
        return None
    if key not in OWN_KEYS and key not in _KEYS and (not key.startswith(_PREFIXES) or _REACHES_SERVER.search(key)):
        return "it is not known to be free of code and of files of the server"
    text = value.strip()
    if text.lower().startswith(("file:", "env:")):
        return "its value names a file or a variable of the server"
    if key == "uri":
        return _why_no_address(text, properties.get("type", "").lower())
    if key == "warehouse" and (text.startswith(("/", ".", "~")) or ("://" in text and not _REMOTE.match(text))):
        return "its value is a folder of the server"
    return None


def _why_no_address(uri: str, kind: str) -> str | None:
    scheme = uri.partition(":")[0].lower()
    if scheme in ("http", "https", "thrift"):
        return None if kind != "sql" else "it is no address of PostgreSQL"
    if scheme not in _POSTGRES:
        return "it is no address of http, https, thrift or postgresql, so it may be a database file of the server"
    try:
        parts = urlsplit(uri)
        host, asked = parts.hostname, {name for name, _ in parse_qsl(parts.query, keep_blank_values=True)}
    except ValueError:
        return "it cannot be read"
    if not host or host.startswith(("/", "%2f")):
        return "it names no host, so it means a socket of the server"
    return None if asked <= _PARAMETERS else f"it has parameters other than {', '.join(sorted(_PARAMETERS))}"
