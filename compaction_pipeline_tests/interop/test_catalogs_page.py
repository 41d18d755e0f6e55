"""The commands that `docs/catalogs.md` shows for a type of catalog are run, with the addresses of the services of these tests."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from compaction_pipeline.cli.main import app
from compaction_pipeline.core.tables.data_file import FileContent
from compaction_pipeline_tests.iceberg.lake import Lake
from compaction_pipeline_tests.real_services.fault_proxy import fault_proxy
from compaction_pipeline_tests.real_services.gates import TOKENS, OAuth2Gate
from compaction_pipeline_tests.real_services.hive_metastore import HiveMetastore
from compaction_pipeline_tests.real_services.lake import PATIENT
from compaction_pipeline_tests.real_services.servers import GlueServer, RestCatalogServer, S3Server
from compaction_pipeline_tests.reference_reader import bag_difference
from compaction_pipeline_tests.written_pages import ROOT

pytestmark = pytest.mark.interop


def commands(section: str) -> list[list[str]]:
    """The arguments of the three commands of a section of the page."""
    text = (ROOT / "docs/catalogs.md").read_text()
    [block] = re.findall(rf"^## {section}\n.*?^```sh\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    found = [shlex.split(line) for line in block.splitlines()]
    assert len(found) == 3
    assert all(words[0] == "compaction-pipeline" for words in found)
    return [words[1:] for words in found]


def run(section: str, folder: Path, writer: Mapping[str, str], product: Mapping[str, str]) -> None:
    """Write `shop.orders` with the properties of the writer, and run the commands of the section with those of the product.

    A property that the page shows gets the product's value, so each must have one. Those that the page does not show are added.
    """
    lake = Lake(folder, properties=writer, namespace="shop", limits=PATIENT)
    table = lake.table("orders", properties={"self-optimizing.minor.trigger.file-count": "2"})
    for first in range(0, 18, 3):
        table.ids(first, first + 1, first + 2)
    table.delete_ids(10)
    before = table.rows()
    answers: list[Any] = []
    for words in commands(section):
        shown = {word.partition("=")[0] for word in words if "=" in word}
        typed = [f"{word.partition('=')[0]}={product[word.partition('=')[0]]}" if "=" in word else word for word in words]
        if words[:2] == ["catalog", "add"]:
            # The catalogs have tables of other tests too.
            more = {"database-filter": "shop", **{key: value for key, value in product.items() if key not in shown}}
            typed += [part for key, value in more.items() for part in ("-p", f"{key}={value}")]
        environment = {"COMPACTION_HOME": str(folder / "home"), "COMPACTION_MERGE_ENGINE": "in-process"}
        answers.append(CliRunner(env=environment).invoke(app, typed))
        assert answers[-1].exit_code == 0, answers[-1].output + answers[-1].stderr
    added, listed, compacted = (answer.output for answer in answers)
    assert "1 table in 1 namespace" in added
    assert "shop.orders" in listed
    # Every warning of the one service that is not what it stands for.
    assert added.count("warning: ") == added.count("warning: 'glue.endpoint' names 127.0.0.1") == (section == "Glue")
    assert bag_difference(table.rows(), before) == ""
    assert len(table.paths(FileContent.DATA)) < 6, compacted


def test_the_commands_for_sql(tmp_path: Path) -> None:
    properties = {"type": "sql", "uri": f"sqlite:///{tmp_path}/catalog.db", "warehouse": f"file://{tmp_path}/wh"}
    writer = {**properties, "init_catalog_tables": "true", "catalog-name": "lake"}
    run("SQL", tmp_path, writer, properties)


def test_the_commands_for_rest(tmp_path: Path, s3: S3Server, rest_catalog: RestCatalogServer) -> None:
    writer = {**rest_catalog.properties(), **s3.properties()}
    with fault_proxy(rest_catalog.port) as proxy:
        proxy.gate = gate = OAuth2Gate("s3cret-of-me")
        login = {"credential": "me:s3cret-of-me", "oauth2-server-uri": f"{proxy.url}{TOKENS}"}
        run("REST", tmp_path, writer, {**writer, "uri": proxy.url, **login})
        assert gate.given
        assert gate.refused == []


def test_the_commands_for_glue(tmp_path: Path, s3: S3Server, glue: GlueServer) -> None:
    properties = {**glue.properties(), **s3.properties()}
    run("Glue", tmp_path, properties, properties)


def test_the_commands_for_hive(tmp_path: Path, metastore: HiveMetastore) -> None:
    properties = {"type": "hive", "warehouse": f"file://{tmp_path}/wh", **metastore.properties()}
    run("Hive", tmp_path, properties, properties)
