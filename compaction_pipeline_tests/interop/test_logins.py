"""Each login of a REST catalog is shown by a commit: a compaction through Iceberg's own catalog, behind a proxy that demands the login.

Tokens and credentials end in the middle, and no row is lost. `core/tables/proofs.py` names these tests.
"""

from __future__ import annotations

import base64
import ssl
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import trustme
from typer.testing import CliRunner

from compaction_pipeline.cli.main import app
from compaction_pipeline.core.tables.authentication import Authentication, authentication_of, authentication_problems
from compaction_pipeline.core.tables.data_file import FileContent
from compaction_pipeline.core.tables.table import CatalogEntry
from compaction_pipeline.core.work.kinds import CompactionType
from compaction_pipeline.iceberg.catalogs.open_catalogs import Catalogs
from compaction_pipeline_tests.iceberg.lake import LakeTable
from compaction_pipeline_tests.real_services.fault_proxy import Delay, FaultProxy, Status, fault_proxy
from compaction_pipeline_tests.real_services.gates import TOKENS, OAuth2Gate, SigV4Gate, VendedKeys, keys_of_this_machine, once, only_with
from compaction_pipeline_tests.real_services.lake import ServedLake
from compaction_pipeline_tests.reference_reader import bag_difference
from compaction_pipeline_tests.scenarios.soundness import faults

pytestmark = pytest.mark.interop

SECRET = "s3cr3t+/=%&word"
COMMIT = "^POST .*/tables/t$"
OUTPUT = "^PUT .*[.]parquet"


def is_output(method: str, path: str, headers: Mapping[str, str], body: bytes) -> bool:
    return method == "PUT" and ".parquet" in path


def is_commit(method: str, path: str, headers: Mapping[str, str], body: bytes) -> bool:
    return method == "POST" and path.endswith("/tables/t")


def written(lake: ServedLake) -> LakeTable:
    """A table of six small files. Two rows are deleted."""
    table = lake.table()
    inserted = [table.ids(*range(first, first + 3)) for first in range(0, 18, 3)]
    table.delete_positions((inserted[0].path, 1))
    table.delete_ids(10)
    return table


def compacted(lake: ServedLake, table: LakeTable, kind: Authentication) -> None:
    """Compact the table with the product, and check that the login was the expected one and that no row changed."""
    properties = lake.product_properties
    assert authentication_of(properties) is kind
    assert authentication_problems(kind.value, properties) == ()
    before = table.rows()
    outcome = lake.compact(table, CompactionType.FULL)
    assert outcome.committed, outcome.reason
    assert not outcome.failed
    rows_are(table, before)


def rows_are(table: LakeTable, before: Any) -> None:
    assert bag_difference(table.rows(), before) == ""
    assert faults(table.table) == []
    assert len(table.paths(FileContent.DATA)) == 1


def test_a_catalog_without_a_login_gets_no_authorization(served_lake: ServedLake) -> None:
    sent: list[str | None] = []
    served_lake.catalog_proxy.gate = lambda method, path, headers, body: sent.append(headers.get("Authorization"))
    # The catalog gives the keys of the storage with each table.
    keys = VendedKeys(keys_of(served_lake), tells_end=False)
    served_lake.catalog_proxy.rewrite = keys.rewrite
    for key in keys.properties:
        del served_lake.product_properties[key]
    compacted(served_lake, written(served_lake), Authentication.SIMPLE)
    assert sent
    assert set(sent) == {None}


def keys_of(lake: ServedLake) -> dict[str, str]:
    return {key: lake.properties[key] for key in ("s3.access-key-id", "s3.secret-access-key")}


def test_keys_of_the_storage_are_enough(served_lake: ServedLake) -> None:
    compacted(served_lake, written(served_lake), Authentication.AKSK)


def test_basic(served_lake: ServedLake) -> None:
    login = base64.b64encode(f"me:{SECRET}".encode()).decode()
    served_lake.catalog_proxy.gate = only_with(f"Basic {login}")
    served_lake.product_properties |= {"auth.type": "basic", "auth.basic.username": "me", "auth.basic.password": SECRET}
    compacted(served_lake, written(served_lake), Authentication.BASIC)


def test_token(served_lake: ServedLake) -> None:
    served_lake.catalog_proxy.gate = only_with(f"Bearer {SECRET}")
    served_lake.product_properties |= {"token": SECRET}
    compacted(served_lake, written(served_lake), Authentication.TOKEN)


