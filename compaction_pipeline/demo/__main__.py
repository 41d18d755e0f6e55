"""`make demo` runs this as `python -m compaction_pipeline.demo`."""

from __future__ import annotations

import os
import sys

from compaction_pipeline.demo.options import read_options
from compaction_pipeline.demo.processes import Stopped, stop_on_signals


def main() -> int:
    """Run the demo, and answer its exit code."""
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
