"""What a person may choose about the demo, and where its files are. The environment is read once."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from pathlib import Path

from compaction_pipeline.core.errors import ConfigError

CATALOG = "demo"
"""The name of the demo's catalog, in PyIceberg and in our state database."""

# A person may have set other variables for tables of their own. They must not reach the demo.
_KEPT_VARIABLES = ("COMPACTION_LOG_LEVEL", "COMPACTION_MERGE_ENGINE")

_REPLAYED = timedelta(days=40)
"""The demo's events begin so long before the demo: an hour, as a day of them lasts a minute and a half."""

_SWITCHES = {"": False, "0": False, "no": False, "false": False, "1": True, "yes": True, "true": True}


@dataclass(frozen=True, slots=True)
class DemoOptions:
    """The options of one demo. With `once`, it writes a backlog, lets the sensors work it off, compares, and ends. It gives up when nothing
    has changed for `patience_seconds`. Paths are absolute.

    With `optimizers`, so many optimizers merge, and a server on `server_port` gives them their tasks.
    """

    root: Path
    port: int = 3000
    once: bool = False
    optimizers: int = 0
    server_port: int = 8787
    backlog_files: int = 2_000
    sensor_interval_seconds: int = 5
    patience_seconds: int = 540

    @property
    def catalog_url(self) -> str:
        """PyIceberg's SQL catalog."""
        return f"sqlite:///{self.root / 'catalog.db'}"

    @property
    def warehouse(self) -> Path:
        return self.root / "warehouse"

    @property
    def changes(self) -> Path:
        """The folder of the change logs. Each table has one."""
        return self.root / "changes"

    @property
    def home(self) -> Path:
        """The value of COMPACTION_HOME."""
        return self.root / "home"

    @property
    def dagster_home(self) -> Path:
        return self.root / "dagster_home"

    @property
    def logs(self) -> Path:
        """The folder of what Dagster and the writers print."""
        return self.root / "logs"

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def health_page(self) -> str:
        """The page to look at first: the asset `table_health`. Dagster's own first page shows runs."""
        return f"{self.address}/assets/table_health"

    @property
    def waiting_page(self) -> str:
        """The asset of the live demo that waits for days of a table."""
        return f"{self.address}/assets/daily_sales"

    @property
    def server_address(self) -> str:
        """The HTTP service, which runs only beside optimizers."""
        return f"http://127.0.0.1:{self.server_port}"

    @property
    def first_day(self) -> datetime:
        """The day on which the events of this demo begin. `make_folders` chooses it once."""
        return datetime.fromisoformat(self._first_day.read_text())

    @property
    def _first_day(self) -> Path:
        return self.root / "first_day"

    def make_folders(self, now: datetime | None = None) -> None:
        """Make every folder that a process of the demo expects, and choose the first day of its events."""
        for folder in (self.warehouse, self.changes, self.home, self.dagster_home, self.logs):
            folder.mkdir(parents=True, exist_ok=True)
        if not self._first_day.exists():
            midnight = (now or datetime.now(timezone.utc)).replace(hour=0, minute=0, second=0, microsecond=0)
            self._first_day.write_text((midnight - _REPLAYED).isoformat())


def read_options(environment: Mapping[str, str] = os.environ) -> DemoOptions:
    """Read PORT, ONCE, OPTIMIZERS, SERVER_PORT and COMPACTION_DEMO_HOME, which is `.demo` here by default.

    Raises ConfigError for a value that breaks its rule.
    """
    root = Path(environment.get("COMPACTION_DEMO_HOME") or ".demo").absolute()
    if root.exists() and not root.is_dir():
        raise ConfigError(f"COMPACTION_DEMO_HOME is {root} but must be a folder, and that is a file: set it to another path")
    return DemoOptions(
        root=root,
        port=_number(environment, "PORT", 3000, 1, 65535),
        once=_switch(environment, "ONCE"),
        optimizers=_number(environment, "OPTIMIZERS", 0, 0, 16),
        server_port=_number(environment, "SERVER_PORT", 8787, 1, 65535),
        backlog_files=_number(environment, "COMPACTION_DEMO_BACKLOG_FILES", 2_000, 1, 1_000_000),
    )


def child_environment(options: DemoOptions, environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """The environment of the demo's own process, of Dagster and of the writers."""
    kept = {
        name: value for name, value in environment.items() if not name.startswith(("COMPACTION_", "DAGSTER_")) or name in _KEPT_VARIABLES
    }
    return kept | {
        "COMPACTION_HOME": str(options.home),
        "COMPACTION_DEMO_HOME": str(options.root),
        "COMPACTION_SENSOR_INTERVAL_SECONDS": str(options.sensor_interval_seconds),
        "DAGSTER_HOME": str(options.dagster_home),
        "PYTHONUNBUFFERED": "1",
    }


def _switch(environment: Mapping[str, str], name: str) -> bool:
    text = environment.get(name, "")
    if text.lower() not in _SWITCHES:
        raise ConfigError(f"{name} is {text!r} but must be 1 (yes, true) or 0 (no, false), e.g. {name}=1")
    return _SWITCHES[text.lower()]


def _number(environment: Mapping[str, str], name: str, default: int, lowest: int, highest: int) -> int:
    text = environment.get(name) or str(default)
    if not text.isdecimal() or not lowest <= int(text) <= highest:
        raise ConfigError(f"{name} is {text!r} but must be a whole number from {lowest} to {highest}, e.g. {name}={default}")
    return int(text)
