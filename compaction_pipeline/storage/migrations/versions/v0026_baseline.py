"""The oldest state that this program upgrades. An empty database never gets this version: `migrate` makes the newest schema at once."""

from __future__ import annotations

revision = "0026"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Do nothing: Alembic calls this only for a database without a version."""
