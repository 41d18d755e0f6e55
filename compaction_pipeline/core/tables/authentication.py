"""The ten ways in which a catalog may be logged in to, the properties that each needs, and which are refused together.

The keys are PyIceberg's own. What PyIceberg nests (`auth`, `ssl`) is written with dots, `auth.basic.username`. A definition may name its
authentication; the properties decide it, so a name only says what they must be. No problem repeats the value of a secret.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from enum import Enum

from compaction_pipeline.core.tables.catalog_types import catalog_type_of


class Authentication(Enum):
    """How a catalog, or the storage of its tables, knows who asks."""

    SIMPLE = "simple"
    """It is not asked, or the uri holds the login; the name of a user may be told."""
    BASIC = "basic"
    KERBEROS = "kerberos"
    AKSK = "aksk"
    """An access key with its secret, for Glue and for S3."""
    SIGV4 = "sigv4"
    """A REST catalog whose requests are signed for AWS."""
    TOKEN = "token"
    """A bearer token, which this program cannot renew."""
    OAUTH2 = "oauth2"
    """Tokens that this program gets with a client's secret, and renews before they end."""
    GOOGLE = "google"
    ENTRA = "entra"
    TLS = "tls"
    """A certificate of the client."""


@dataclass(frozen=True, slots=True)
class Login:
    """The properties of one authentication.

    One of `ways` must be there as a whole, and `fixed` must have these values. `takes` may be there too. `catalogs` are the types of
    catalogs that know it.
    """

    catalogs: frozenset[str]
    ways: tuple[tuple[str, ...], ...] = ((),)
    fixed: Mapping[str, str] | None = None
    takes: tuple[str, ...] = ()


_ALL = frozenset({"sql", "rest", "glue", "hive", "dynamodb", "bigquery"})
_REST = frozenset({"rest"})
_PAIRS = tuple((f"{prefix}.access-key-id", f"{prefix}.secret-access-key") for prefix in ("glue", "dynamodb", "client", "s3"))
SIGNING = "rest.sigv4-enabled"
"""Whether requests to a REST catalog are signed for AWS."""

LOGINS: Mapping[Authentication, Login] = {
    Authentication.SIMPLE: Login(_ALL, takes=("hdfs.user", "auth.type")),
    Authentication.BASIC: Login(_REST, (("auth.basic.username", "auth.basic.password"),), {"auth.type": "basic"}),
    Authentication.KERBEROS: Login(
        frozenset({"rest", "hive", "sql"}),
        (("kerberos.principal", "kerberos.keytab"),),
        takes=("kerberos.krb5-conf", "hive.kerberos-authentication", "hive.kerberos-service-name"),
    ),
    Authentication.AKSK: Login(_ALL - {"bigquery"}, _PAIRS, takes=("glue.session-token", "client.session-token", "s3.session-token")),
    Authentication.SIGV4: Login(_REST, fixed={SIGNING: "true"}, takes=("rest.signing-region", "rest.signing-name")),
    Authentication.TOKEN: Login(_REST, (("token",),)),
    Authentication.OAUTH2: Login(
        _REST,
        (("credential",), ("auth.oauth2.client_id", "auth.oauth2.client_secret", "auth.oauth2.token_url")),
        takes=(
            *("auth.type", "oauth2-server-uri", "scope", "audience", "resource"),
            *("auth.oauth2.scope", "auth.oauth2.refresh_margin", "auth.oauth2.expires_in"),
        ),
    ),
    Authentication.GOOGLE: Login(_REST, fixed={"auth.type": "google"}, takes=("auth.google.credentials_path", "auth.google.scopes")),
    Authentication.ENTRA: Login(
        _REST, fixed={"auth.type": "entra"}, takes=("auth.entra.scopes", "auth.entra.managed_identity_client_id", "auth.entra.authority")
    ),
    Authentication.TLS: Login(_REST, (("ssl.client.cert",),), takes=("ssl.client.key", "ssl.cabundle")),
}
"""What each authentication needs. Certificates (`ssl.…`) and the keys of a storage (`s3.…`, `client.…`) may stand beside every other."""

