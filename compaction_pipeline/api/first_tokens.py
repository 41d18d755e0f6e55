"""Writes the first tokens of a new deployment into files that only their owner may read."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from compaction_pipeline.core.access.token import Role
from compaction_pipeline.core.errors import ConfigError
from compaction_pipeline.services.access.keep_tokens import KeepTokens


def token_file(home: Path, role: Role) -> Path:
    """The file of the first token of a role."""
    return home / f"{role.value}.token"


def write_first_tokens(tokens: KeepTokens, home: Path) -> Mapping[Role, Path]:
    """Issue an admin token and an optimizer token, each when nobody was given one of its role yet. Return the files that were written.

    Raises ConfigError when a file cannot be written.
    """
    given = {token.role for token in tokens.tokens()}
    written = {}
    for role in (Role.ADMIN, Role.OPTIMIZER):
        if role in given:
            continue
        path = token_file(home, role)
        text = tokens.issue(role, f"first {role.value}").text
        try:
            home.mkdir(mode=0o700, parents=True, exist_ok=True)
            path.unlink(missing_ok=True)
            with os.fdopen(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "w") as file:
                file.write(f"{text}\n")
        except OSError as error:
            raise ConfigError(f"the token file {path} cannot be written: {error}; correct COMPACTION_HOME or its rights") from error
        written[role] = path
    return written
