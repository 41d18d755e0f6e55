"""A FileIO that waits before it opens a data file, as a slow store lets its readers wait, in processes whose environment says how long.

The property `py-io-impl` of a catalog names it. `TEST_SLOW_STORE_SECONDS` is the environment's word; without it nothing is slow.
"""

from __future__ import annotations

import os
import time

from pyiceberg.io.pyarrow import PyArrowFile, PyArrowFileIO

SECONDS = "TEST_SLOW_STORE_SECONDS"


class SlowIO(PyArrowFileIO):
    """PyArrow's FileIO before which a slow store stands."""

    def new_input(self, location: str) -> PyArrowFile:
        if "/data/" in location:
            time.sleep(float(os.environ.get(SECONDS, "0")))
        return super().new_input(location)


SLOW = {"py-io-impl": f"{__name__}.SlowIO"}
"""The properties of a catalog whose store is slow."""
