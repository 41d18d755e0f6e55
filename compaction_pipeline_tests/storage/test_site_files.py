"""Site files are stored encrypted, once for each content, and as long as a catalog names them."""

from __future__ import annotations

import base64
from dataclasses import replace

import pytest
from cryptography.fernet import Fernet
from sqlalchemy import text

from compaction_pipeline.core.catalogs.site_files import SiteFile, SiteFileKind
from compaction_pipeline.core.errors import ConfigError, NotFoundError
from compaction_pipeline.core.tables.table import CatalogEntry
from compaction_pipeline.storage.engine import open_state, reading
from compaction_pipeline.storage.sealing import GivenKeys
from compaction_pipeline.storage.stores import open_stores
from compaction_pipeline_tests.builders import NOW

CONTENT = b"\x05\x02 the keys of a principal"
FILE = SiteFile("keytab-1", SiteFileKind.KEYTAB, len(CONTENT), NOW)


def test_a_file_is_stored_encrypted_until_nothing_names_it(state_url: str) -> None:
    keys = GivenKeys() if state_url.startswith("sqlite") else GivenKeys(Fernet.generate_key().decode())
    stores = open_stores(state_url, keys=keys)
    files = stores.site_files
    assert files.files() == ()
    assert files.add(FILE, CONTENT) == FILE
    assert files.add(replace(FILE, added_at=NOW.replace(year=2030)), CONTENT) == FILE
    assert (files.files(), files.content("keytab-1")) == ((FILE,), CONTENT)
    with reading(open_state(state_url)) as connection:
        row = str(connection.execute(text("SELECT * FROM compaction_site_file")).all())
    assert base64.b64encode(CONTENT).decode()[:12] not in row
    assert "principal" not in row
    if state_url.startswith("sqlite"):
        assert stores.rotate_key() == 1
    others = open_stores(state_url, keys=keys)
    assert others.site_files.content("keytab-1") == CONTENT
    stores.catalogs.add(CatalogEntry("lake", {"kerberos.keytab": "site:keytab-1"}))
    with pytest.raises(ConfigError, match="catalogs name it: lake"):
        files.remove("keytab-1")
    stores.catalogs.remove("lake")
    files.remove("keytab-1")
    assert files.files() == ()
    for lost in (lambda: files.remove("keytab-1"), lambda: files.content("keytab-1")):
        with pytest.raises(NotFoundError, match="no file 'keytab-1'"):
            lost()


@pytest.mark.postgres
def test_postgresql_without_a_key_takes_no_file(postgres_url: str) -> None:
    stores = open_stores(postgres_url)
    with pytest.raises(ConfigError, match="COMPACTION_SECRET_KEY"):
        stores.site_files.add(FILE, CONTENT)
    assert stores.site_files.files() == ()
