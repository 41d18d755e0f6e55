"""What every test shares: Hypothesis' profiles, `--steps`, and an environment that no setting of the person at the desk reaches.

Profiles: `dev` (default) looks at new examples every time, `ci` at the same ones, `long` at many. HYPOTHESIS_PROFILE chooses.
"""

from __future__ import annotations

import os
import shutil
import signal
import tempfile

import pytest
from hypothesis import HealthCheck, settings

_SLOW_IS_FINE = [HealthCheck.too_slow, HealthCheck.data_too_large]

# No deadlines: two cores shared with a JVM make any single example slow now and then.
settings.register_profile("dev", max_examples=50, deadline=None, suppress_health_check=_SLOW_IS_FINE)
settings.register_profile("ci", max_examples=30, deadline=None, suppress_health_check=_SLOW_IS_FINE, derandomize=True, print_blob=True)
settings.register_profile("long", max_examples=2000, deadline=None, suppress_health_check=_SLOW_IS_FINE, print_blob=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci" if os.environ.get("CI") else "dev"))

_TESTS_OWN = ("COMPACTION_TEST_", "COMPACTION_SCREENSHOTS", "COMPACTION_SEED")
"""Variables that speak to the tests and stay."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--steps", type=int, default=None, metavar="N", help="steps of the model test: --steps=N (the same as STEPS=N)")


def pytest_configure(config: pytest.Config) -> None:
    """Forget COMPACTION_*, AWS_* and DAGSTER_HOME, so that no test opens a person's own state or stores; let Ctrl-C be as at a desk."""
    for name in [name for name in os.environ if name.startswith(("COMPACTION_", "AWS_")) and not name.startswith(_TESTS_OWN)]:
        del os.environ[name]
    os.environ.pop("DAGSTER_HOME", None)
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        # A shell ignores Ctrl-C for what it starts in the background; tests of Ctrl-C would wait for ever.
        signal.signal(signal.SIGINT, signal.default_int_handler)
    home = tempfile.mkdtemp(prefix="compaction-home-")
    os.environ["COMPACTION_HOME"] = home
    config.add_cleanup(lambda: shutil.rmtree(home, ignore_errors=True))
    steps = config.getoption("--steps")
    if steps is not None:
        os.environ["STEPS"] = str(steps)