AUTH_TYPES = {
    "noop": Authentication.SIMPLE,
    "basic": Authentication.BASIC,
    "oauth2": Authentication.OAUTH2,
    "google": Authentication.GOOGLE,
    "entra": Authentication.ENTRA,
}
"""The values of 'auth.type', which are PyIceberg's."""

_BESIDE = frozenset({Authentication.AKSK, Authentication.TLS, Authentication.KERBEROS})
"""These may stand beside another authentication: they concern the storage, or the connection."""

_OF_JAVA = {
    "rest.auth.type": "auth.type",
    "rest.auth.basic.username": "auth.basic.username",
    "rest.auth.basic.password": "auth.basic.password",
    "rest.auth.sigv4.delegate-auth-type": SIGNING,
}
AUTH_KEYS = ("auth.", "token", "credential", "oauth2-server-uri", "scope", "audience", "resource", SIGNING)
"""The beginnings of the keys that decide which login a REST catalog gets."""
_PREFIXES = ("auth.", "ssl.", "kerberos.")
_KNOWN = frozenset({"auth.type", *(key for login in LOGINS.values() for key in (*login.takes, *(k for way in login.ways for k in way)))})
_SECONDS = ("auth.oauth2.refresh_margin", "auth.oauth2.expires_in")
_URLS = ("auth.oauth2.token_url", "oauth2-server-uri")
_PRINCIPAL = re.compile(r"[^@/\s]+(/[^@/\s]+)?@[^@/\s]+")


def authentication_of(properties: Mapping[str, str]) -> Authentication:
    """Return the authentication that these properties mean. Without any, it is SIMPLE."""
    found = _used(properties)
    return next((one for one in found if one not in _BESIDE), found[0] if found else Authentication.SIMPLE)


def authentication_problems(named: str | None, properties: Mapping[str, str]) -> tuple[str, ...]:
    """Return a sentence for each thing that is wrong with the login of a catalog. Empty when nothing is.

    `named` is the authentication that a definition names, and None when it names none.
    """
    known = [one.value for one in Authentication]
    if named is not None and named not in known:
        return (f"'authentication' is {named!r} but must be one of {', '.join(known)}",)
    kind = authentication_of(properties) if named is None else Authentication(named)
    return tuple(dict.fromkeys((*_of_kind(kind, properties), *_together(kind, properties), *_of_values(properties), *_unknown(properties))))


def _used(properties: Mapping[str, str]) -> list[Authentication]:
    """Return every authentication of which a property is there, those of the catalog before those of storage and connection."""
    found = []
    by_type = AUTH_TYPES.get(properties.get("auth.type", ""))
    if by_type is not None:
        found.append(by_type)
    if properties.get(SIGNING, "").lower() == "true":
        found.append(Authentication.SIGV4)
    for one in (Authentication.OAUTH2, Authentication.TOKEN, Authentication.KERBEROS, Authentication.TLS, Authentication.AKSK):
        if one not in found and any(key in properties for way in LOGINS[one].ways for key in way):
            found.append(one)
    return found


def _of_kind(kind: Authentication, properties: Mapping[str, str]) -> Iterator[str]:
    login, catalog = LOGINS[kind], catalog_type_of(properties)
    if catalog and catalog in _ALL and catalog not in login.catalogs:
        yield f"'authentication' is {kind.value!r}, which only {_either(sorted(login.catalogs))} catalogs know; this is {catalog}"
        return
    for key, value in (login.fixed or {}).items():
        if properties.get(key, "").lower() != value:
            yield f"'{key}' must be {value!r} when 'authentication' is {kind.value!r}"
    missing = [[key for key in way if not properties.get(key)] for way in login.ways]
    if all(missing):
        begun = [keys for way, keys in zip(login.ways, missing, strict=True) if len(keys) < len(way)]
        lacking = begun or missing
        yield f"{kind.value!r} needs {_either([' and '.join(map(repr, keys)) for keys in lacking])}"
    if kind is Authentication.OAUTH2 and "auth.oauth2.client_id" in properties and properties.get("auth.type") != "oauth2":
        yield "'auth.type' must be 'oauth2' when 'auth.oauth2.client_id' is set"


