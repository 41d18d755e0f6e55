"""Measures MB of input per CPU-second where every row group is large and no delete touches one. Our merge copies such row groups.

    python benchmarks/row_groups.py                  # 24 files, 420 MB, row groups of 17 MB
    python benchmarks/row_groups.py --files 120      # 2 GB

The peer is Iceberg's `rewrite_data_files` on the same Spark and files. Amoro's own row-group copy was measured at 170 MB per CPU-second.
The last line is `ratio <ours / Iceberg's>`.
"""

from __future__ import annotations

import argparse

from generate import ORDERS
from measure import positive
from merge import compare


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--files", type=positive, default=24)
    parser.add_argument("--rounds", type=positive, default=3, help="counted rounds")
    arguments = parser.parse_args()
    compare(ORDERS, arguments.files, 500_000, arguments.rounds, {})


if __name__ == "__main__":
    main()