def test_a_token_that_ends_and_is_not_renewed_loses_nothing(served_lake: ServedLake) -> None:
    """Nobody here can renew a token. The merge stays prepared, and is committed once somebody registers a new token."""
    accepted = ["first"]

    def gate(method: str, path: str, headers: Mapping[str, str], body: bytes) -> Status | None:
        return only_with(f"Bearer {accepted[0]}")(method, path, headers, body)

    served_lake.catalog_proxy.gate = gate
    served_lake.product_properties |= {"token": "first"}
    served_lake.s3_proxy.gate = once(is_output, lambda: accepted.__setitem__(0, SECRET))
    table = written(served_lake)
    before = table.rows()
    first = served_lake.compact(table, CompactionType.FULL)
    assert not first.committed
    assert "no permission: HTTP 401" in first.reason
    assert SECRET not in first.reason
    stores = served_lake.services.stores
    stores.catalogs.replace(CatalogEntry("lake", {**served_lake.product_properties, "token": SECRET}))
    outputs = len(served_lake.s3_proxy.requests(OUTPUT))
    outcome = served_lake.compact(table, CompactionType.FULL)
    assert outcome.committed, outcome.reason
    assert len(served_lake.s3_proxy.requests(OUTPUT)) == outputs
    rows_are(table, before)


def test_a_sql_catalog_with_keys_of_the_storage(served_lake: ServedLake) -> None:
    table = written(served_lake)
    served_lake.product_properties = {
        "type": "sql",
        "uri": f"sqlite:///{served_lake.folder}/catalog.db",
        "warehouse": "s3://lakehouse/sql",
        "init_catalog_tables": "true",
        **{key: value for key, value in served_lake.product_properties.items() if key.startswith("s3.")},
    }
    catalog = Catalogs(lambda name: CatalogEntry(name, served_lake.product_properties)).catalog("lake")
    catalog.create_namespace(served_lake.namespace)
    table.table = catalog.register_table((served_lake.namespace, "t"), table.table.refresh().metadata_location)
    assert authentication_of(served_lake.product_properties) is Authentication.AKSK
    before = table.rows()
    assert served_lake.compact(table, CompactionType.FULL).committed
    assert bag_difference(table.rows(), before) == ""
    assert faults(table.table) == []
    assert len(list(table.table.scan().plan_files())) == 1


def oauth2(lake: ServedLake, nested: bool, **gate: Any) -> OAuth2Gate:
    """A gate that demands tokens, and the product's login for it, in one of its two forms."""
    made = OAuth2Gate(SECRET, **gate)
    lake.catalog_proxy.gate = made
    url = f"{lake.catalog_proxy.url}{TOKENS}"
    login = {"auth.type": "oauth2", "auth.oauth2.client_id": "me", "auth.oauth2.client_secret": SECRET, "auth.oauth2.token_url": url}
    lake.product_properties |= login if nested else {"credential": f"me:{SECRET}", "oauth2-server-uri": url}
    return made


def test_oauth2_renews_its_tokens_before_they_end(served_lake: ServedLake) -> None:
    gate = oauth2(served_lake, nested=True, life_seconds=4)
    # The merge takes longer than a token lives.
    served_lake.s3_proxy.add(OUTPUT, Delay(4.1), times=1)
    compacted(served_lake, written(served_lake), Authentication.OAUTH2)
    assert len(gate.given) >= 2
    assert gate.refused == []


def test_oauth2_with_a_credential(served_lake: ServedLake) -> None:
    gate = oauth2(served_lake, nested=False)
    compacted(served_lake, written(served_lake), Authentication.OAUTH2)
    assert len(gate.given) == 1
    assert gate.refused == []


@pytest.mark.parametrize("code", [401, 419])
def test_oauth2_renews_a_token_that_ends_unannounced_during_a_merge(code: int, served_lake: ServedLake) -> None:
    gate = oauth2(served_lake, True, tells_end=False, code=code)
    served_lake.s3_proxy.gate = once(is_output, gate.end_tokens)
    compacted(served_lake, written(served_lake), Authentication.OAUTH2)
    assert len(gate.given) == 2
    assert len(gate.refused) == 1


def test_oauth2_renews_a_token_that_ends_right_before_the_commit(served_lake: ServedLake) -> None:
    gate = oauth2(served_lake, True)

    ends = once(is_commit, gate.end_tokens)

    def last_moment(method: str, path: str, headers: Mapping[str, str], body: bytes) -> Status | None:
        return ends(method, path, headers, body) or gate(method, path, headers, body)

    served_lake.catalog_proxy.gate = last_moment
    compacted(served_lake, written(served_lake), Authentication.OAUTH2)
    assert [one.split("/")[-1] for one in gate.refused] == ["t"]
    assert len(gate.given) == 2


