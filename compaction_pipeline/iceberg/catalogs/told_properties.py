"""Decides what a table or a server may tell about how files are opened.

PyIceberg follows whatever stands there, and hands it the secrets of the catalog. Whoever may set a property of one table is not trusted
with these, and a server names neither code nor files of this host.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from pyiceberg.io import FileIO
from pyiceberg.typedef import EMPTY_DICT, Properties

_OF_HOST = re.compile(
    r"py-|.*impl$|.*credential[-_.]process|ssl\.|auth\.|oauth2-server-uri$|rest\.sigv4-enabled$|kerberos\.|hdfs\.(user|kerb|conf|krb5)"
    r"|.*profile[-_.]?name$|.*(credentials?|key|token|secrets?|cert)[-_.]?(path|file)$|gcs\.(service\.host|endpoint)$"
    r"|adls\.(.*authority|account-host)$",
    re.IGNORECASE,
)
"""Code to load, files and logins of this host, and hosts to which its tokens go. Only a definition sets these."""
_OF_STORAGE = re.compile(r"(s3|gcs|adls|hdfs|client|glue|oss|hf|wasb|abfs|file|pyarrow)\.", re.IGNORECASE)


def told_by_server(answered: Mapping[str, Any], own: Mapping[str, Any] = EMPTY_DICT) -> dict[str, Any]:
    """The properties that a server may tell, with those of the definition that it may not."""
    return {**{k: v for k, v in answered.items() if not _OF_HOST.match(k)}, **{k: v for k, v in own.items() if _OF_HOST.match(k)}}


class NothingOfTables:
    """A catalog whose tables do not say how their files are opened."""

    def _load_file_io(self, properties: Properties = EMPTY_DICT, location: str | None = None) -> FileIO:
        kept = {key: value for key, value in told_by_server(properties).items() if not _OF_STORAGE.match(key)}
        return super()._load_file_io(kept, location)  # type: ignore[misc,no-any-return]
