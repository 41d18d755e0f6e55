"""Manifests that break the specification are refused in words. `iceberg/test_entry_decoder.py` decodes those of real tables."""

from __future__ import annotations

import io

import fastavro
import pytest

from compaction_pipeline.formats.avro.entry_decoder import ManifestDecoder
from compaction_pipeline.formats.avro.values import UnknownAvro


def test_a_missing_field_that_the_specification_requires_is_named() -> None:
    out = io.BytesIO()
    file = {"type": "record", "name": "f", "fields": [{"name": "file_path", "type": "string", "field-id": 100}]}
    fields = [{"name": "status", "type": "int", "field-id": 0}, {"name": "data_file", "type": file, "field-id": 2}]
    fastavro.writer(out, {"type": "record", "name": "manifest_entry", "fields": fields}, [{"status": 1, "data_file": {"file_path": "p"}}])
    with pytest.raises(UnknownAvro, match="lacks format, record_count, file_size_bytes"):
        list(ManifestDecoder(out.getvalue()).entries())
