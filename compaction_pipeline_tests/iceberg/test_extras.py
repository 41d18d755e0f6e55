"""When a package is missing, the error names the extra of ours that installs it."""

from __future__ import annotations

import sys
from importlib.metadata import metadata

import pytest
from pyiceberg.io import load_file_io

from compaction_pipeline.core.errors import ConfigError
from compaction_pipeline.core.tables.table import CatalogEntry
from compaction_pipeline.iceberg.catalogs.extras import missing_extra
from compaction_pipeline.iceberg.catalogs.open_catalogs import Catalogs
from compaction_pipeline.iceberg.failures import translated


@pytest.mark.parametrize(
    ("kind", "module", "extra"), [("glue", "boto3", "glue"), ("hive", "thrift", "hive"), ("dynamodb", "boto3", "glue")]
)
def test_a_catalog_whose_package_is_missing_names_our_extra(monkeypatch: pytest.MonkeyPatch, kind: str, module: str, extra: str) -> None:
    ours = "compaction_pipeline.iceberg.catalogs"
    hidden = [f"{ours}.hive_{name}" for name in ("catalog", "client", "lock", "swap")]
    _hide(monkeypatch, module, f"pyiceberg.catalog.{kind}", f"{ours}.glue_catalog", *hidden)
    catalogs = Catalogs(lambda name: CatalogEntry(name, {"type": kind, "uri": "thrift://localhost:9083"}))
    with pytest.raises(ConfigError, match=rf"catalog 'lake' needs a package.*pip install 'compaction-pipeline\[{extra}\]'"):
        catalogs.catalog("lake")


@pytest.mark.parametrize(
    ("location", "module", "extra"),
    [("s3://lake/a", "s3fs", "s3"), ("gs://lake/a", "gcsfs", "gcs"), ("abfss://lake@account.dfs.core.windows.net/a", "adlfs", "adls")],
)
def test_a_storage_whose_package_is_missing_names_our_extra(
    monkeypatch: pytest.MonkeyPatch, location: str, module: str, extra: str
) -> None:
    _hide(monkeypatch, module)
    properties = {"py-io-impl": "pyiceberg.io.fsspec.FsspecFileIO", "adls.account-name": "account"}
    match = rf"table t needs a package.*pip install 'compaction-pipeline\[{extra}\]'"
    with pytest.raises(ConfigError, match=match), translated("table t"):
        load_file_io(properties, location).new_input(location).exists()


def test_every_extra_that_an_error_names_is_one_of_ours() -> None:
    ours = set(metadata("compaction-pipeline").get_all("Provides-Extra") or ())
    assert ours == {"glue", "hive", "hdfs", "kafka", "kubernetes", "s3", "gcs", "adls", "server", "profile", "lineage", "notices"}
    for module in ("boto3", "botocore", "thrift", "s3fs", "gcsfs", "adlfs"):
        assert missing_extra(ModuleNotFoundError(f"No module named {module!r}", name=module)) in ours
    assert missing_extra(ModuleNotFoundError("No module named 'other'", name="other")) is None


def _hide(monkeypatch: pytest.MonkeyPatch, module: str, *importers: str) -> None:
    # Python takes a part that is loaded without a look at the whole.
    parts = [loaded for loaded in sys.modules if loaded.startswith(f"{module}.")]
    for importer in (*importers, *parts):
        monkeypatch.delitem(sys.modules, importer, raising=False)
    monkeypatch.setitem(sys.modules, module, None)
