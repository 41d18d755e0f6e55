"""More than forty definitions of catalogs with mistakes, and the keys of all problems that each door must tell."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from compaction_pipeline.core.catalogs.keys import FIELDS, GROUP

SECRET = "hunter2+/=%&hunter2"
"""It stands where a careless message would repeat it."""


@dataclass(frozen=True)
class Bad:
    """A definition with mistakes, the keys of its problems, and words that the answer must have."""

    name: str
    given: Any
    keys: frozenset[str]
    said: str = ""

    @property
    def is_of_texts(self) -> bool:
        """Whether a command line can give it: its name, properties and fields are texts."""
        if not isinstance(self.given, dict) or not isinstance(self.given.get("name"), str) or not set(self.given) <= _OF_COMMANDS:
            return False
        properties = self.given.get("properties", {})
        if not isinstance(properties, dict) or not isinstance(self.given.get("observe"), bool | None):
            return False
        if any(one in self.given and key in properties for one, key in FIELDS.items()):
            return False
        texts = [*properties.values(), *(self.given[one] for one in FIELDS if one in self.given)]
        return all(isinstance(text, str) and "\0" not in text for text in texts) and all(
            isinstance(key, str) and key.strip() and key == key.strip() and "=" not in key for key in properties
        )

    @property
    def arguments(self) -> list[str]:
        """The arguments of `catalog add`."""
        pairs = {**self.given.get("properties", {}), **{key: self.given[one] for one, key in FIELDS.items() if one in self.given}}
        group = pairs.pop(GROUP, None)
        options = [word for key, value in pairs.items() for word in ("-p", f"{key}={value}")]
        options += ["--observe"] if self.given.get("observe") else []
        return [*options, *(["--group", group] if group is not None else []), "--", self.given["name"]]


_OF_COMMANDS = {"name", "properties", "observe", *FIELDS}
_REST = {"name": "bad", "type": "rest"}
_URI = {"uri": "https://c.example.com"}


def _rest(properties: dict[Any, Any] | None = None, **more: Any) -> dict[str, Any]:
    return {**_REST, "properties": {**_URI, **(properties or {})}, **more}


def _bad(name: str, given: Any, *keys: str, said: str = "") -> Bad:
    return Bad(name, given, frozenset(keys), said)


BAD = (
    _bad("no mapping", ["lake"], "", said="must be a mapping"),
    _bad("nothing", None, "", said="must be a mapping"),
    _bad("empty", {}, "name", "type"),
    _bad("name is a number", {**_rest(), "name": 7}, "name", said="a number"),
    _bad("name with a slash", {**_rest(), "name": "../../etc"}, "name", said="letters, digits"),
    _bad("name with a dot", {**_rest(), "name": "my.lake"}, "name"),
    _bad("empty name", {**_rest(), "name": ""}, "name"),
    _bad("name of 3,000 letters", {**_rest(), "name": "x" * 3_000}, "name", said="1 to 100 letters"),
    _bad("name with a line break", {**_rest(), "name": "a\nb"}, "name"),
    _bad("name of other letters", {**_rest(), "name": "seeÜ"}, "name"),
    _bad("unknown type", {**_rest(), "type": "rset"}, "type", said="must be one of rest"),
    _bad("type of another kind", {**_rest(), "type": ["rest"]}, "type", said="a list"),
    _bad("in memory", {"name": "bad", "type": "in-memory"}, "type", said="end with the process"),
    _bad("rest without uri", {"name": "bad", "type": "rest"}, "uri", said="'uri' is missing"),
    _bad("rest at a file", {**_REST, "properties": {"uri": "/data/catalog"}}, "uri", said="http://"),
    _bad("hive at http", {"name": "bad", "type": "hive", "properties": _URI}, "uri", said="thrift://"),
    _bad("no type and no scheme", {"name": "bad", "properties": {"uri": "catalog.example.com"}}, "type", said="'type' is missing"),
    _bad("dynamodb that is to be compacted", {"name": "bad", "type": "dynamodb"}, "observe", said="cannot commit"),
    _bad(
        "bigquery without project",
        {"name": "bad", "type": "bigquery"},
        "observe",
        "gcp.bigquery.project-id",
        said="cannot commit",
    ),
    _bad("a reference in capitals", _rest({"token": "ENV:LAKE_TOKEN"}), "token", said="in small letters"),
    _bad("a reference without a path", _rest({"token": "file:"}), "token", said="a name behind it"),
    _bad("a filter by reference", _rest(table_filter="env:FILTER"), "table-filter", said="may be no reference"),
    _bad("the name among the properties", _rest({"name": "other"}), "name", said="catalog-name"),
    _bad("a control character", _rest({"s3.region": "a\x1b[31m"}), "s3.region", said="no text"),
    _bad("a mask written back", _rest({"token": "***"}), "token", said="stands for a secret"),
    _bad("a mask in a URL", {"name": "bad", "type": "sql", "properties": {"uri": "postgresql://u:***@h/db"}}, "uri", said="stands for"),
    _bad("two ways to open it", _rest({"py-catalog-impl": "a.b.C"}), "type", said="leave one of them out"),
    _bad("observe in words", _rest(observe="yes"), "observe", said="true or false"),
    _bad("observe as a number", _rest(observe=1), "observe"),
    _bad("properties are a list", {**_REST, "properties": ["uri"]}, "properties", "uri", said="a list"),
    _bad("a number in properties", _rest({"s3.connect-timeout": 60}), "s3.connect-timeout", said="write it in quotes"),
    _bad("a switch in properties", _rest({"rest.sigv4-enabled": True}), "rest.sigv4-enabled"),
    _bad("null in properties", _rest({"warehouse": None}), "warehouse"),
    _bad("a mapping in properties", _rest({"auth": {"type": "basic", "password": SECRET}}), "auth", said="a mapping"),
    _bad("a key of 300 letters", _rest({"k" * 300: "v"}), f"{'k' * 100}…", said="at most 200"),
    _bad("a value of 30,000 letters", _rest({"scope": "v" * 30_000}), "scope", said="at most 20,000"),
    _bad("a key with blanks", _rest({" warehouse": "s3://b"}), " warehouse"),
    _bad("a header with a line break", _rest({"header.x": f"{SECRET}\r\nx: y"}), "header.x", said="line break"),
    _bad("unknown field", _rest(colour="red"), "colour", said="the fields are name"),
    _bad("misspelt key", _rest({"tabel-filter": "a"}), "tabel-filter", said="do you mean 'table-filter'"),
    _bad("filter that looks ahead", _rest(table_filter="(?!tmp).*"), "table-filter", said="RE2"),
    _bad("filter that looks back", _rest(table_filter=r"(a)\1"), "table-filter"),
    _bad("filter with an open bracket", _rest(database_filter="shop["), "database-filter", said="missing ]"),
    _bad("filter that needs too much memory", _rest(table_filter="((a{100}){100}){100}"), "table-filter"),
    _bad("empty filter", _rest(table_filter=""), "table-filter", said="would leave out every table"),
    _bad("filter of 2,000 letters", _rest(database_filter="a" * 2_000), "database-filter", said="at most 1,000"),
    _bad("filter as a list", _rest(table_filter=["a", "b"]), "table_filter", said="a list"),
    _bad("filter as field and key", _rest({"table-filter": "a"}, table_filter="b"), "table_filter", said="give one of them"),
    _bad("mixed hive", _rest(formats="iceberg,MIXED_HIVE"), "table-formats", said="does not compact"),
    _bad("paimon, hudi and delta", _rest(formats="paimon,hudi,delta"), "table-formats", said="'delta'"),
    _bad("unknown format", _rest(formats="csv"), "table-formats"),
    _bad("formats as numbers", _rest(formats=[1]), "formats"),
    _bad("no group of this name", _rest(group="nobodys"), GROUP, said="group add nobodys"),
    _bad("no name of a group", _rest(group="a b"), GROUP),
    _bad("unknown authentication", _rest(authentication="ldap"), "authentication", said="must be one of simple"),
    _bad(
        "basic without password", _rest({"auth.basic.username": "me"}, authentication="basic"), "authentication", said="'auth.type' must be"
    ),
    _bad("kerberos for dynamodb", {"name": "bad", "type": "dynamodb", "observe": True, "authentication": "kerberos"}, "authentication"),
    _bad("two logins", _rest({"token": SECRET, "credential": f"me:{SECRET}"}), "authentication", said="keep one of the two"),
    _bad(
        "property of tables that nobody knows", _rest({"table.self-optimizing.qota": "1"}), "table.self-optimizing.qota", said="do you mean"
    ),
    _bad("property of tables out of bounds", _rest({"table.self-optimizing.quota": "lots"}), "table.self-optimizing.quota"),
    _bad("property of tables twice", _rest({"table.a": "1"}, table_properties={"a": "2"}), "table.a", said="given twice"),
    _bad("property of tables without prefix", _rest({"self-optimizing.enabled": "false"}), "self-optimizing.enabled", said="write 'table."),
    _bad(
        "all at once",
        {
            "name": "a/b",
            "type": "rset",
            "properties": {"uri": "x", "port": 8, "token": f"{SECRET}\n"},
            "observe": "no",
            "table_filter": "(",
            "group": "g g",
        },
        *("name", "type", "port", "observe", "table-filter", GROUP, "authentication"),
    ),
)