def test_sigv4(served_lake: ServedLake) -> None:
    gate = SigV4Gate({"AKCATALOG": SECRET}, "lake")
    served_lake.catalog_proxy.gate = gate
    served_lake.product_properties |= {
        "rest.sigv4-enabled": "true",
        "rest.signing-region": "eu-central-1",
        "rest.signing-name": "lake",
        "client.access-key-id": "AKCATALOG",
        "client.secret-access-key": SECRET,
    }
    compacted(served_lake, written(served_lake), Authentication.SIGV4)
    assert len(gate.let_in) >= 3


def test_sigv4_with_credentials_of_the_machine_that_end_during_a_merge(served_lake: ServedLake, monkeypatch: pytest.MonkeyPatch) -> None:
    gate = SigV4Gate({})
    served_lake.catalog_proxy.gate = gate
    served_lake.product_properties |= {"rest.sigv4-enabled": "true", "rest.signing-region": "eu-central-1"}
    table = written(served_lake)
    with keys_of_this_machine(gate, SECRET, monkeypatch):
        compacted(served_lake, table, Authentication.SIGV4)
    assert len(set(gate.let_in)) >= 2


@pytest.fixture
def tls(served_lake: ServedLake, tmp_path: Path) -> Iterator[FaultProxy]:
    """A proxy that demands a certificate of the client. The product has one."""
    authority = trustme.CA()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    authority.configure_trust(context)
    context.verify_mode = ssl.CERT_REQUIRED
    client = authority.issue_cert("me@example.org")
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    client.private_key_pem.write_to_path(tmp_path / "key.pem")
    client.cert_chain_pems[0].write_to_path(tmp_path / "cert.pem")
    with fault_proxy(int(served_lake.properties["uri"].rpartition(":")[2]), context) as proxy:
        served_lake.product_properties |= {
            "uri": proxy.url,
            "ssl.cabundle": str(tmp_path / "ca.pem"),
            "ssl.client.cert": str(tmp_path / "cert.pem"),
            "ssl.client.key": str(tmp_path / "key.pem"),
        }
        yield proxy


def test_certificates_of_the_client(tls: FaultProxy, served_lake: ServedLake) -> None:
    compacted(served_lake, written(served_lake), Authentication.TLS)
    assert tls.requests(COMMIT)


def test_certificates_stand_beside_a_token_that_is_renewed_over_them(tls: FaultProxy, served_lake: ServedLake) -> None:
    gate = oauth2(served_lake, True)
    tls.gate = gate
    served_lake.product_properties["auth.oauth2.token_url"] = f"{tls.url}{TOKENS}"
    served_lake.s3_proxy.gate = once(is_output, gate.end_tokens)
    compacted(served_lake, written(served_lake), Authentication.OAUTH2)
    assert len(gate.given) == 2


@pytest.mark.parametrize("tells_end", [True, False])
def test_vended_credentials_that_end_during_a_merge_come_anew(tells_end: bool, served_lake: ServedLake) -> None:
    table = written(served_lake)
    before = table.rows()
    keys = VendedKeys(keys_of(served_lake), tells_end)
    for key in keys.properties:
        del served_lake.product_properties[key]
    served_lake.catalog_proxy.rewrite = keys.rewrite
    ends = once(is_output, keys.end)
    served_lake.s3_proxy.gate = lambda *request: ends(*request) or keys.gate(*request)
    outcome = served_lake.compact(table, CompactionType.FULL)
    assert keys.refused
    assert outcome.committed, outcome.reason
    assert not outcome.failed
    rows_are(table, before)


def test_a_failing_login_shows_no_secret(served_lake: ServedLake) -> None:
    """Each wrong login is told, and what was sent is not."""
    served_lake.catalog_proxy.gate = OAuth2Gate("another secret")
    url = f"{served_lake.catalog_proxy.url}{TOKENS}"
    logins = [
        {"token": SECRET},
        {"auth.type": "basic", "auth.basic.username": "me", "auth.basic.password": SECRET},
        {"credential": f"me:{SECRET}", "oauth2-server-uri": url},
        {"auth.type": "oauth2", "auth.oauth2.client_id": "me", "auth.oauth2.client_secret": SECRET, "auth.oauth2.token_url": url},
        {"rest.sigv4-enabled": "true", "rest.signing-region": "r", "client.access-key-id": "AK", "client.secret-access-key": SECRET},
    ]
    sent = {SECRET, SECRET[:9], base64.b64encode(f"me:{SECRET}".encode()).decode()}
    for login in logins:
        properties = [f"-p{key}={value}" for key, value in {**served_lake.product_properties, **login}.items()]
        result = CliRunner(env={"COMPACTION_HOME": str(served_lake.home)}).invoke(app, ["catalog", "add", "lake", *properties])
        said = f"{result.output} {result.stderr} {result.exception!r}"
        assert result.exit_code != 0, login
        assert "no permission" in said, said
        assert not any(secret in said for secret in sent), said
