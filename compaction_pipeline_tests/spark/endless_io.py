"""Storage whose reads never end."""

from __future__ import annotations

from pathlib import Path


def endless_io(folder: Path, began: Path) -> Path:
    """A module with a FileIO that writes into `began` which process called it, and then never returns."""
    module = folder / "endless_io.py"
    module.write_text(
        "import os, pathlib, time\n"
        f"pathlib.Path('{began}.draft').write_text(str(os.getpid()))\n"
        f"os.rename('{began}.draft', '{began}')\n"
        "time.sleep(10**9)\n"
    )
    return module
