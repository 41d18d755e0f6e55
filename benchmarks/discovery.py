"""Measures discovery in a REST catalog of many tables, through the fault proxy, beside the serial explorer of version 0.31.

    python benchmarks/discovery.py                      # 10,000 tables in 100 namespaces, 20 ms for each request
    python benchmarks/discovery.py --tables 20 --serial-tables 500

Each line has the seconds, the requests and the CPU-seconds of this process. The catalog and the proxy have a process of their own on the
same machine. Measured are the first listing, until every table is known with its uuid, layout and properties; a round that lists the
catalog again; sweeps over unchanged tables; and the same by the serial explorer, for as many tables as `--serial-tables`, with its time for
all tables at that rate. The tables have no snapshot: to read files of tables is no part of discovery.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from pathlib import Path

from measure import load_average
from opened_services import opened
from real_services import LightRest, light_rest

from compaction_pipeline.core.tables.table import CatalogEntry, TableIdentifier
from compaction_pipeline.settings import Settings

_LONG = timedelta(hours=1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--namespaces", type=int, default=100)
    parser.add_argument("--tables", type=int, default=100, help="tables of each namespace")
    parser.add_argument("--latency-ms", type=float, default=20)
    parser.add_argument("--serial-tables", type=int, default=1_000, help="tables that the serial explorer reads")
    arguments = parser.parse_args()
    count = arguments.namespaces * arguments.tables
    with tempfile.TemporaryDirectory(prefix="discovery-benchmark-") as folder, light_rest(arguments.namespaces, arguments.tables) as lake:
        lake.latency(arguments.latency_ms / 1_000)
        print(f"{count:,} tables in {arguments.namespaces} namespaces, {arguments.latency_ms:g} ms a request, load {load_average()}")
        services = opened(Settings(home=Path(folder) / "new"))
        services.stores.catalogs.add(CatalogEntry("lake", {"type": "rest", "uri": lake.uri}))

        def listed_first() -> None:
            services.explore_catalogs.explore()
            swept = services.sweep_tables.sweep(None, _LONG)
            problems = [each.problem for each in swept.refreshed if each.problem is not None]
            assert len(swept.refreshed) == count, (len(swept.refreshed), problems[:3])
            assert not problems, problems[:3]

        def swept() -> None:
            found = services.sweep_tables.sweep(None, _LONG)
            assert found.unmoved == count, (found.unmoved, len(found.refreshed))

        _measured("first listing", lake, listed_first, per=count, of="table")
        _measured("a round", lake, services.explore_catalogs.explore, per=arguments.namespaces, of="namespace", beside=1, none="/tables/")
        _measured(f"{count:,} unchanged heads with ETags", lake, swept, per=count, of="table")
        _measured(f"{count:,} unchanged heads with ETags, again", lake, swept, per=count, of="table")
        services.close()
        _serial(lake, Path(folder) / "serial", arguments.serial_tables, count)


def _serial(lake: LightRest, home: Path, tables: int, count: int) -> None:
    """List as version 0.31 did: namespace after namespace, one transaction for each new table, and one table after the other."""
    services = opened(Settings(home=home))
    services.stores.catalogs.add(CatalogEntry("lake", {"type": "rest", "uri": lake.uri}))
    catalog = services.catalogs.catalog("lake")

    def listed() -> Sequence[TableIdentifier]:
        found: list[TableIdentifier] = []
        for namespace in catalog.list_namespaces():
            catalog.list_namespaces(namespace)
            found += (TableIdentifier("lake", tuple(levels[:-1]), levels[-1]) for levels in catalog.list_tables(namespace))
        return sorted(found)

    def read() -> None:
        for table in found[:tables]:
            services.stores.index.add(table)
        for table in found[:tables]:
            services.refresh_files.refresh(table)

    found = listed()
    round_seconds = _measured("serial: a round", lake, listed, per=1, of="round")
    seconds = _measured(f"serial: first listing of {tables:,} tables", lake, read, per=tables, of="table")

    def read_again() -> None:
        for table in found[:tables]:
            services.refresh_files.refresh(table)

    again = _measured(f"serial: {tables:,} unchanged heads", lake, read_again, per=tables, of="table")
    print(
        f"serial, for {count:,} tables at this rate: first listing {round_seconds + seconds * count / tables:.0f} s, "
        f"unchanged heads {again * count / tables:.0f} s"
    )
    services.close()


def _measured(
    what: str, lake: LightRest, act: Callable[[], object], *, per: int, of: str, beside: int = 0, none: str | None = None
) -> float:
    # `beside` requests are for the catalog as a whole: one lists its upper namespaces.
    lake.requests()
    began, cpu = time.perf_counter(), time.process_time()
    act()
    seconds, used = time.perf_counter() - began, time.process_time() - cpu
    requests = lake.requests()
    unchanged = sum(one.startswith("304") for one in requests)
    loads = "" if none is None else f", {sum(none in one for one in requests)} for a table"
    print(
        f"{what}: {seconds:.1f} s, {used:.1f} CPU-seconds, {len(requests):,} requests ({(len(requests) - beside) / per:.2f} a {of}{loads}"
        f"{f', and {beside} for the catalog' if beside else ''}"
        f"{f', {unchanged:,} answered 304' if unchanged else ''})"
    )
    return seconds


if __name__ == "__main__":
    main()
