"""Our side of `upkeep.py`, as one process: works on the table in a folder, and says what it did.

    python benchmarks/upkeep_step.py manifests /folder

With `orphans` it looks twice, a day apart, and deletes what both looks found. `properties.json` in the folder has further properties of the
catalog, those of an S3 for instance.

It imports only what a command of the program imports, because the time of its start counts. The last line says what it took without its
start: `warm <CPU-seconds>`.
"""

from __future__ import annotations

import argparse
import json
import resource
import sys
import time
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1]))

from compaction_pipeline.core.tables.table import CatalogEntry, TableIdentifier
from compaction_pipeline.core.upkeep.works import UpkeepWork
from compaction_pipeline.settings import Settings
from compaction_pipeline_tests.opened import OpenedServices

_TABLE = TableIdentifier("bench", ("db",), "t")
_MB = 1_000_000
_opened_at: list[float] = []
"""The CPU-seconds of this process when its imports were done and the catalog was known, as they are in a server."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("of", choices=(*_STEPS,))
    parser.add_argument("folder", type=Path)
    arguments = parser.parse_args()
    _STEPS[arguments.of](arguments.folder)
    print(f"warm {time.process_time() - _opened_at[0]:.2f}", flush=True)


def _expire(folder: Path) -> None:
    now = [datetime.now(timezone.utc)]
    services = _services(folder, lambda: now[0])
    for _ in range(2):
        now[0] += timedelta(days=1)
        began = time.process_time()
        expired = services.expire_snapshots.expire(_TABLE)
        _print(f"a run took {time.process_time() - began:.1f} CPU-s")
    (record,) = expired.earlier
    _print(record.summary)
    services.close()


def _rewrite(folder: Path) -> None:
    services = _services(folder, lambda: datetime.now(timezone.utc))
    began = time.process_time()
    (done,) = services.commit_upkeep.carry_out(_TABLE, UpkeepWork.MANIFESTS)
    said = done.refusal if done.record is None else done.record.summary
    _print(f"{said}; the run took {time.process_time() - began:.1f} CPU-s")
    services.close()


def _clean(folder: Path) -> None:
    now = [datetime.now(timezone.utc) + timedelta(days=30)]
    services = _services(folder, lambda: now[0])
    began = time.process_time()
    decision = services.clean_orphans.look(_TABLE, accept_share=1.0)
    said = ", ".join(f"{one.value} {total.files:,}" for one, total in decision.totals.items() if total.files)
    _print(f"{said}; a look took {time.process_time() - began:.1f} CPU-s")
    # On another day it is another process, which does not hold what this look saw.
    del decision
    began = time.process_time()
    now[0] += timedelta(days=1)
    cleaned = services.clean_orphans.delete(_TABLE, accept_share=1.0)
    deleted = sum(len(deletion.deleted) for deletion in cleaned.deletions)
    why = cleaned.problem or "; ".join(cleaned.refusals) or "no problem"
    _print(f"{deleted:,} files deleted, {why}; the second run, with its look, took {time.process_time() - began:.1f} CPU-s")
    services.close()


def _services(folder: Path, clock: Callable[[], datetime]) -> OpenedServices:
    services = OpenedServices(Settings(home=folder / "home"), clock=clock)
    properties = {"type": "sql", "uri": f"sqlite:///{folder / 'catalog.db'}", "warehouse": (folder / "warehouse").as_uri()}
    more = folder / "properties.json"
    properties |= json.loads(more.read_text()) if more.exists() else {}
    services.stores.catalogs.add(CatalogEntry("bench", properties))
    _opened_at.append(time.process_time())
    return services


_STEPS = {"expiry": _expire, "manifests": _rewrite, "orphans": _clean}


def _print(text: str) -> None:
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / _MB
    print(f"{text}; peak of its process {peak:.0f} MB", flush=True)


if __name__ == "__main__":
    main()
