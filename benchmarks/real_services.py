"""Gives benchmarks the servers and the proxy of the tests. They are in the test tree, which is not installed with the package."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1]))

from compaction_pipeline_tests.light_rest import LightRest, light_rest
from compaction_pipeline_tests.postgres import lasting_postgres
from compaction_pipeline_tests.real_services.fault_proxy import FaultProxy, fault_proxy
from compaction_pipeline_tests.real_services.kafka import KafkaBroker, kafka_broker
from compaction_pipeline_tests.real_services.servers import RestCatalogServer, S3Server, rest_catalog_server, s3_server

__all__ = [
    "FaultProxy",
    "KafkaBroker",
    "LightRest",
    "RestCatalogServer",
    "S3Server",
    "fault_proxy",
    "kafka_broker",
    "lasting_postgres",
    "light_rest",
    "rest_catalog_server",
    "s3_server",
]
