"""The component `CompactionPipeline`: our definitions as a part of somebody's own Dagster project, configured in YAML.

`dg scaffold defs compaction_pipeline.CompactionPipeline <path>` writes the YAML. Loading it opens no database, no catalog and no JVM.
"""

# This module has no `from __future__ import annotations`. Dagster makes the YAML's schema from the annotations.
import json
from collections.abc import Mapping
from functools import cache
from types import ModuleType
from typing import Annotated, Any

import dagster as dg
from dagster.components.component_scaffolding import scaffold_component
from pydantic import Field

from compaction_pipeline.core.catalogs.definition import ALL_FIELDS, MAPPINGS, CatalogDefinition, read_definition
from compaction_pipeline.core.catalogs.facts import Facts
from compaction_pipeline.core.catalogs.rules import check_definition
from compaction_pipeline.core.errors import ConfigError
from compaction_pipeline.core.tables.asset_key import ASSET_KEY_RULE, asset_key_levels
from compaction_pipeline.core.tables.table import TableIdentifier
from compaction_pipeline.defs.choices import Choices
from compaction_pipeline.defs.location import definitions
from compaction_pipeline.defs.together import check_together
from compaction_pipeline.services.table_filters import why_no_pattern
from compaction_pipeline.settings import Settings

_SETTINGS = ("asset_prefix", "state_url", "sensor_interval_seconds", "keeper_interval_seconds", "catalog_interval_seconds")


def _setting(name: str) -> Any:
    """An attribute that stands for a setting. It is described in the same words as the setting."""
    described = Settings.model_fields[name].description
    return Field(default=None, description=f"{described} Without it, the variable COMPACTION_{name.upper()} counts.")


class Catalog(dg.Resolvable, dg.Model):
    """A catalog that PyIceberg can open."""

    name: str = Field(description="The name that the catalog gets here. It becomes the first level of catalog.namespace.table.")
    type: str | None = Field(default=None, description="The kind of catalog: rest, hive, glue, sql, dynamodb or bigquery.")
    properties: dict[str, str | int | float | bool] = Field(
        default_factory=dict,
        description='Properties of PyIceberg\'s catalogs, all of them texts. Take secrets from the environment: "{{ env.LAKE_TOKEN }}".',
    )
    table_properties: dict[str, str | int | float | bool] = Field(
        default_factory=dict, description="Properties that its tables inherit, without the prefix table., e.g. self-optimizing.quota."
    )
    formats: list[str] | str | None = Field(
        default=None, description="Which formats of tables are compacted: iceberg, mixed-iceberg. Without it, both are."
    )
    group: str | None = Field(default=None, description="The resource group of its tables that name none. The group must exist.")
    database_filter: str | None = Field(
        default=None, description="A regular expression (RE2). Only tables of namespaces that match it as a whole are looked after."
    )
    table_filter: str | None = Field(
        default=None, description="A regular expression (RE2). Only tables whose namespace.table matches it as a whole are looked after."
    )
    authentication: str | None = Field(default=None, description="How requests to the catalog prove who asks, e.g. oauth2.")
    observe: bool | None = Field(
        default=None,
        description="true: the tables are measured and planned, and none of them is changed. false: they are compacted. Without it, a new "
        "catalog is compacted, and one that is registered already stays as it is.",
    )


_EXAMPLE = """\
type: {type_name}

attributes: {{}}

# Every attribute may be left out. `dg utils inspect-component {type_name}` describes all of them. For example:
#
# attributes:
#   asset_prefix: platform/compaction
#   asset_owners:
#     - team:data-platform
#   sensor_interval_seconds: 30
#   catalogs:
#     - name: lake
#       observe: true  # Begin this way: the tables are measured and planned, and none of them is changed.
#       properties:
#         type: rest
#         uri: https://catalog.example.com/iceberg
#         credential: "{{{{ env.LAKE_CREDENTIAL }}}}"
#   asset_keys:
#     lake.shop.orders: analytics/orders
"""


class CompactionScaffolder(dg.Scaffolder):
    """Writes a `defs.yaml` with the attributes as comments, because most projects need two or three of them."""

    def scaffold(self, request: dg.ScaffoldRequest) -> None:
        """Write the file into the folder that `dg scaffold` has made. A component in Python gets Dagster's own file."""
        if request.scaffold_format == "python" or request.append:
            scaffold_component(request)
        else:
            (request.target_path / "defs.yaml").write_text(_EXAMPLE.format(type_name=request.type_name))


