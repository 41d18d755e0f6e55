"""A server says at its start what nobody would be told of."""

from __future__ import annotations

import logging
from pathlib import Path
from unittest import mock

import pytest

from compaction_pipeline.api.serve import Listening, serve, warn_of_unheard
from compaction_pipeline.core.errors import ConfigError
from compaction_pipeline.core.queue.group import ResourceGroup
from compaction_pipeline.settings import Settings
from compaction_pipeline_tests.opened import OpenedServices


def test_a_policy_without_an_address_is_warned_of(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    services = OpenedServices(Settings(home=tmp_path))
    try:
        with caplog.at_level(logging.WARNING):
            warn_of_unheard(services)
            assert caplog.messages == []
            policy = {"dynamic-allocation.enabled": "true", "dynamic-allocation.max-parallelism": "2"}
            services.stores.groups.add(ResourceGroup("heavy", "workers", policy))
            warn_of_unheard(services)
        assert caplog.messages == [
            "nobody will be told of what is scaled in heavy: set COMPACTION_NOTICES_FILE to a file with the addresses of administrators"
        ]
        with mock.patch.object(services.read_scaling, "scaled", side_effect=ConfigError("no key")):
            warn_of_unheard(services)
        assert len(caplog.messages) == 1, "a server starts without the key, and asks nothing of it"
    finally:
        services.close()


def test_a_wrong_file_of_addresses_ends_the_start(tmp_path: Path) -> None:
    file = tmp_path / "notices.yaml"
    file.write_text("administrators: json://host\nadministrator: nothing://secret")
    services = OpenedServices(Settings(home=tmp_path, notices_file=file))
    try:
        with pytest.raises(
            ConfigError, match=r"address 1 of 'administrator' in .*notices.yaml: apprise knows no address of the form nothing://"
        ):
            serve(services, Listening("127.0.0.1", 0), ticks=False)
    finally:
        services.close()


def test_an_owner_that_no_team_has_any_more_keeps_no_server_from_starting(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file = tmp_path / "notices.yaml"
    file.write_text("administrators@shop.example: json://host\nadministrator: json://user:s3cret@host")
    file.chmod(0o644)
    services = OpenedServices(Settings(home=tmp_path, notices_file=file))
    try:
        with mock.patch("compaction_pipeline.api.serve._Server.run"), pytest.raises(ConfigError, match="the server did not start"):
            serve(services, Listening("127.0.0.1", 0), ticks=False)
    finally:
        services.close()
    owner, misspelled = [text for text in caplog.messages if str(file) in text]
    assert "'administrators@shop.example' of" in owner
    assert "did you mean 'administrators'?" in misspelled
    assert "s3cret" not in caplog.text
    assert file.stat().st_mode & 0o777 == 0o640
