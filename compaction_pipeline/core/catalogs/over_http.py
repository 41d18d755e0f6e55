"""What a caller over HTTP may not put into a catalog's properties: whatever loads code or reads a file on the server.

`refused_of_caller` knows references, secrets and the keys that name code and files today. Beside it only keys of a list are taken here,
because a later PyIceberg may read files for keys that nobody knows yet. A person with a shell on the server may set all others, by commands
or by the file: that person can read those files anyway.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from urllib.parse import parse_qsl, urlsplit

from compaction_pipeline.core.catalogs.keys import OWN_KEYS
from compaction_pipeline.core.catalogs.problem import Problem
from compaction_pipeline.core.catalogs.site_files import names_stored_file
from compaction_pipeline.core.secrets.references import refused_of_caller
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
    "auth.type",
    "hdfs.user",
    "hdfs.host",
    "hdfs.port",
    "kerberos.principal",
}
_PREFIXES = ("header.", "s3.", "gcs.", "adls.", "client.", "glue.", "dynamodb.", "hive.", "gcp.bigquery.", "auth.basic.", "auth.oauth2.")
_REACHES_SERVER = re.compile(r"impl|profile|session-kwargs|file|keytab|kerb|cert|bundle|config|manager|ssl|path$", re.IGNORECASE)
"""Parts of keys with those prefixes that name code, a file, or a section of a file of the server."""
_LOGINS_OF_SERVER = ("google", "entra")
"""They send a bearer token of the machine. A signature for AWS is no such secret: it holds for one host and for minutes."""
_TAKES_TOKENS = re.compile(r"gcs\.(service\.host|endpoint)|adls\.(.*authority|account-host)")
_POSTGRES = ("postgresql", "postgresql+psycopg2")
_PARAMETERS = frozenset({"sslmode", "connect_timeout", "application_name", "target_session_attrs", "options", "keepalives"})
"""Parameters of libpq that read no file. Others name certificates, password files and service files."""
_HOST = re.compile(r"[A-Za-z0-9._-]+|[0-9A-Fa-f:.]+")
_STORES = re.compile(r"(s3|s3a|s3n|gs|gcs|abfs|abfss|wasb|wasbs|hdfs|viewfs|http|https|oss|cos|cosn)://", re.IGNORECASE)


def problems_over_http(
    properties: Mapping[str, str], asked: Mapping[str, str | None], held: Mapping[str, str] | None = None
) -> tuple[Problem, ...]:
    """Return a problem for each property that a caller over HTTP may not set so.

    `properties` are those that the catalog would have. `asked` are those that the caller sets, None for one that is unset, and `held` those
    that the catalog has now; None for a new catalog.
    """
    return tuple(_problems(properties, asked, held))


def _problems(properties: Mapping[str, str], asked: Mapping[str, str | None], held: Mapping[str, str] | None) -> Iterator[Problem]:
    # A file that was stored beforehand is none of the server's own.
    of_stored = {key for key, value in asked.items() if names_stored_file(key, (held or {}).get(key, "") if value is None else value)}
    asked = {key: value for key, value in asked.items() if key not in of_stored}
    refused = refused_of_caller(asked, held)
    for key, value in sorted(asked.items()):
        shown = printable(key, 100)
        if key in refused:
            yield Problem(shown, f"'{shown}' {refused[key]}")
        elif value is not None and (held is None or held.get(key) != value):
            why = _why_not(key, value.strip(), properties)
            if why is not None:
                yield Problem(shown, f"'{shown}' {why}; set it on the server's host, with the command line or the file of catalogs")


def _why_not(key: str, value: str, properties: Mapping[str, str]) -> str | None:
    if key.startswith(CATALOG_PREFIX):
        return None
    if key not in _KEYS and (not key.startswith(_PREFIXES) or _REACHES_SERVER.search(key)):
        return "is none of the properties that a request may set, because it may name code or a file of the server"
    if key == "auth.type" and value.lower() in _LOGINS_OF_SERVER:
        return "is a login of the server's own machine, and its token would be sent to any 'uri'"
    if _TAKES_TOKENS.fullmatch(key):
        return "is an address to which a token of the server's own machine may be sent"
    if key == "uri":
        return _why_no_address(value, properties.get("type", "").lower())
    if key == "warehouse" and (value.startswith(("/", ".", "~", "file:")) or ("://" in value and not _STORES.match(value))):
        return "names a folder of the server"
    return None


def _why_no_address(uri: str, kind: str) -> str | None:
    scheme = uri.partition(":")[0].lower()
    if scheme in ("http", "https", "thrift") and kind != "sql":
        return None
    if scheme not in _POSTGRES:
        return "is no address of http, https, thrift or postgresql, so it may be a database file of the server"
    try:
        parts = urlsplit(uri)
        host, parameters = parts.hostname, {name for name, _ in parse_qsl(parts.query, keep_blank_values=True)}
    except ValueError:
        return "cannot be read as an address"
    if not host or not _HOST.fullmatch(host):
        return "names no host, so it may mean a socket of the server"
    return None if parameters <= _PARAMETERS else f"has parameters other than {', '.join(sorted(_PARAMETERS))}"