def _together(kind: Authentication, properties: Mapping[str, str]) -> Iterator[str]:
    """Say which logins exclude each other: one would be sent, and nobody would know which."""
    used = [one for one in _used(properties) if one not in _BESIDE]
    main = used[0] if used and kind in _BESIDE else kind
    for other in used:
        if other is not main:
            keys = _all([key for key in _keys(other) if key in properties])
            yield f"'authentication' is {main.value!r}, but there is {keys} of {other.value!r}: keep one of the two"
    if "credential" in properties and "auth.oauth2.client_id" in properties:
        yield "'credential' and 'auth.oauth2.client_id' are two logins of 'oauth2': keep one of the two"
    header = next((key for key in properties if key.lower() == "header.authorization"), None)
    if header is not None and used:
        yield f"'{header}' is overwritten by {used[0].value!r}: remove it"
    for pair in _PAIRS:
        present = [key for key in pair if properties.get(key)]
        if len(present) == 1:
            yield f"'{present[0]}' needs {next(key for key in pair if key not in present)!r} too"
    if properties.get("ssl.client.key") and not properties.get("ssl.client.cert"):
        yield "'ssl.client.key' needs 'ssl.client.cert' too"


def _of_values(properties: Mapping[str, str]) -> Iterator[str]:
    by_type = properties.get("auth.type")
    if by_type is not None and by_type not in AUTH_TYPES:
        yield f"'auth.type' is {by_type!r} but must be one of {', '.join(AUTH_TYPES)}"
    for key in _SECONDS:
        if (value := properties.get(key)) is not None and not (value.isascii() and value.isdigit() and int(value) > 0):
            yield f"'{key}' is {value!r} but must be a whole number of seconds above 0"
    for key in _URLS:
        if (value := properties.get(key)) is not None and not re.match(r"https?://[^/\s]+", value, re.IGNORECASE):
            yield f"'{key}' must begin with http:// or https:// and name a host"
    if (value := properties.get(SIGNING)) is not None and value.lower() not in ("true", "false"):
        yield f"'{SIGNING}' is {value!r} but must be true or false"
    if (value := properties.get("kerberos.principal")) is not None and not _PRINCIPAL.fullmatch(value):
        yield f"'kerberos.principal' is {value!r} but must be name@REALM or name/host@REALM"
    for key in ("token", "credential", "auth.basic.username", "auth.basic.password", "auth.oauth2.client_secret"):
        if (value := properties.get(key)) is not None and (value != value.strip() or re.search(r"[\r\n]", value)):
            yield f"'{key}' begins or ends with a blank, or has a line break: remove that"


def _unknown(properties: Mapping[str, str]) -> Iterator[str]:
    for key in sorted(properties):
        if key in _OF_JAVA:
            yield f"'{key}' is a key of Iceberg's Java library: write '{_OF_JAVA[key]}'"
        elif key.startswith(_PREFIXES) and key not in _KNOWN:
            near = get_close_matches(key, sorted(_KNOWN), 1)
            yield f"there is no property '{key}'" + (f"; do you mean '{near[0]}'?" if near else "")


def _keys(kind: Authentication) -> list[str]:
    login = LOGINS[kind]
    return [*(login.fixed or ()), *(key for way in login.ways for key in way), *(("auth.type",) if kind is Authentication.OAUTH2 else ())]


def _either(texts: list[str]) -> str:
    return " or ".join(texts)


def _all(keys: list[str]) -> str:
    return " and ".join(f"'{key}'" for key in keys)
