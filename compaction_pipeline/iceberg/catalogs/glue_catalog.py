"""PyIceberg's Glue catalog with four rules of our own.

- No request waits for ever, and reads are sent again a bounded number of times.
- The request of a commit is sent once. PyIceberg's client sends it again up to nine times, and then no answer proves anything.
- Right before the swap the table is read once more. Another version, or another metadata file, is a lost race. Glue itself compares the
  version; other services with its API may not, and would take the update of another writer away without a word.
- What Glue keeps of a table beside Iceberg (owner, retention, description) stays. PyIceberg's update leaves it out.

This module needs boto3, which is installed only where Glue is used. So `glue_tables.py` imports it when a catalog is opened.
"""

from __future__ import annotations

from typing import Any

import boto3
from botocore.config import Config
from pyiceberg.catalog import METADATA_LOCATION, PREVIOUS_METADATA_LOCATION
from pyiceberg.catalog import glue as keys
from pyiceberg.catalog.glue import GlueCatalog
from pyiceberg.exceptions import CommitFailedException, NoSuchTableError
from pyiceberg.io import AWS_ACCESS_KEY_ID, AWS_PROFILE_NAME, AWS_REGION, AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN
from pyiceberg.utils.properties import get_first_property_value, property_as_bool

from compaction_pipeline.iceberg.catalogs.rest_catalog import RequestLimits
from compaction_pipeline.iceberg.catalogs.told_properties import NothingOfTables

_RETRIES = 5
"""How often a read is sent again, if the catalog's properties do not say it."""
_KEPT = ("Owner", "Description", "Retention")
"""What is kept of a table where an update does not name it."""


class BoundedGlueCatalog(NothingOfTables, GlueCatalog):
    """A Glue catalog that follows the rules of this module. It raises the same errors as PyIceberg's, and those of botocore."""

    def __init__(self, name: str, limits: RequestLimits, **properties: Any) -> None:
        session = boto3.Session(
            profile_name=get_first_property_value(properties, keys.GLUE_PROFILE_NAME, AWS_PROFILE_NAME),
            region_name=get_first_property_value(properties, keys.GLUE_REGION, AWS_REGION),
            aws_access_key_id=get_first_property_value(properties, keys.GLUE_ACCESS_KEY_ID, AWS_ACCESS_KEY_ID),
            aws_secret_access_key=get_first_property_value(properties, keys.GLUE_SECRET_ACCESS_KEY, AWS_SECRET_ACCESS_KEY),
            aws_session_token=get_first_property_value(properties, keys.GLUE_SESSION_TOKEN, AWS_SESSION_TOKEN),
        )

        def client(seconds: float, attempts: int) -> Any:
            mode = properties.get(keys.GLUE_RETRY_MODE, keys.STANDARD_RETRY_MODE)
            config = Config(
                connect_timeout=limits.connect_seconds, read_timeout=seconds, retries={"total_max_attempts": attempts, "mode": mode}
            )
            made = session.client("glue", endpoint_url=properties.get(keys.GLUE_CATALOG_ENDPOINT), config=config)
            if account := properties.get(keys.GLUE_ID):
                keys._register_glue_catalog_id_with_glue_client(made, account)
            return made

        super().__init__(name, client(limits.read_seconds, 1 + int(properties.get(keys.GLUE_MAX_RETRIES, _RETRIES))), **properties)
        self._swaps = client(limits.commit_seconds, 1)

    def _update_glue_table(self, database_name: str, table_name: str, table_input: Any, version_id: str) -> None:
        now: dict[str, Any] = dict(self._get_glue_table(database_name, table_name))
        built_on = table_input["Parameters"].get(PREVIOUS_METADATA_LOCATION)
        has = now.get("Parameters", {}).get(METADATA_LOCATION)
        if now.get("VersionId") != version_id or (built_on is not None and has != built_on):
            raise CommitFailedException(f"another writer has committed to {database_name}.{table_name} since its version {version_id}")
        try:
            self._swaps.update_table(
                DatabaseName=database_name,
                TableInput={**{key: now[key] for key in _KEPT if key in now}, **table_input},
                SkipArchive=property_as_bool(self.properties, keys.GLUE_SKIP_ARCHIVE, keys.GLUE_SKIP_ARCHIVE_DEFAULT),
                VersionId=version_id,
            )
        except self._swaps.exceptions.EntityNotFoundException as error:
            raise NoSuchTableError(f"Table does not exist: {database_name}.{table_name} (Glue table version {version_id})") from error
        except self._swaps.exceptions.ConcurrentModificationException as error:
            raise CommitFailedException(
                f"Glue detected a concurrent update of {database_name}.{table_name} since its version {version_id}"
            ) from error
