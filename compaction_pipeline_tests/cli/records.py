"""What every record that a command prints holds."""

from __future__ import annotations

KEYS = {
    "table",
    "snapshot_before",
    "snapshot_after",
    "tasks",
    "committed",
    "conflicts",
    "files_before",
    "files_after",
    "delete_files_before",
    "delete_files_after",
    "bytes_before",
    "bytes_after",
    "rows",
    "reason",
    "reason_code",
}