@dg.scaffold_with(CompactionScaffolder)
class CompactionPipeline(dg.Component, dg.Resolvable, dg.Model):
    """Keeps Apache Iceberg tables fast: finds fragmented partitions, merges their files on Spark, commits without changing a row."""

    asset_prefix: str | None = _setting("asset_prefix")
    asset_owners: list[str] | None = Field(
        default=None,
        description="The owners of every asset: team:name or an e-mail address. Without it, the variable COMPACTION_ASSET_OWNERS counts.",
    )
    name_prefix: str = Field(
        default="",
        description="A prefix of the names of jobs, sensors, the schedule, partitions and the resource `compaction`: with `silver` the job "
        "`compact_job` is `silver_compact_job`. A second component in a code location needs one.",
    )
    state_url: str | None = _setting("state_url")
    sensor_interval_seconds: int | None = _setting("sensor_interval_seconds")
    keeper_interval_seconds: int | None = _setting("keeper_interval_seconds")
    catalog_interval_seconds: int | None = _setting("catalog_interval_seconds")
    catalogs: list[Catalog] = Field(
        default_factory=list,
        description="Catalogs to register. The first tick registers them. A registered catalog gets the properties that stand here, and "
        "keeps others that commands have set. A catalog that you take away from here stays registered until "
        "`compaction-pipeline catalog remove`.",
    )

    asset_keys: dict[str, str] = Field(
        default_factory=dict,
        description="Your own assets that stand for tables: catalog.namespace.table → asset key, e.g. lake.shop.orders: analytics/orders. "
        "Such an asset shows the health of its table, the last compaction and a check. It may live in any code location. "
        "An entry here wins over the table's property 'compaction.dagster-asset-key'.",
    )

    pyspark: Annotated[Any, dg.Resolver.default(model_field_type=str | dict[str, Any])] = Field(
        default=None,
        description="The Spark that merges run on. A mapping is the spark_config of dagster_pyspark's LazyPySparkResource, e.g. "
        'spark.master: "spark://host:7077". "project" means the resource `pyspark` of your own project. In Python it is any object with a '
        "`spark_session`. Without it, COMPACTION_SPARK_MASTER and COMPACTION_SPARK_REMOTE count.",
    )

    def build_defs(self, context: dg.ComponentLoadContext) -> dg.Definitions:
        """Return the definitions of the code location. Raises ConfigError for an attribute that breaks its rule."""
        self._check_others(context)
        return definitions(self.choices(), with_executor=False, pyspark=self._resource())

    def _check_others(self, context: dg.ComponentLoadContext) -> None:
        """Raise ConfigError when another component of the code location cannot stand beside this one."""
        tree = context.component_tree
        # In `dg.build_defs_for_component` a component stands alone, and the tree stands for no folder.
        if isinstance(tree.defs_module, ModuleType):
            check_together([(each.choices(), each.pyspark) for each in tree.get_all_components(CompactionPipeline)])

    def _resource(self) -> Any:
        """The resource of the attribute `pyspark`; "project" and None stay as they are. Raises ConfigError for what has no session."""
        given = self.pyspark
        if isinstance(given, Mapping):
            return _lazy_spark(json.dumps(given, sort_keys=True, default=str))
        if isinstance(given, str) and given != "project":
            raise ConfigError(
                f"attribute 'pyspark' of CompactionPipeline is {given!r} but must be 'project' or a mapping of Spark's properties; correct "
                "it, or leave it out"
            )
        return given

    def choices(self) -> Choices:
        """Return what the attributes choose. Raises ConfigError for an attribute that breaks its rule."""
        settings: dict[str, object] = {name: getattr(self, name) for name in _SETTINGS if getattr(self, name) is not None}
        if self.asset_owners is not None:
            settings["asset_owners"] = ",".join(self.asset_owners)
        catalogs = tuple(map(_defined, self.catalogs))
        keys = {TableIdentifier.parse(table): _levels(table, key) for table, key in self.asset_keys.items()}
        return Choices(settings, catalogs, keys, self.name_prefix)


def _defined(catalog: Catalog) -> CatalogDefinition:
    """The definition of a catalog. Raises DefinitionError with everything that is wrong, as far as it is seen without a state database."""
    given = {name: getattr(catalog, name) for name in ALL_FIELDS}
    definition, problems = read_definition({**given, **{name: _texts(given[name]) for name in MAPPINGS}})
    check_definition(definition, Facts(why_no_pattern), problems)
    return definition


def _texts(properties: Mapping[str, str | int | float | bool]) -> dict[str, str]:
    """The properties as texts. Dagster makes numbers and switches of the texts of its YAML, also of those in quotes."""
    return {key: str(value).lower() if isinstance(value, bool) else str(value) for key, value in properties.items()}


@cache
def _lazy_spark(properties: str) -> object:
    """The resource with these properties of Spark. It is the same one each time: Dagster refuses two resources under one key."""
    from dagster_pyspark import LazyPySparkResource

    return LazyPySparkResource(spark_config=json.loads(properties))


def _levels(table: str, key: str) -> tuple[str, ...]:
    try:
        return asset_key_levels(key)
    except ValueError:
        raise ConfigError(f"attribute 'asset_keys' of CompactionPipeline maps {table} to {key!r}, which must be {ASSET_KEY_RULE}") from None
