"""`make demo` runs this as `python -m compaction_pipeline.demo`."""

from __future__ import annotations

import argparse
import os
import sys

from compaction_pipeline.demo.options import read_options
from compaction_pipeline.demo.processes import Stopped, stop_on_signals


def main() -> int:
    """Run the demo, and answer its exit code."""
    # Whoever asks for help, or mistypes, must not start an hour of writers and Dagster.
    says = "Watch real tables being compacted in the Dagster UI."
    more = "It is told what to do by environment variables, for example PORT=3000, ONCE=1 and OPTIMIZERS=2: `make help` names them."
    argparse.ArgumentParser(prog="python -m compaction_pipeline.demo", description=says, epilog=more).parse_args()
    stop_on_signals()
    try:
        # This imports Dagster and PyIceberg, which takes seconds. Whoever ends the demo meanwhile gets a sentence too.
        from compaction_pipeline.demo.program import answered
    except Stopped as stopped:
        print(f"\n{stopped}: the demo has started nothing yet.")
        return 1 if os.environ.get("ONCE") else 0
    return answered(read_options)


if __name__ == "__main__":
    sys.exit(main())
