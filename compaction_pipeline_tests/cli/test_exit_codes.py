"""The numbers that programs rely on never change."""

from __future__ import annotations

import pytest

from compaction_pipeline.cli.exit_codes import ExitCode, exit_code_of
from compaction_pipeline.core import errors


def test_the_numbers_are_fixed() -> None:
    assert {code.name: int(code) for code in ExitCode} == {
        "DONE": 0,
        "FAILED": 1,
        "BAD_INPUT": 2,
        "PARTLY_COMMITTED": 3,
        "REFUSED": 4,
        "OUTCOME_UNKNOWN": 5,
        "NOT_READY": 6,
        "INTERRUPTED": 130,
    }


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errors.ConfigError, 2),
        (errors.NotFoundError, 2),
        (errors.TableRefused, 4),
        (errors.TablePaused, 4),
        (errors.CommitStateUnknown, 5),
        (errors.CommitConflict, 1),
        (errors.ChangedMeanwhile, 1),
        (errors.StorageUnavailable, 1),
        (errors.MergeFailed, 1),
    ],
)
def test_every_error_has_its_number(error: type[errors.CompactionError], code: int) -> None:
    assert exit_code_of(error("x")) == code


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errors.ConfigError, "INVALID_INPUT"),
        (errors.NotFoundError, "NOT_FOUND"),
        (errors.TableRefused, "REFUSED"),
        (errors.TablePaused, "PAUSED"),
        (errors.MergeRefused, "MERGE_FAILED"),
        (errors.CommitConflict, "CONFLICT"),
        (errors.ChangedMeanwhile, "CONFLICT"),
        (errors.CommitStateUnknown, "OUTCOME_UNKNOWN"),
        (errors.StorageUnavailable, "UNAVAILABLE"),
        (errors.AccessDenied, "NO_ACCESS"),
        (errors.CommitRefused, "COMMIT_REFUSED"),
        (errors.RacesLost, "RACES_LOST"),
        (errors.StaleAttempt, "STALE"),
        (errors.IllegalTransition, "UNEXPECTED"),
    ],
)
def test_every_error_has_its_code(error: type[errors.CompactionError], code: str) -> None:
    assert error("x").code.value == code
