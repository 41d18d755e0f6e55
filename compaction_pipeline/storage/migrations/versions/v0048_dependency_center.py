"""The dependency center: projects, jobs, instances, what they wait for, and what is known."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0048"
down_revision = "0047"
branch_labels = None
depends_on = None


def upgrade() -> None:
    moment = sa.DateTime(timezone=True)
    serial = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
    op.create_table(
        "compaction_center_project",
        sa.Column("name", sa.String(), primary_key=True),
        sa.Column("version", sa.BigInteger(), nullable=False),
        sa.Column("file", sa.Text(), nullable=False),
    )
    op.create_table(
        "compaction_center_job",
        sa.Column("name", sa.String(), primary_key=True),
        sa.Column("project", sa.String(), nullable=False),
        sa.Column("biz", sa.String(), nullable=False),
        sa.Column("at", moment),
    )
    op.create_index("compaction_center_job_at", "compaction_center_job", ["at"])
    op.create_table(
        "compaction_center_instance",
        sa.Column("id", serial, primary_key=True),
        sa.Column("job", sa.String(), nullable=False),
        sa.Column("biz", sa.String(), nullable=False),
        sa.Column("origin", sa.String(), nullable=False),
        sa.Column("part", sa.String(), nullable=False),
        sa.Column("receiver", sa.String()),
        sa.Column("generation", sa.Integer(), nullable=False),
        sa.Column("state", sa.String(32), nullable=False),
        sa.Column("missing", sa.Integer(), nullable=False),
        sa.Column("made_at", moment, nullable=False),
        sa.Column("ready_at", moment),
        sa.Column("claimed_at", moment),
        sa.Column("delivered_at", moment),
        sa.Column("ended_at", moment),
        sa.Column("changed_at", moment),
        sa.UniqueConstraint("job", "biz", "origin", "part", name="compaction_center_instance_run"),
    )
    op.create_index("compaction_center_instance_state", "compaction_center_instance", ["state", "missing", "receiver"])
    op.create_table(
        "compaction_center_subject",
        sa.Column("id", serial, primary_key=True),
        sa.Column("key", sa.Text(), nullable=False, unique=True),
        sa.Column("kind", sa.String(), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("reported", sa.Boolean(), nullable=False),
        sa.Column("reached", sa.BigInteger(), nullable=False),
        sa.Column("fell", sa.BigInteger()),
        sa.Column("spread", sa.Boolean(), nullable=False),
        sa.Column("at", moment),
    )
    op.create_index("compaction_center_subject_spread", "compaction_center_subject", ["spread", "at"])
    op.create_index("compaction_center_subject_name", "compaction_center_subject", ["kind", "name"])
    op.create_table(
        "compaction_center_requirement",
        sa.Column(
            "instance_id",
            serial,
            sa.ForeignKey("compaction_center_instance.id", ondelete="CASCADE"),
            primary_key=True,
            autoincrement=False,
        ),
        sa.Column("edge", sa.Integer(), primary_key=True, autoincrement=False),
        sa.Column("subject_id", serial, sa.ForeignKey("compaction_center_subject.id"), primary_key=True, autoincrement=False),
        sa.Column("bound", sa.BigInteger(), primary_key=True, autoincrement=False),
        sa.Column("met", sa.Boolean(), nullable=False),
    )
    op.create_index("compaction_center_requirement_subject", "compaction_center_requirement", ["subject_id", "met", "bound"])
    op.create_table(
        "compaction_center_fact",
        sa.Column("id", serial, primary_key=True),
        sa.Column("value", sa.Text(), nullable=False),
    )
    op.create_table(
        "compaction_center_number",
        sa.Column("key", sa.Text(), primary_key=True),
        sa.Column("source", sa.String(), primary_key=True),
        sa.Column("number", sa.BigInteger(), nullable=False),
    )
